"""The corpus is read and measured; what is wrong with it, or with its vocabulary, is found."""

import dataclasses
import json

import pytest
import seqio

from fakes import valid_run
from preflight import reachability
from preflight.checks import corpus
from preflight.checks import vocabulary as vocabularies
from preflight.results import FAILS, NOT_CHECKED, OK, WARNING, NotChecked, judge
from preflight.run_context import is_local
from tasks import corpora, pairs
from tasks.rows import Rows
from tasks.sources import CorpusSource
from vocabulary.sentencepiece_model import read_model, write_model

MODEL = "data/ro_mini/ro_mini.model"
ALL = (
    *(corpus.records_read, corpus.shards, corpus.fill, corpus.example),
    *(vocabularies.vocabulary, vocabularies.words),
)


@pytest.fixture(scope="module")
def sound():
    return valid_run.subject()


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_without_fault_all_is_well(check, sound):
    assert judge("check", check, sound).verdict == OK


def test_an_example_is_shown_with_its_spans(sound):
    text = corpus.example(sound).text
    inputs, targets = text.splitlines()
    assert inputs.startswith("inputs ")
    assert "<0>" in inputs
    assert targets.split()[1] == "<0>"


def test_tokens_a_word_are_counted(sound):
    row = vocabularies.words(sound)
    assert 1 < row.numbers["tokens_a_word"] < 2.5
    assert row.numbers["unknown"] < 0.001


def folder(tmp_path, texts, column="text", files=1, ending="jsonl"):
    """A corpus of these texts, all of them in each split."""
    for split in ("train", "validation"):
        for i in range(files):
            lines = [json.dumps({column: text}) + "\n" for text in texts]
            (tmp_path / f"{split}-{i}.{ending}").write_text("".join(lines))
    return str(tmp_path)


@pytest.fixture
def task():
    """Adds a task over a source, for this test alone."""
    added = []

    def add(source, vocabulary=MODEL, **settings):
        name = f"planted_{len(added)}"
        corpora.add(name, source, vocabulary, **settings)
        added.append(name)
        return {
            "train_dataset_cfg": dataclasses.replace(valid_run.TRAIN, mixture_or_task_name=name),
            "train_eval_dataset_cfg": None,
        }

    yield add
    for name in added:
        seqio.TaskRegistry.remove(name)


ROMANIAN = ["Ana are mere și pere, dar nu are nuci."] * 40


def test_a_column_that_is_not_there_is_found(tmp_path, task):
    source = CorpusSource(folder(tmp_path, ROMANIAN, "body"))
    row = judge("check", corpus.records_read, valid_run.subject(**task(source)))
    assert row.verdict == FAILS
    assert "body" in row.figure


def test_a_corpus_that_is_not_there_is_found(tmp_path, task):
    source = CorpusSource(str(tmp_path / "nowhere"))
    row = judge("check", corpus.records_read, valid_run.subject(**task(source)))
    assert row.verdict == FAILS
    assert "nowhere" in row.figure


def test_offline_nothing_elsewhere_is_asked_for(task):
    subject = valid_run.subject(offline=True, **task(CorpusSource("user/private")))
    for check in (corpus.records_read, corpus.shards, corpus.example, vocabularies.words):
        row = judge("check", check, subject)
        assert (row.verdict, "--offline" in row.figure) == (NOT_CHECKED, True)
    # What the objective alone tells is told.
    assert judge("check", corpus.fill, subject).verdict == OK


@pytest.mark.parametrize(
    "said", ["cannot be reached (timed out)", "is on the hub, but HF_HUB_OFFLINE is set"]
)
def test_a_network_that_does_not_answer_is_no_fault_of_the_run(said, task, monkeypatch):
    asked = []

    def refuse(*_, **__):
        asked.append(said)
        raise ValueError(said)

    monkeypatch.setattr(CorpusSource, "peek", refuse)
    monkeypatch.setattr(CorpusSource, "list_files", refuse)
    subject = valid_run.subject(**task(CorpusSource("user/private")))
    for check in (corpus.records_read, corpus.shards, corpus.example, corpus.epochs):
        assert judge("check", check, subject).verdict == NOT_CHECKED
    assert len(asked) == 1  # and is waited for once


