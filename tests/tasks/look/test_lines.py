"""What is wrong with a corpus is a line of the table, and what is right raises no alarm."""

import dataclasses
import gzip
import json
import random
import unicodedata

import numpy as np
import pytest
import seqio

from common.tables import FAILS, OK, WARNING
from fakes import small_vocabulary, tokenizer_files
from tasks import corpora, pairs, vocabularies
from tasks.corpus.records.documents import Column
from tasks.corpus.source import CorpusSource
from tasks.look import lines, sample
from tasks.romanian import RO_MINI
from tasks.rows import Rows

NAME = "table_test"
GOOD = [text.replace("\n", " ") for text in RO_MINI.peek("train", 60)]
LENGTHS = {"inputs": 64, "targets": 17}
ENCODER_LENGTHS = {"inputs": 64, "targets": 64}


@pytest.fixture
def rows(tmp_path):
    """Return a function from a source to the lines of its table, by name."""

    def look(source, objective="span_corruption", model=vocabularies.ro_mini_model):
        if isinstance(source, Rows):
            pairs.add(NAME, source, vocabularies.ro_mini_model)
        else:
            corpora.add(NAME, source, model, objective)
        try:
            lengths = LENGTHS if objective == "span_corruption" else ENCODER_LENGTHS
            found = seqio.TaskRegistry.get(NAME).look("train", lengths, pack=True)
        finally:
            seqio.TaskRegistry.remove(NAME)
        assert [row.check for row in found] == [*lines.NAMES]
        return {row.check: row for row in found}

    return look


def write(folder, texts, name="train.jsonl"):
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return CorpusSource(str(folder), splits=("train",))


def test_a_sound_corpus_raises_no_alarm(rows):
    found = rows(RO_MINI)
    assert {row.verdict for row in found.values()} == {OK}
    assert 60_000 < found["pieces"].numbers["corpus_tokens"] < 80_000  # of 69,396
    assert found["pieces"].numbers["row_tokens"] == pytest.approx(71, abs=2)
    assert "<0>" in found["example"].text


@pytest.mark.parametrize(
    ("texts", "wrong", "said"),
    [
        (GOOD + [None] * 6, {"records"}, "6 null"),
        (GOOD + [""] * 30, {"records"}, "30 empty"),
        ([*GOOD, 7], {"records"}, "1 not text"),
        ([f"{text} \0" for text in GOOD], {"characters"}, "NUL"),
        (GOOD * 2, {"repetition"}, "duplicates"),
        (["Ἄνδρα μοι ἔννεπε, Μοῦσα " + t for t in GOOD], {"unknown pieces", "repetition"}, "Ἄ"),
        (["слово за словом, " * 9 + t for t in GOOD], {"scripts", "unknown pieces"}, "Cyrillic"),
        ([" ".join("qwxyk" for _ in t.split()) for t in GOOD], {"pieces", "repetition"}, "split"),
    ],
)
def test_what_is_wrong_is_a_warning_with_an_example(texts, wrong, said, rows, tmp_path):
    found = rows(write(tmp_path, texts))
    warned = {name: row for name, row in found.items() if row.verdict == WARNING}
    assert wrong <= warned.keys() <= wrong | {"repetition"}
    assert any(said in row.figure for row in warned.values())
    assert all(row.to_set for row in warned.values())


def language(first, between):
    """Return documents of 200 words of the letters that follow `first`, as a language has them."""
    chance = random.Random(first)
    letters = [c for i in range(60) if unicodedata.category(c := chr(ord(first) + i)) in "LoLl"]
    words = ["".join(chance.choices(letters, k=chance.randint(2, 7))) for _ in range(200)]
    often = [1 / (n + 1) for n in range(200)]
    sentence = lambda: between.join(chance.choices(words, often, k=chance.randint(4, 40))) + "."
    return [" ".join(sentence() for _ in range(chance.randint(1, 6))) for _ in range(200)]


