"""The corpus is read and measured, and faults in it are found."""

import dataclasses
import json

import pytest
import seqio

from common.tables import FAILS, NOT_CHECKED, OK, WARNING, run_check
from fakes import valid_run
from preflight.checks import corpus, corpus_size, vocabulary
from tasks import pairs
from tasks.corpus.source import CorpusSource
from tasks.rows import Rows

MODEL = "data/ro_mini/ro_mini.model"
ALL = (corpus.first_records, corpus.shards, corpus.fill, corpus.example)


@pytest.fixture(scope="module")
def sound():
    return valid_run.context()


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_a_valid_run_passes(check, sound):
    assert run_check("check", check, sound).verdict == OK


def test_an_example_is_shown_with_its_spans(sound):
    text = corpus.example(sound).text
    inputs, targets = text.splitlines()
    assert inputs.startswith("inputs ")
    assert "<0>" in inputs
    assert targets.split()[1] == "<0>"


ROMANIAN = ["Ana are mere și pere, dar nu are nuci."] * 40


def test_a_missing_column_is_found(write_corpus, task):
    source = CorpusSource(write_corpus(ROMANIAN, "body"))
    row = run_check("check", corpus.first_records, valid_run.context(**task(source)))
    assert row.verdict == FAILS
    assert "body" in row.figure


def test_a_missing_corpus_is_found(tmp_path, task):
    source = CorpusSource(str(tmp_path / "nowhere"))
    row = run_check("check", corpus.first_records, valid_run.context(**task(source)))
    assert row.verdict == FAILS
    assert "nowhere" in row.figure


def test_offline_no_remote_corpus_is_read(task):
    context = valid_run.context(offline=True, **task(CorpusSource("user/private")))
    for check in (corpus.first_records, corpus.shards, corpus.example, vocabulary.unknown_words):
        row = run_check("check", check, context)
        assert (row.verdict, "--offline" in row.figure) == (NOT_CHECKED, True)
    # The objective alone is enough for this one.
    assert run_check("check", corpus.fill, context).verdict == OK


@pytest.mark.parametrize(
    "said", ["cannot be reached (timed out)", "is on the hub, but HF_HUB_OFFLINE is set"]
)
def test_an_unreachable_network_is_not_a_fault_of_the_run(said, task, monkeypatch):
    asked = []

    def refuse(*_, **__):
        asked.append(said)
        raise ValueError(said)

    monkeypatch.setattr(CorpusSource, "peek", refuse)
    monkeypatch.setattr(CorpusSource, "list_files", refuse)
    context = valid_run.context(**task(CorpusSource("user/private")))
    for check in (corpus.first_records, corpus.shards, corpus.example, corpus_size.epochs):
        assert run_check("check", check, context).verdict == NOT_CHECKED
    assert len(asked) == 1  # the next checks do not wait again


@pytest.mark.parametrize(
    ("lengths", "verdict", "said"),
    [
        ({"inputs": 512, "targets": 114}, OK, "decoder 100 % full"),
        ({"inputs": 512, "targets": 256}, WARNING, "decoder 44 % full: set targets to 114"),
        ({"inputs": 512, "targets": 100}, FAILS, "114"),
        ({"inputs": 512}, FAILS, "TASK_FEATURE_LENGTHS['targets']"),
    ],
)
def test_lengths_are_held_against_the_objective(lengths, verdict, said):
    data = dataclasses.replace(valid_run.TRAIN, task_feature_lengths=lengths)
    row = run_check("check", corpus.fill, valid_run.context(train_dataset_cfg=data))
    assert row.verdict == verdict
    assert said in f"{row.figure} {row.to_set}"


def test_fill_is_measured_where_the_objective_does_not_fix_it():
    data = dataclasses.replace(valid_run.TRAIN, mixture_or_task_name="ro_mini_prefix_lm")
    lengths = {"inputs": 64, "targets": 64}
    data = dataclasses.replace(data, task_feature_lengths=lengths, pack=False)
    row = run_check("check", corpus.fill, valid_run.context(train_dataset_cfg=data))
    assert row.verdict == WARNING
    # Cut at a random place, a run of 64 leaves each side half empty.
    assert 0.3 < row.numbers["encoder"] < 0.7
    assert row.numbers["encoder"] + row.numbers["decoder"] == pytest.approx(65 / 64, rel=0.05)
    assert "pack = True" in row.to_set


def test_the_measured_fill_is_the_objective_s(sound):
    row = corpus.fill(sound)
    assert corpus.measured_fill(sound) == pytest.approx(
        (row.numbers["encoder"], row.numbers["decoder"]), abs=0.03
    )


def test_files_that_cannot_be_cut_are_too_few_for_many_shards(tmp_path, task):
    few = CorpusSource(files={"train": str(tmp_path / "train*"), "validation": "none"})
    (tmp_path / "train.csv").write_text("text\n" + "Ana are mere.\n" * 8)
    row = run_check("check", corpus.shards, valid_run.context(tpu="v4-64", **task(few)))
    assert row.verdict == WARNING
    assert "1 file for 8 shards on 8 hosts" in row.figure


def test_a_corpus_of_fewer_texts_than_shards_is_found(write_corpus, task):
    source = CorpusSource(write_corpus(ROMANIAN[:3]))
    row = run_check("check", corpus.shards, valid_run.context(**task(source)))
    assert row.verdict == FAILS
    assert "has 3 usable texts, but its 8 shards need one each" in row.figure


def test_pairs_are_measured_and_shown_as_the_task_makes_them(tmp_path):
    path = tmp_path / "pairs.jsonl"
    row = json.dumps({"a": "Ana are mere și pere. " * 8, "b": "Are mere."}) + "\n"
    path.write_text(row * 40)
    source = Rows(files={"train": str(path)}, columns={"inputs": "a", "targets": "b"})
    pairs.add("temporary_pairs", source, MODEL, prefix="sumar: ")
    try:
        data = dataclasses.replace(valid_run.TRAIN, mixture_or_task_name="temporary_pairs")
        context = valid_run.context(train_dataset_cfg=data, train_eval_dataset_cfg=None)
        assert [run_check("check", check, context).verdict for check in ALL[:2]] == [OK, OK]
        inputs, targets = corpus.example(context).text.splitlines()
        assert inputs.split() == ["inputs", "sumar:", *(["Ana", "are", "mere", "și", "pere."] * 8)]
        assert targets.split() == ["targets", "Are", "mere."]
        assert 0 < min(corpus.measured_fill(context)) < 1
    finally:
        seqio.TaskRegistry.remove("temporary_pairs")


def test_rows_of_an_encoder_are_measured_and_shown():
    context = valid_run.context(**valid_run.encoder())
    row = corpus.fill(context)
    assert row.verdict == OK
    assert "rows 8" in row.figure
    assert 0.5 < row.numbers["encoder"] < 1
    shown = corpus.example(context).text
    inputs, targets = shown.splitlines()
    assert "[MASK]" in inputs
    assert "[MASK]" not in targets
    assert targets.startswith("targets  [CLS] ")
