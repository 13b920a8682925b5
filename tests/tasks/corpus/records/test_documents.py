"""Records become documents or are counted by reason."""

import itertools
import json

import pytest
import tensorflow as tf

from tasks.corpus import source as sources
from tasks.corpus.records.counts import count_codes
from tasks.corpus.records.documents import Column, Columns, screen
from tasks.corpus.source import CorpusSource

RECORDS = [
    {"title": "Unu", "text": "Ana are mere.", "language": "ro"},
    {"title": "Doi", "text": "Ana", "language": "ro"},
    {"title": "Trei", "text": "Anna hat Äpfel.", "language": "de"},
    {"title": "Patru", "text": "Fără limbă aici."},
    {"title": "Cinci", "text": "Ana are mere.", "language": "ro"},
    {"title": "Șase", "text": "Ana are nuci. " * 9, "language": "mo"},
    {"title": None, "text": "Fără titlu este aici.", "language": "ro"},
]


def counted(records, column, max_chars=1_000):
    found = screen(records, column, max_chars)
    counts = count_codes(found.codes)
    return [b"\n".join(document).decode() for document in found.usable], {
        k: n for k, n in counts.items() if n and k != "read"
    }


def test_a_template_joins_columns_and_skips_records_without_one():
    kept, counts = counted(RECORDS, Column("{title}\n{text}"))
    assert kept[0] == "Unu\nAna are mere."
    assert len(kept) == 6
    assert counts == {"skipped_null": 1}


def test_length_is_counted_in_characters_on_both_sides():
    kept, counts = counted(RECORDS, Column("text", min_chars=13, max_chars=15))
    assert [len(text) for text in kept] == [13, 15, 13]
    assert counts == {"skipped_too_short": 1, "skipped_too_long": 3}
    assert counted(RECORDS, Column("text", max_chars=50), max_chars=14)[1] == {
        "skipped_too_long": 4
    }


@pytest.mark.parametrize(("wanted", "n"), [("ro", 4), (["ro", "mo"], 5), ("fr", 0)])
def test_other_columns_choose(wanted, n):
    column = Column("text", where={"language": wanted})
    kept, counts = counted(RECORDS, column)
    assert len(kept) == n
    assert counts == {"skipped_other_value": 7 - n}
    others = [{"text": "a", "language": value} for value in (["ro"], {"code": "ro"}, 5, None)]
    assert counted(others, column) == ([], {"skipped_other_value": 4})


def test_what_a_template_is_given_besides_texts_is_counted():
    values = ["text", 5, 2.5, ["a"], {"a": 1}, b"bytes", "last"]
    kept, counts = counted([{"a": "A", "b": v} for v in values], Column("{a} {b}"))
    assert kept == ["A text", "A 5", "A 2.5", "A last"]
    assert counts == {"kept_with_numbers": 2, "skipped_not_text": 3}
    refused = counted([{"a": 5}, {"a": "five"}], Column("{a:03d}"))
    assert refused == (["005"], {"kept_with_numbers": 1, "skipped_not_text": 1})
    both = Columns({"inputs": "{a} {b}", "targets": "a"})
    assert counted([{"a": "A", "b": v} for v in values], both)[1] == counts


def test_a_list_or_an_object_is_no_label():
    column = Columns({"inputs": "a", "targets": "b"}, {"targets": {"1": "yes"}})
    deep = json.loads("[" * 900 + "]" * 900)
    kept, counts = counted([{"a": "A", "b": b} for b in (1, "1", [1], deep)], column)
    assert (len(kept), counts) == (2, {"skipped_not_text": 2})


def test_characters_that_are_replaced_are_counted(tmp_path):
    records = [json.loads(line) for line in ('{"text": "a\\ud83d"}', '{"text": "b"}')]
    kept, counts = counted(records, Column("text"))
    assert (kept, counts) == (["a?", "b"], {"kept_with_replaced_characters": 1})
    (tmp_path / "train.txt").write_bytes(b"a\n\xff\n\nb\n")
    source = CorpusSource(str(tmp_path), documents="paragraphs", held_out={})
    assert [x["text"] for x in source.get_dataset("train", shuffle=False).as_numpy_iterator()] == [
        "a \ufffd".encode(),
        b"b",
    ]
    assert "1 kept with replaced characters" in source.counter.sentence()


SCORED = [{"text": f"text {i}", "size": size} for i, size in enumerate([1, 2, 4, 7.5, 5000, None])]
COPIES = {"size": {1: 1, 2: 2, 5: 5, 1000: 0}}


def test_a_number_decides_how_often_an_epoch_has_a_record():
    kept, counts = counted(SCORED, Column("text", copies=COPIES), 100)
    found = {text: kept.count(text) for text in kept}
    assert found == {"text 0": 1, "text 1": 2, "text 2": 2, "text 3": 5, "text 5": 1}
    assert counts == {"skipped_low_value": 1, "extra_copies": 6}


