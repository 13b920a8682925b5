"""Epochs and copies are computed from the corpus's size, and an unknown size is not guessed."""

import shutil

import pytest

from common.tables import FAILS, NOT_CHECKED, OK, WARNING, run_check
from fakes import valid_run
from preflight.checks import corpus_size
from tasks.corpus.source import CorpusSource
from tasks.languages import public, table

ROMANIAN = ["Ana are mere și pere, iar Ion are prune."] * 40
CZECH = table.find("czech")


def test_epochs_are_counted(write_corpus, task):
    source = CorpusSource(write_corpus(ROMANIAN * 50, files=2))
    context = valid_run.context(**task(source), total_steps=10)
    row = run_check("check", corpus_size.epochs, context)
    own = context.require_vocabulary()
    tokens = 2 * 2000 * len(own.encode(ROMANIAN[0]))
    assert row.numbers["tokens"] == pytest.approx(tokens, rel=0.01)
    run = context.objective.lengths(128).tokens
    assert row.numbers["epochs"] == pytest.approx(10 * 16 * run / tokens, rel=0.01)
    assert row.verdict == OK
    longer = valid_run.context(**task(source), total_steps=10_000)
    assert run_check("check", corpus_size.epochs, longer).verdict == WARNING


def test_an_unknown_size_is_not_guessed(tmp_path, task):
    (tmp_path / "train.csv").write_text("text\nAna are mere.\n")
    source = CorpusSource(files={"train": str(tmp_path / "train.csv")})
    row = run_check("check", corpus_size.epochs, valid_run.context(**task(source)))
    assert row.verdict == NOT_CHECKED


def test_the_epochs_of_fineweb_2_are_known_offline(task):
    context = valid_run.context(offline=True, **task(public.fineweb2("czech")), total_steps=100_000)
    row = run_check("check", corpus_size.epochs, context)
    read = 100_000 * 16 * context.objective.lengths(128).tokens
    assert row.verdict == OK
    assert row.numbers["epochs"] == pytest.approx(read / (CZECH.words * 1.5))
    assert "by its authors; 1.5 tokens a word assumed" in row.figure
    weighted = task(public.fineweb2("czech", by_cluster=True))
    row = run_check("check", corpus_size.epochs, valid_run.context(offline=True, **weighted))
    assert "without copies and filters" in row.figure


def test_the_tokens_of_fineweb_2_are_measured_where_it_can_be_read(task, monkeypatch):
    monkeypatch.setattr(CorpusSource, "peek", lambda *_: ROMANIAN)
    context = valid_run.context(**task(public.fineweb2("czech")))
    row = run_check("check", corpus_size.epochs, context)
    own = context.require_vocabulary()
    a_token = len(ROMANIAN[0].encode()) / len(own.encode(ROMANIAN[0]))
    assert row.numbers["tokens"] == pytest.approx(CZECH.text_bytes / a_token)
    assert f"{a_token:.2f} bytes a token" in row.figure


def test_its_validation_split_has_no_published_size(task):
    settings = task(public.fineweb2("czech"))
    context = valid_run.context(offline=True, **settings)
    context.run.train_dataset_cfg.split = "validation"
    assert corpus_size.language_of(context) is None


def test_copies_of_fineweb_2_are_known_offline(task):
    context = valid_run.context(offline=True, **task(public.fineweb2("czech")))
    row = run_check("check", corpus_size.copies, context)
    assert (row.verdict, row.numbers["copy"]) == (OK, CZECH.parquet_bytes)
    assert row.numbers["cache"] == pytest.approx(CZECH.words * 1.5 * 3)
    assert f"a copy takes {CZECH.parquet_bytes / 1e9:,.3g} GB" in row.figure


def test_the_disk_of_a_small_corpus_is_measured(write_corpus, task, monkeypatch, tmp_path):
    source = CorpusSource(write_corpus(ROMANIAN * 50))
    context = valid_run.context(**task(source))
    row = run_check("check", corpus_size.copies, context)
    size = (tmp_path / "train-0.jsonl").stat().st_size
    assert row.verdict == OK
    assert (row.numbers["copy"], row.numbers["kept"]) == (size, size)
    ids = len(context.require_vocabulary().encode(ROMANIAN[0]))
    assert row.numbers["cache"] == pytest.approx(3 * 2000 * ids, rel=0.01)
    usage = shutil.disk_usage(tmp_path)._replace(free=size - 1)
    monkeypatch.setattr(corpus_size.shutil, "disk_usage", lambda _: usage)
    row = run_check("check", corpus_size.copies, context)
    assert row.verdict == FAILS
    assert "TMPDIR" in row.to_set


def test_what_is_unknown_is_said(tmp_path, task):
    (tmp_path / "train.csv").write_text("text\nAna are mere.\n")
    source = CorpusSource(files={"train": str(tmp_path / "train.csv")})
    row = run_check("check", corpus_size.copies, valid_run.context(**task(source)))
    assert "an unknown size, since the number of tokens in compressed" in row.figure
    private = task(CorpusSource("user/private"))
    row = run_check("check", corpus_size.copies, valid_run.context(offline=True, **private))
    assert (row.verdict, "--offline is set" in row.figure) == (NOT_CHECKED, True)
