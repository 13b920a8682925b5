"""Rows are skipped, counted, held out, sharded and resumed."""

import csv
import json

import pytest
import seqio
import tensorflow as tf

from fakes.refuses import refuses
from tasks.rows import Rows

PAIR = {"inputs": "article", "targets": "summary"}


def write_csv(path, rows, names=("article", "summary")):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
    return str(path)


def read(source, split="train", **settings):
    dataset = source.get_dataset(split, shuffle=False, **settings)
    return [{k: v.decode() for k, v in row.items()} for row in dataset.as_numpy_iterator()]


def shares(source, n, split="train"):
    return [read(source, split, shard_info=seqio.ShardInfo(i, n)) for i in range(n)]


def counts(source):
    found = source.record_counts()
    return {name: n for name, n in found.items() if n and name != "epochs"}


@pytest.fixture
def many(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"article": f"text {i}", "summary": f"short {i}"} for i in range(400)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def test_columns_become_features_and_bad_rows_are_counted(tmp_path):
    rows = [("un text", "scurt"), ("", "gol"), ("gol", " "), ("lipsă",), ("trei", "de", "prisos")]
    path = write_csv(tmp_path / "a.csv", [*rows, ("cu\nrânduri, „și” virgule", "da")])
    source = Rows(files={"train": path}, columns=PAIR, held_out={})
    assert read(source) == [
        {"inputs": "un text", "targets": "scurt"},
        {"inputs": "cu\nrânduri, „și” virgule", "targets": "da"},
    ]
    skipped = {"skipped_empty": 2, "skipped_null": 1, "skipped_malformed": 1}
    assert counts(source) == {"read": 6, **skipped}


def test_labels_get_names_and_unknown_ones_are_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"t": "a", "y": 0}, {"t": "b", "y": 1}, {"t": "c", "y": 2}, {"t": "d", "y": None}]
    rows += [{"t": "e", "y": " "}]
    path.write_text("\n".join(map(json.dumps, rows)))
    labels = {"targets": {"0": "nu", "1": "da"}}
    source = Rows(
        files={"train": str(path)},
        columns={"inputs": "t", "targets": "y"},
        labels=labels,
        held_out={},
    )
    assert [row["targets"] for row in read(source)] == ["nu", "da"]
    assert counts(source) == {
        "read": 5,
        "skipped_unknown_label": 1,
        "skipped_null": 1,
        "skipped_empty": 1,
    }


def test_a_column_is_cleaned_before_it_is_used(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("x<y", " cur "), ("a", "GOL")])
    clean = {"summary": lambda text: text.replace("GOL", "").upper()}
    columns = {"inputs": "{article}: {summary}", "targets": "article"}
    source = Rows(files={"train": path}, columns=columns, clean=clean, held_out={})
    assert [row["inputs"] for row in read(source)] == ["x<y:  CUR", "a:"]


def test_hosts_share_rows_each_once_and_settings_without_meaning_are_refused(many):
    parts = shares(Rows(files={"train": many}, columns=PAIR, held_out={}), 3)
    found = [row["inputs"] for part in parts for row in part]
    assert sorted(found) == sorted(f"text {i}" for i in range(400))
    assert all(parts)
    for setting, wrong in (
        ("labels", {"classes": {}}),
        ("held_out", {"validation": 0}),
        ("held_out", {"validation": 0.5, "test": 0.5}),
        ("max_examples", 0),
        ("columns", {}),
    ):
        with refuses(setting):
            Rows(files={"train": many}, **{"columns": PAIR, setting: wrong})


def test_a_few_examples_are_the_same_for_all_shards_and_epochs(many):
    files = {"train": many, "validation": many}
    source = Rows(files=files, columns=PAIR, max_examples=10)
    wanted = {row["inputs"] for row in read(source)}
    assert len(wanted) == 10
    assert max(int(text.split()[1]) for text in wanted) > 200
    for n in (1, 3):
        parts = shares(source, n)
        assert {row["inputs"] for part in parts for row in part} == wanted
        assert all(parts)
    drawn = source.get_dataset("train", shuffle=True, seed=1).repeat(2).as_numpy_iterator()
    order = [row["inputs"].decode() for row in drawn]
    assert set(order) == wanted
    assert len(order) == 20
    assert order[:10] != order[10:]
    assert len(read(source, "validation")) == 400