@pytest.mark.parametrize(
    ("kind", "first", "between"),
    [
        *[
            ("unigram", "а", " "),
            ("unigram", "ا", " "),
            ("unigram", "ก", ""),
            ("unigram", "一", ""),
        ],
        *[("byte_bpe", "अ", " "), ("byte_bpe", "ა", " ")],
    ],
)
def test_a_vocabulary_made_of_a_corpus_raises_no_alarm(kind, first, between, rows, tmp_path):
    texts, objective = language(first, between), "span_corruption"
    if kind == "unigram":
        settings = {"vocab_size": 1000, "hard_vocab_limit": False}
        model = small_vocabulary.train(tmp_path, texts=texts, **settings)
    else:
        model, objective = tokenizer_files.byte_bpe(tmp_path, texts=texts, size=900), "masked_lm"
    found = rows(write(tmp_path, texts), objective, model=model)
    assert {name: row.figure for name, row in found.items() if row.verdict != OK} == {}
    if kind == "unigram":  # whose pieces, unlike bytes, are of one script
        other = rows(write(tmp_path, GOOD), objective, model=model)
        assert other["scripts"].verdict == WARNING
        assert all(said in other["scripts"].figure for said in ("Latin", "“"))


SENTENCES = [text.partition(".")[0][:40] + "." for text in GOOD]


@pytest.mark.parametrize(
    ("documents", "verdict", "share"),
    [
        (SENTENCES, WARNING, "random 100.0%, follows 0.0%"),
        ([" ".join(SENTENCES)], WARNING, "follows 100.0%, random 0.0%"),
        ([" ".join(SENTENCES[i : i + 20]) for i in range(0, 60, 4)], OK, "random"),
    ],
)
def test_pairs_of_sentences_have_both_labels_or_a_warning(
    documents, verdict, share, rows, tmp_path
):
    model = tokenizer_files.byte_bpe(tmp_path, texts=GOOD, size=900)
    row = rows(write(tmp_path, documents), "bert", model=model)["labels"]
    assert row.verdict == verdict
    assert share in row.figure
    assert bool(row.to_set) == (verdict == WARNING)


def test_examples_without_a_target_are_a_warning(tmp_path):
    model = tokenizer_files.byte_bpe(tmp_path, texts=GOOD, size=900)
    for objective, empty in (("masked_lm", {"loss_weights": np.zeros(9)}), ("prefix_lm", {})):
        vocabulary = model if objective == "masked_lm" else vocabularies.ro_mini_model
        corpora.add(NAME, write(tmp_path, GOOD), vocabulary, objective)
        try:
            drawn = sample.draw(seqio.TaskRegistry.get(NAME), "train", lengths=ENCODER_LENGTHS)
        finally:
            seqio.TaskRegistry.remove(NAME)
        assert lines.targets(drawn).verdict == OK
        bare = {"targets": np.array([drawn.vocabulary.eos_id])} | empty
        examples = [{**row, **bare} for row in drawn.examples[:12]] + [*drawn.examples[:88]]
        row = lines.targets(dataclasses.replace(drawn, examples=examples))
        assert row.verdict == WARNING
        assert f"{12 / len(examples):.1%}" in row.figure


def test_labels_that_are_no_class_are_named_with_their_counts(rows, tmp_path):
    labels = ["da"] * 1500 + ["nu"] * 1500 + ["poate"] * 7 + ["n/a"] * 3
    lines = [f"{GOOD[i % len(GOOD)][:60]} {i}\t{label}" for i, label in enumerate(labels)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines, ""]))
    columns = {"inputs": "text", "targets": "label"}
    settings = {"columns": columns, "labels": {"targets": {"da": "da", "nu": "nu"}}}
    row = rows(Rows(str(tmp_path), splits=("train",), **settings))["records"]
    assert row.verdict == WARNING
    assert row.to_set
    assert "'poate' × 7, 'n/a' × 3" in row.figure


