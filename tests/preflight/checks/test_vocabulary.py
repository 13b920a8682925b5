"""Faults of the vocabulary are found: its sentinels and size, and that task and model share it."""

import dataclasses
import functools

import pytest
import seqio

from common.tables import FAILS, NOT_CHECKED, OK, WARNING, NotChecked, run_check
from convert.formats.sentencepiece_model import read_model, write_model
from fakes import valid_run
from preflight.checks import data, vocabulary
from tasks.corpus.source import CorpusSource

MODEL = "data/ro_mini/ro_mini.model"


def test_a_valid_run_passes():
    assert run_check("check", vocabulary.vocabulary, valid_run.context()).verdict == OK


ROMANIAN = ["Ana are mere și pere, dar nu are nuci."] * 40


def vocabulary_row(path, vocab_size=2048, offline=False, **task_changes):
    own = seqio.SentencePieceVocabulary(str(path), 0)
    changes = {"model": valid_run.model(own, vocab_size=vocab_size), **task_changes}
    return run_check("check", vocabulary.vocabulary, valid_run.context(offline=offline, **changes))


def test_a_vocabulary_without_sentinels_at_its_end_is_found(tmp_path, write_corpus, task):
    model = read_model(MODEL)
    model.pieces.add(piece="▁extra", score=-20.0)
    write_model(model, str(tmp_path / "spoiled.model"))
    settings = task(CorpusSource(write_corpus(ROMANIAN)), str(tmp_path / "spoiled.model"))
    row = vocabulary_row(tmp_path / "spoiled.model", 2176, **settings)
    assert row.verdict == FAILS
    assert "sentinels last" in row.figure


def test_a_model_with_too_few_or_too_many_rows_is_found():
    assert vocabulary_row(MODEL, 1024).verdict == FAILS
    row = vocabulary_row(MODEL, 4096)
    assert row.verdict == WARNING
    assert "never used" in row.figure


def test_a_missing_vocabulary_is_a_fault_of_one_check(tmp_path, write_corpus, task):
    source = CorpusSource(write_corpus(ROMANIAN))
    context = valid_run.context(**task(source, str(tmp_path / "none.model")))
    assert run_check("check", vocabulary.vocabulary, context).verdict == FAILS
    pieces, example = (functools.partial(data.sample_line, name=n) for n in ("pieces", "example"))
    for check in (pieces, example, data.epochs):
        row = run_check("check", check, context)
        assert (row.verdict, "none.model" in row.figure) == (NOT_CHECKED, True)


def test_task_and_model_must_share_a_vocabulary(tmp_path):
    copy = tmp_path / "copy.model"
    model = read_model(MODEL)
    model.pieces[-101].score -= 1
    write_model(model, str(copy))
    row = vocabulary_row(copy)
    assert row.verdict == FAILS
    assert "bind both to the same vocabulary" in f"{row.figure} {row.to_set}"


def test_a_missing_vocabulary_fails_unless_it_may_be_on_another_machine(tmp_path):
    assert vocabulary_row(tmp_path / "none.model").verdict == FAILS
    assert vocabulary_row(tmp_path / "none.model", offline=True).verdict == NOT_CHECKED
    row = vocabulary_row("gs://bucket/none.model", offline=True)
    assert (row.verdict, "--offline" in row.figure) == (NOT_CHECKED, True)


@pytest.mark.parametrize("folder", ["gs://bucket/bert", "none/bert"])
def test_a_tokenizer_is_not_looked_for_elsewhere_offline(folder, write_corpus, task):
    settings = task(CorpusSource(write_corpus(ROMANIAN)), folder, objective="masked_lm")
    changes = valid_run.encoder(settings["train_dataset_cfg"].mixture_or_task_name)
    context = valid_run.context(offline=True, **changes)
    for check in (vocabulary.vocabulary, vocabulary.publishing):
        row = run_check("check", check, context)
        assert (row.verdict, f"{folder}/tokenizer.json" in row.figure) == (NOT_CHECKED, True)
    with pytest.raises(NotChecked):
        context.require_vocabulary()


def test_the_file_of_a_tokenizer_is_named():
    row = run_check("check", vocabulary.vocabulary, valid_run.context(**valid_run.encoder()))
    assert row.verdict == OK
    assert row.figure.endswith("data/ro_mini/wordpiece/tokenizer.json, 2,048 ids of 2,048 rows")


def test_bytes_need_no_file():
    cfg = dataclasses.replace(valid_run.TRAIN, mixture_or_task_name="ro_mini_byt5_span_corruption")
    changes = {"train_dataset_cfg": cfg, "train_eval_dataset_cfg": None}
    model = valid_run.model(seqio.ByteVocabulary(extra_ids=100), vocab_size=384)
    context = valid_run.context(model=model, **changes)
    assert run_check("check", vocabulary.vocabulary, context).verdict == OK
    assert run_check("check", data.sample_line, context, "unknown pieces").verdict == OK