@pytest.mark.parametrize("held_out", [{}, {"validation": 0.5}])
def test_a_few_examples_of_a_sorted_split_have_each_class_in_its_share(tmp_path, held_out):
    rows = [{"article": f"text {i}", "summary": "01"[i >= 900]} for i in range(1200)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = {"train": str(tmp_path / "rows.jsonl")}
    labels = {"targets": {"0": "no", "1": "yes"}}
    every = Rows(files=files, columns=PAIR, labels=labels, held_out=held_out)
    few = Rows(files=files, columns=PAIR, labels=labels, held_out=held_out, max_examples=20)
    both = [[row["targets"] for row in read(source)] for source in (every, few)]
    of_all, of_few = (labels.count("yes") / len(labels) for labels in both)
    assert len(both[1]) == 20
    assert abs(of_all - of_few) <= 1 / 20
    trained = {row["inputs"] for row in read(every)}
    assert {row["inputs"] for row in read(few)} <= trained
    assert few.identity("train") != every.identity("train")


def test_parallel_files_are_read_line_by_line(tmp_path):
    (tmp_path / "a.ro").write_bytes("unu\n\ntrei\nr\xe3u\ncinci\n".encode("latin-1"))
    (tmp_path / "a.en").write_text("one\ntwo\nthree\nfour\nfive\n")
    parallel = {"train": (str(tmp_path / "a.ro"), str(tmp_path / "a.en"))}
    source = Rows(parallel=parallel, held_out={})
    wanted = [("unu", "one"), ("trei", "three"), ("cinci", "five")]
    assert [tuple(row.values()) for row in read(source)] == wanted
    assert counts(source) == {"read": 5, "skipped_empty": 1, "skipped_not_UTF-8": 1}
    parts = [
        row["inputs"] for part in shares(Rows(parallel=parallel, held_out={}), 2) for row in part
    ]
    assert sorted(parts) == ["cinci", "trei", "unu"]
    assert Rows(parallel=parallel, held_out={}).peek("train", 1) == ["unu\none"]


def test_the_columns_of_plain_text_are_numbers(tmp_path):
    (tmp_path / "train.txt").write_text("un om\ta man\n\nsingur\no apă\ta water\n")
    source = Rows(
        files={"train": str(tmp_path / "train.txt")}, columns={"inputs": "2", "targets": "1"}
    )
    rows = [*source.get_dataset("train", shuffle=False).as_numpy_iterator()]
    assert [(row["inputs"].decode(), row["targets"].decode()) for row in rows] == [
        ("a man", "un om"),
        ("a water", "o apă"),
    ]


def test_files_may_be_a_function_called_when_reading_begins(many):
    asked = []

    def my_files():
        asked.append(1)
        return {"train": many}

    source = Rows(files=my_files, columns=PAIR, held_out={"validation": 0.1})
    assert not asked
    assert set(source.splits) == {"train", "validation"}
    assert len(read(source)) + len(read(source, "validation")) == 400


def test_each_record_counts_in_its_split_each_time_it_is_read(tmp_path):
    path = tmp_path / "a.csv"
    bad = [b"r\xe3u,da\n"] * 2 + [b",da\n"] + [b"x,y,z\n"]
    good = [f"text {i},da\n".encode() for i in range(96)]
    path.write_bytes(b"article,summary\n" + b"".join([*bad, *good]))
    source = Rows(files={"train": str(path)}, columns=PAIR, held_out={"validation": 0.1})

    def read_of(split):
        counts = source.record_counts(split)
        return {k: n for k, n in counts.items() if n and k != "epochs"}

    assert read_of("train") == {}
    for i in range(4):  # the shards of a run, some epochs of each
        info = seqio.ShardInfo(i, 4)
        repeated = source.get_dataset("train", seed=0, shard_info=info).repeat(i + 1)
        list(repeated.as_numpy_iterator())
    assert read_of("train")["read"] == 250
    assert read_of("validation") == {}
    before = read_of("train")
    read(source, "validation")
    assert read_of("validation") == {}  # the texts of skipped records are in no split held out
    assert read_of("train") == before
    source = Rows(files={"validation": str(path)}, columns=PAIR)
    read(source, "validation")
    skipped = {"skipped_not_UTF-8": 2, "skipped_empty": 1, "skipped_malformed": 1}
    assert read_of("validation") == {"read": 100, **skipped}


def test_missing_files_are_reported_with_the_setting():
    def my_files():
        return {"train": "/nowhere/train.csv"}

    source = Rows(files=my_files, columns=PAIR)
    with refuses("/nowhere/train.csv") as refusal:
        source.peek()
    assert "test_rows.my_files" in refusal.value.to_set


@pytest.mark.parametrize("settings", [{}, {"max_examples": 60}, {"held_out": {"test": 0.5}}])
def test_reading_resumes_exactly(many, tmp_path, settings):
    source = Rows(files={"train": many}, columns=PAIR, **settings)
    iterator = iter(source.get_dataset("train", shuffle=True, seed=0).repeat(2))
    for _ in range(25):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "position"))
    rest = [row["inputs"].numpy() for row in iterator]
    assert rest
    other = iter(source.get_dataset("train", shuffle=True, seed=0).repeat(2))
    tf.train.Checkpoint(iterator=other).read(path)
    assert [row["inputs"].numpy() for row in other] == rest