def test_copies_that_a_column_asks_for_are_no_duplicates(rows, tmp_path):
    write(tmp_path, GOOD)
    source = CorpusSource(str(tmp_path), column=Column("text", file_copies={"train*": 2}))
    found = rows(source)
    assert found["repetition"].verdict == OK
    assert "extra copies" in found["records"].figure


def test_formats_are_counted_and_mixed_ones_named(rows, tmp_path):
    write(tmp_path, GOOD, "train-1.jsonl")
    (tmp_path / "train-2.jsonl.gz").write_bytes(
        gzip.compress((tmp_path / "train-1.jsonl").read_bytes())
    )
    (tmp_path / "train-3.csv").write_text("text\n" + "\n".join(f'"{text}"' for text in GOOD))
    source = CorpusSource(files={"train": str(tmp_path / "train*")})
    row = rows(source)["files"]
    assert row.verdict == WARNING
    for kind in ("3 files", "1 jsonl", "1 jsonl gz", "1 csv"):
        assert kind in row.figure


def test_lines_that_may_be_no_documents_are_asked_about(rows, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(f"{line}\nși alta\n" for line in GOOD[:20]))
    row = rows(CorpusSource(str(tmp_path)))["files"]
    assert row.verdict == WARNING
    assert "40 documents, a document a line; " in row.figure
    assert "'paragraphs'" in row.to_set


def test_empty_lines_of_plain_text_are_no_fault(rows, tmp_path):
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress("\n\n".join(GOOD).encode()))
    row = rows(CorpusSource(str(tmp_path), splits=("train",)))["records"]
    assert (row.verdict, "59 empty" in row.figure) == (OK, True)


def pairs_of(folder, unknown):
    """Return 200 pairs, of which so many have targets with a letter that is no piece."""
    lines = [{"a": GOOD[i % 60] + f" {i}", "b": f"Da {i}"} for i in range(200)]
    lines[:unknown] = [{**line, "b": "Da ☃"} for line in lines[:unknown]]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {"train": str(folder / "pairs.jsonl")}
    return Rows(files=files, columns={"inputs": "a", "targets": "b"}, held_out={})


@pytest.mark.parametrize(("unknown", "verdict"), [(0, OK), (2, OK), (3, FAILS)])
def test_targets_that_cannot_be_written_fail(unknown, verdict, rows, tmp_path):
    row = rows(pairs_of(tmp_path, unknown))["targets"]
    assert row.verdict == verdict
    assert ("☃ U+2603" in row.figure) == bool(unknown)
    assert ("all" if not unknown else f"{unknown / 200:.1%}") + " of 200 targets" in row.figure
    # A checkpoint has its own vocabulary, so another one alone would not help.
    assert ("vocabulary.extend" in row.to_set) == (verdict == FAILS)


def test_a_setting_accepts_them(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(vocabularies, "unwritable_targets", lambda: 0.02)
    assert rows(pairs_of(tmp_path, 4))["targets"].verdict == OK
    row = rows(pairs_of(tmp_path, 5))["targets"]
    assert "unwritable_targets.most above 0.025" in row.to_set


@pytest.mark.parametrize(
    "task", ["ro_mini_span_corruption", "ro_mini_bert", "ro_mini_byt5_span_corruption"]
)
def test_a_run_counts_what_the_look_has_counted(task):
    task = seqio.TaskRegistry.get(task)
    found = sample.draw(task, "train", 10_000)
    source = task.source
    source.reset_counter()
    lengths = {"inputs": 64, "targets": 64}
    dataset = task.get_dataset(lengths, "train", shuffle=True, num_epochs=1, seed=0)
    assert sum(1 for _ in dataset)
    counted = source.record_counts("train")
    names = ["read", "text_bytes", "replaced_characters", "pieces", "unknown_pieces"]
    if "bert" in task.name:  # whose sentences are encoded one by one
        names.remove("pieces")
        assert counted["pieces"] == pytest.approx(found.counts["pieces"], rel=0.01)
    assert {n: counted[n] for n in names} == {n: found.counts[n] for n in names}
    assert len(found.documents) == counted["read"] > 100