def test_where_a_corpus_lies(tmp_path):
    assert is_local(CorpusSource(str(tmp_path)))
    assert is_local(CorpusSource(files={"train": ["a*.jsonl", "b.txt"]}))
    assert not is_local(CorpusSource(files={"train": ["a.jsonl", "gs://bucket/b.jsonl"]}))
    assert not is_local(CorpusSource("user/name"))
    assert not is_local(CorpusSource("https://example.org/corpus"))


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
    row = judge("check", corpus.fill, valid_run.subject(train_dataset_cfg=data))
    assert row.verdict == verdict
    assert said in f"{row.figure} {row.to_set}"


def test_fill_is_measured_where_the_objective_does_not_fix_it():
    data = dataclasses.replace(valid_run.TRAIN, mixture_or_task_name="ro_mini_prefix_lm")
    lengths = {"inputs": 64, "targets": 64}
    data = dataclasses.replace(data, task_feature_lengths=lengths, pack=False)
    row = judge("check", corpus.fill, valid_run.subject(train_dataset_cfg=data))
    assert row.verdict == WARNING
    # Cut at a random place, a run of 64 leaves each side half empty.
    assert 0.3 < row.numbers["encoder"] < 0.7
    assert row.numbers["encoder"] + row.numbers["decoder"] == pytest.approx(65 / 64, rel=0.05)
    assert "pack = True" in row.to_set


def test_what_is_measured_is_what_the_objective_says(sound):
    row = corpus.fill(sound)
    assert corpus.measured(sound) == pytest.approx(
        (row.numbers["encoder"], row.numbers["decoder"]), abs=0.03
    )


def test_files_that_cannot_be_cut_are_too_few_for_many_shards(tmp_path, task):
    few = CorpusSource(files={"train": str(tmp_path / "train*"), "validation": "none"})
    (tmp_path / "train.csv").write_text("text\nAna are mere.\n")
    row = judge("check", corpus.shards, valid_run.subject(tpu="v4-64", **task(few)))
    assert row.verdict == WARNING
    assert "1 file for 8 shards on 8 hosts" in row.figure


def test_epochs_are_counted(tmp_path, task):
    source = CorpusSource(folder(tmp_path, ROMANIAN * 50, files=2))
    subject = valid_run.subject(**task(source), total_steps=10)
    row = judge("check", corpus.epochs, subject)
    own = subject.require_vocabulary()
    tokens = 2 * 2000 * len(own.encode(ROMANIAN[0]))
    assert row.numbers["tokens"] == pytest.approx(tokens, rel=0.01)
    run = subject.objective.lengths(128).tokens
    assert row.numbers["epochs"] == pytest.approx(10 * 16 * run / tokens, rel=0.01)
    assert row.verdict == OK
    longer = valid_run.subject(**task(source), total_steps=10_000)
    assert judge("check", corpus.epochs, longer).verdict == WARNING


def test_a_size_that_is_not_known_is_not_guessed(tmp_path, task):
    (tmp_path / "train.csv").write_text("text\nAna are mere.\n")
    source = CorpusSource(files={"train": str(tmp_path / "train.csv")})
    row = judge("check", corpus.epochs, valid_run.subject(**task(source)))
    assert row.verdict == NOT_CHECKED


def test_a_vocabulary_of_another_language_is_noticed(tmp_path, task):
    foreign = CorpusSource(folder(tmp_path, ["Ἄνδρα μοι ἔννεπε Μοῦσα πολύτροπον ὃς μάλα"] * 20))
    row = judge("check", vocabularies.words, valid_run.subject(**task(foreign)))
    assert row.verdict == WARNING
    assert "VOCABULARY_FILE" in row.to_set


# --- the vocabulary itself


def vocabulary_row(path, vocab_size=2048, offline=False, **task_changes):
    vocabulary = seqio.SentencePieceVocabulary(str(path), 0)
    changes = {"model": valid_run.model(vocabulary, vocab_size=vocab_size), **task_changes}
    return judge("check", vocabularies.vocabulary, valid_run.subject(offline=offline, **changes))