def test_copies_of_several_columns_multiply_and_below_the_first_step_there_are_none():
    both = Column("text", copies={"size": {2: 2}, "other": {0: 3}})
    assert both.fields == ("text", "size", "other")
    assert both.count_copies({"size": 2, "other": 9}) == 6
    assert both.count_copies({"size": 1.9, "other": 9}) == 0
    assert both.count_copies({"size": float("nan"), "other": "a"}) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"min_chars": 9, "max_chars": 8},
        *({"copies": {"size": steps}} for steps in ({1: -1}, {1: 1.5}, {1: True})),
        {"copies": {"size": {float("inf"): 1}}},
        {"file_copies": {"10_*": 1.5}},
    ],
)
def test_impossible_filters_are_refused_by_name(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments)).removeprefix("file_")):
        Column("text", **arguments)


@pytest.mark.parametrize("order", ["records", "parts"])
def test_an_epoch_has_all_copies_once_each_and_apart(tmp_path, order):
    rows = [json.dumps({"text": f"text {i}", "size": 1 + i % 3}) for i in range(300)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    column = Column("text", copies={"size": {1: 1, 2: 2, 3: 3}})
    source = CorpusSource(
        files={"train": str(tmp_path / "train.jsonl")}, column=column, held_out={}
    )
    dataset = source.get_dataset(seed=1, order=order)
    texts = [x["text"].decode() for x in dataset.as_numpy_iterator()]
    expected = {f"text {i}": 1 + i % 3 for i in range(300)}
    assert {text: texts.count(text) for text in texts} == expected
    adjacent = sum(a == b for a, b in itertools.pairwise(texts))
    assert adjacent < 30  # 300 if copies followed each other
    counts = source.record_counts("train")
    assert (counts["read"], counts["extra_copies"]) == (300, 300)
    assert source.identity("train")["copies"] == {"size": {"1": 1, "2": 2, "3": 3}}


@pytest.mark.parametrize("order", ["records", "parts"])
def test_the_name_of_a_file_decides_how_often_an_epoch_has_its_records(tmp_path, order):
    for quality in (5, 9, 10):
        rows = [json.dumps({"text": f"{quality} {i}"}) for i in range(100)]
        (tmp_path / f"{quality}_1.jsonl").write_text("\n".join(rows))
    column = Column("text", file_copies={"10_*": 3, "9_*": 2})
    source = CorpusSource(files={"train": str(tmp_path / "*.jsonl")}, column=column, held_out={})
    dataset = source.get_dataset(seed=1, order=order)
    texts = [x["text"].decode().split()[0] for x in dataset.as_numpy_iterator()]
    assert {text: texts.count(text) for text in texts} == {"5": 100, "9": 200, "10": 300}
    counts = source.record_counts("train")
    assert (counts["read"], counts["extra_copies"]) == (300, 300)
    assert source.identity("train")["copies"] == {"file": {"10_*": 3, "9_*": 2}}
    assert source.peek("train", 2) == ["10 0", "10 0"]


def _read(tmp_path, column, **records):
    """Return the texts of files of JSON lines, by name, and the counts of what was skipped."""
    for name, rows in records.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = CorpusSource(files={"train": f"{tmp_path}/*.jsonl"}, column=column, held_out={})
    dataset = source.get_dataset("train", shuffle=False)
    found = [x["text"].decode() for x in dataset.as_numpy_iterator()]
    counts = source.record_counts("train")
    return found, {k: n for k, n in counts.items() if n and k not in ("read", "epochs")}


@pytest.mark.parametrize("shuffle", [sources.RECORDS, sources.PARTS, None])
def test_a_record_may_lack_a_column_wherever_it_is(tmp_path, monkeypatch, shuffle):
    monkeypatch.setattr("tasks.corpus.records.formats.LOCAL_PART_BYTES", 1 << 12)
    lines = [json.dumps({"text": f"text {i}"}) for i in range(300)]
    for at, n in ((0, 99), (150, 999), (300, 999)):  # 999 are several parts
        rows = [*lines[:at], *[json.dumps({"id": 5})] * n, *lines[at:]]
        (tmp_path / "train.jsonl").write_text("\n".join(rows))
        source = CorpusSource(str(tmp_path), held_out={})
        order = {"shuffle": True, "seed": 0, "order": shuffle} if shuffle else {"shuffle": False}
        assert sum(1 for _ in source.get_dataset("train", **order).as_numpy_iterator()) == 300
        assert source.record_counts("train")["skipped_null"] == n


def test_a_file_may_lack_the_columns_of_filters_but_not_the_first(tmp_path):
    column = Column("text", where={"language": "ro"}, copies={"quality": {7: 1, 9: 2}})
    full = [{"text": "a", "language": "ro", "quality": 9}]
    found, counts = _read(tmp_path, column, a=full, b=[{"text": "b", "quality": 8}])
    assert (found, counts) == (["a", "a"], {"skipped_other_value": 1, "extra_copies": 1})
    found, counts = _read(tmp_path, column, a=full, b=[{"text": "b", "language": "ro"}])
    assert (found, counts) == (["a", "a", "b"], {"extra_copies": 1})
    for lacking, others in (("language", "quality, text"), ("quality", "language, text")):
        (first,) = full
        rows = [{key: value for key, value in first.items() if key != lacking}]
        message = rf"/a\.jsonl has no column '{lacking}', only {others}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            _read(tmp_path, column, a=rows, b=full)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"/b\.jsonl has no column 'text'"):
        _read(tmp_path, column, a=full, b=[{"language": "ro", "quality": 9}])
