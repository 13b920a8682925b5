"""The figures of a sample are those of a corpus that is known exactly."""

import json

import pytest
import seqio

from fakes.refuses import refuses
from tasks import corpora, pairs, romanian, vocabularies  # noqa: F401  registers ro_mini
from tasks.corpus import excerpt
from tasks.corpus.records.documents import Column
from tasks.corpus.source import CorpusSource
from tasks.jobs import classification
from tasks.look import sample
from tasks.look.page import SHOWN, shown_documents, shown_examples
from tasks.rows import Rows

NAMES = ("look_test_text", "look_test_pairs")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def tasks(tmp_path):
    write(
        tmp_path / "train.jsonl",
        [{"text": "Ana are mere. " * 20}] * 6
        + [{"text": "un om de zăpadă ☃☃"}] * 2
        + [{"text": ""}, {"text": None}, {"text": "scurt"}],
    )
    column = Column("text", min_chars=10)
    text = CorpusSource(str(tmp_path), column=column, splits=("train",))
    corpora.add(NAMES[0], text, vocabularies.ro_mini_model)
    write(tmp_path / "pairs.jsonl", [{"a": "unu doi trei " * 9, "b": "patru"}] * 12)
    columns = {"inputs": "a", "targets": "b"}
    source = Rows(files={"train": str(tmp_path / "pairs.jsonl")}, columns=columns)
    lengths = {"inputs": 16, "targets": 8}
    pairs.add(NAMES[1], source, vocabularies.ro_mini_model, "zi: ", lengths=lengths)
    yield [seqio.TaskRegistry.get(name) for name in NAMES]
    for name in NAMES:
        seqio.TaskRegistry.remove(name)


def test_a_pretraining_task(tasks):
    found = sample.draw(tasks[0], "train", 100)
    assert (len(found.documents), found.counts["read"], len(found.overview.files)) == (8, 11, 1)
    skipped = {name: n for name, n in found.counts.items() if name.startswith("skipped_")}
    assert skipped == {"skipped_empty": 1, "skipped_null": 1, "skipped_too_short": 1}
    assert 0 < found.counts["unknown_pieces"] < 0.05 * found.counts["pieces"]
    assert found.lengths == {"inputs": 512, "targets": 114}
    assert len(shown_examples(found)) == len(found.examples)
    assert (True, "<0>") in found.spans(found.examples[0])["inputs"]
    vocabulary = tasks[0].output_features["targets"].vocabulary
    tokens = [len(vocabulary.encode(row["text"].strip())) for row in found.documents]
    words = [len(row["text"].split()) for row in found.documents]
    assert found.tokens_a_word == pytest.approx(sum(tokens) / sum(words))
    assert found.histograms["text"].longest == max(tokens)
    assert sum(n for _, n in found.histograms["text"].bins) == 8


def test_a_task_of_pairs(tasks):
    found = sample.draw(tasks[1], "train", 100)
    assert found.histograms.keys() == {"inputs", "targets"}
    assert (found.counts["cut_inputs"], found.counts["cut_targets"]) == (12, 0)
    assert found.lengths is None
    assert len(found.examples) == 12
    assert len(shown_examples(found)) == len(shown_documents(found)) == SHOWN
    first = found.spans(found.examples[0])
    assert first["inputs"][0][1].startswith("zi: unu doi")
    assert first["targets"] == [(False, "patru")]


def test_a_corpus_without_a_task(tasks):
    found = sample.draw_texts(tasks[0].source, "train")
    assert (len(found.documents), found.counts["read"]) == (8, 11)
    assert found.texts["text"] == [row["text"] for row in found.documents]
    assert (found.task, found.histograms, shown_examples(found)) == (None, {}, [])


def test_labels_of_classes_need_no_pieces_of_their_own(tmp_path):
    write(tmp_path / "train.jsonl", [{"a": "unu doi", "b": str(i % 2)} for i in range(12)])
    source = Rows(
        files={"train": str(tmp_path / "train.jsonl")},
        columns={"inputs": "a", "targets": "b"},
        labels={"targets": {"0": "遅い  ☃", "1": "☃"}},
        held_out={},
    )
    task = classification.add("look_test_classes", source, vocabularies.ro_mini_model)
    try:
        found = sample.draw(task, "train")
    finally:
        seqio.TaskRegistry.remove(task.name)
    assert found.counts["unknown_pieces"] == 0
    shown = {text for example in found.examples for _, text in found.spans(example)["targets"]}
    assert {text.partition("(for ")[2] for text in shown} == {"遅い  ☃)", "☃)"}


def test_lengths_are_those_given(tasks):
    lengths = {"inputs": 128, "targets": 29}
    sample.draw(tasks[0], "train", 100, lengths)
    found = sample.draw(tasks[0], "train", 100, lengths)
    assert found.counts["skipped_empty"] == 1  # and not both times together
    assert found.lengths == lengths
    assert len(found.examples) > 1
    with refuses() as refusal:
        sample.draw(tasks[0], "train", 100, lengths | {"targets": 9})
    assert "set it to 29" in str(refusal.value)


@pytest.mark.parametrize("lengths", [None, {"inputs": 64, "targets": 64}])
def test_weights_and_labels_of_an_encoder_are_not_shown(lengths):
    found = sample.draw(seqio.TaskRegistry.get("ro_mini_bert"), "validation", 20, lengths)
    assert found.lengths == (lengths or {"inputs": 512, "targets": 512})
    assert found.examples
    assert found.spans(found.examples[0]).keys() == {"inputs", "targets"}


def test_a_look_at_the_beginning_reads_the_first_documents(tasks):
    for task in tasks:
        found = sample.draw(task, "train", 3, spread=False)
        assert len(found.documents) == 3
        assert found.counts["read"] >= 3  # also where little is read
        assert found.documents[0] == next(excerpt.documents(task.source, "train", shuffle=False))
        assert found.examples


def test_a_pregenerated_task_is_that_which_it_was_made_from():
    task = seqio.TaskRegistry.get("ro_mini_span_corruption_i128_t29")
    found = sample.draw(task, "train", 5)
    assert (found.name, found.lengths) == (
        "ro_mini_span_corruption",
        {"inputs": 128, "targets": 29},
    )


def test_a_histogram_counts_all():
    found = sample.histogram([1, 2, 3, 4, 5, 8, 9, 100])
    assert (found.median, found.longest) == (4, 100)
    assert found.bins == ((1, 1), (2, 1), (4, 2), (8, 2), (16, 1), (32, 0), (64, 0), (128, 1))
    assert sample.histogram([7, 7]).bins == ((8, 2),)
    assert sample.histogram([0]).bins == ((1, 1),)