def test_a_vocabulary_without_sentinels_at_its_end_is_found(tmp_path, task):
    model = read_model(MODEL)
    model.pieces.add(piece="▁extra", score=-20.0)
    write_model(model, str(tmp_path / "spoiled.model"))
    settings = task(CorpusSource(folder(tmp_path, ROMANIAN)), str(tmp_path / "spoiled.model"))
    row = vocabulary_row(tmp_path / "spoiled.model", 2176, **settings)
    assert row.verdict == FAILS
    assert "sentinels last" in row.figure


def test_a_model_with_too_few_or_too_many_rows_is_found():
    assert vocabulary_row(MODEL, 1024).verdict == FAILS
    row = vocabulary_row(MODEL, 4096)
    assert row.verdict == WARNING
    assert "never used" in row.figure


def test_a_vocabulary_that_is_missing_is_the_fault_of_one_check(tmp_path, task):
    source = CorpusSource(folder(tmp_path, ROMANIAN))
    subject = valid_run.subject(**task(source, str(tmp_path / "none.model")))
    assert judge("check", vocabularies.vocabulary, subject).verdict == FAILS
    for check in (vocabularies.words, corpus.example, corpus.epochs):
        row = judge("check", check, subject)
        assert (row.verdict, "none.model" in row.figure) == (NOT_CHECKED, True)


def test_task_and_model_must_share_a_vocabulary(tmp_path):
    copy = tmp_path / "copy.model"
    model = read_model(MODEL)
    model.pieces[-101].score -= 1
    write_model(model, str(copy))
    row = vocabulary_row(copy)
    assert row.verdict == FAILS
    assert "bind both to the same vocabulary" in f"{row.figure} {row.to_set}"


def test_a_vocabulary_that_is_not_there(tmp_path):
    assert vocabulary_row(tmp_path / "none.model").verdict == FAILS
    assert vocabulary_row(tmp_path / "none.model", offline=True).verdict == NOT_CHECKED
    row = vocabulary_row("gs://bucket/none.model", offline=True)
    assert (row.verdict, "--offline" in row.figure) == (NOT_CHECKED, True)


def test_bytes_need_no_file():
    data = dataclasses.replace(valid_run.TRAIN, mixture_or_task_name="ro_mini_byt5_span_corruption")
    changes = {"train_dataset_cfg": data, "train_eval_dataset_cfg": None}
    model = valid_run.model(seqio.ByteVocabulary(extra_ids=100), vocab_size=384)
    subject = valid_run.subject(model=model, **changes)
    assert judge("check", vocabularies.vocabulary, subject).verdict == OK
    assert judge("check", vocabularies.words, subject).verdict == OK


# --- places


def test_an_address_that_does_not_answer_is_not_checked(monkeypatch):
    def refuse(*_):
        raise OSError("planted")

    monkeypatch.setattr(reachability.socket, "create_connection", refuse)
    with pytest.raises(NotChecked, match="cannot be reached"):
        reachability.require("gs://bucket/run", offline=False)
    reachability.require("runs/here", offline=True)


def test_nothing_is_waited_for_for_ever():
    import threading

    with pytest.raises(NotChecked, match="has not answered within 0 s"):
        reachability.within(0.01, threading.Event().wait, "the corpus")
    with pytest.raises(KeyError):
        reachability.within(5, lambda: {}["x"], "x")


def test_pairs_are_measured_and_shown_as_the_task_makes_them(tmp_path):
    path = tmp_path / "pairs.jsonl"
    row = json.dumps({"a": "Ana are mere și pere. " * 8, "b": "Are mere."}) + "\n"
    path.write_text(row * 40)
    source = Rows(files={"train": str(path)}, columns={"inputs": "a", "targets": "b"})
    pairs.add("planted_pairs", source, MODEL, prefix="sumar: ")
    try:
        data = dataclasses.replace(valid_run.TRAIN, mixture_or_task_name="planted_pairs")
        subject = valid_run.subject(train_dataset_cfg=data, train_eval_dataset_cfg=None)
        assert [judge("check", check, subject).verdict for check in ALL[:2]] == [OK, OK]
        inputs, targets = corpus.example(subject).text.splitlines()
        assert inputs.split() == ["inputs", "sumar:", *(["Ana", "are", "mere", "și", "pere."] * 8)]
        assert targets.split() == ["targets", "Are", "mere."]
        assert 0 < min(corpus.measured(subject)) < 1
    finally:
        seqio.TaskRegistry.remove("planted_pairs")
