"""A share of 'train' is held out by the documents' hashes."""

import json

import pytest
import seqio

from fakes import loopback_hub
from fakes.corpora import LINES, jsonl, write
from fakes.refuses import refuses
from tasks.corpus import held_out
from tasks.corpus.records.documents import Column, Columns
from tasks.corpus.source import PARTS, RECORDS, CorpusSource
from tasks.rows import Rows

SHARES = {"validation": 0.01}
PAIR = {"inputs": "q", "targets": "a"}


def texts(source, split, **settings):
    dataset = source.get_dataset(split, **{"shuffle": False, **settings}).as_numpy_iterator()
    return [row["text"].decode() for row in dataset]


@pytest.mark.parametrize("order", [RECORDS, PARTS])
@pytest.mark.parametrize("n", [1, 3])
def test_every_document_is_in_one_split_whatever_is_read(tmp_path, order, n):
    source = CorpusSource(str(write(tmp_path, "txt", LINES)), held_out=SHARES)
    shards = [seqio.ShardInfo(i, n) for i in range(n)]
    of = lambda split: [
        t for s in shards for t in texts(source, split, shuffle=True, shard_info=s, order=order)
    ]
    train, validation = of("train"), of("validation")
    assert sorted(train + validation) == sorted(LINES)
    assert 0 < len(validation) < 20
    again = CorpusSource(files={"train": str(tmp_path)}, held_out=SHARES)
    assert sorted(texts(again, "validation")) == sorted(validation)
    assert source.peek("validation", 3) == texts(source, "validation")[:3]
    assert not {*source.peek("train", 100)} & {*validation}


@pytest.mark.parametrize("n", [2, 3, 10, 50])
@pytest.mark.parametrize("seed", range(20))
def test_the_least_share_holds_out_one_and_never_all(n, seed):
    documents = [(f"{seed}-{i}".encode(),) for i in range(n)]
    column = Column("text")
    shares = {"validation": held_out.least_share([documents[:1], documents[1:]], column)}
    ranges = [held_out.range_of(shares, split) for split in ("train", "validation")]
    train, validation = (held_out.in_buckets(documents, buckets, column) for buckets in ranges)
    assert sorted(train + validation) == sorted(documents)
    assert train
    assert len(validation) == 1


def test_a_share_without_a_document_is_refused_with_one_that_has_some(tmp_path):
    write(tmp_path, "txt", LINES[:20])
    source = CorpusSource(str(tmp_path), held_out={"validation": 0.0001})
    assert len(texts(source, "train")) == 20
    with refuses() as refusal:
        source.peek("validation")
    least = held_out.least_share([[(line.encode(),) for line in LINES[:20]]], Column("text"))
    assert f"held_out={{'validation': {least:g}}}" in refusal.value.to_set
    assert CorpusSource(str(tmp_path), held_out={"validation": least}).peek("validation")


def test_another_host_is_told_the_splits_and_their_files(tmp_path):
    for split in ("train-0", "dev"):
        write(tmp_path, "jsonl", LINES[:30], split)
    source, other = CorpusSource(str(tmp_path)), CorpusSource("/nowhere")
    other.use_splits(json.loads(json.dumps(source.splits)))
    assert other.splits == source.splits == ("train", "validation")
    for split in source.splits:
        other.use_listing(split, json.loads(json.dumps(source.listing(split))))
        assert other.identity(split) == source.identity(split)
        assert texts(other, split) == texts(source, split)
    assert CorpusSource(str(tmp_path), held_out=SHARES).identity("train") != source.identity(
        "train"
    )


@pytest.mark.parametrize("range_of", [(100, 10_000), None])
def test_a_saved_position_has_the_same_documents_or_is_refused_with_the_line(tmp_path, range_of):
    write(tmp_path, "jsonl", LINES)
    saved = {"held_out": list(range_of)} if range_of else {}
    CorpusSource(str(tmp_path), held_out=SHARES).check_saved("train", saved)
    assert CorpusSource(str(tmp_path), held_out=SHARES).identity("train")["held_out"] == [
        100,
        10000,
    ]
    for shares in ({}, {"validation": 0.02}):
        source = CorpusSource(str(tmp_path), held_out=shares)
        if range_of is None:
            source.check_saved("train", saved)
            continue
        with refuses(f"corpus {str(tmp_path)!r}") as refusal:
            source.check_saved("train", saved)
        assert "held_out={'validation': 0.01}" in refusal.value.to_set


def test_what_is_held_out_of_another_split_is_not_of_one_with_files(tmp_path):
    for split in ("train", "validation"):
        write(tmp_path, "txt", LINES[:20], split)
    source = CorpusSource(str(tmp_path), splits=("train", "validation"), held_out={"test": 0.1})
    assert (source.shares("train"), source.shares("validation")) == ({"test": 0.1}, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"files": {"train": "t.txt", "validation": "v.txt"}, "held_out": SHARES},
        {"files": {"train": "t.txt"}, "held_out": {"train": 0.9}},
        {"files": dict, "splits": ("train", "validation"), "held_out": SHARES},
        {"corpus": "user/open", "held_out": {"train": 0.9}},
        {"corpus": "user/open", "splits": ("train", "validation"), "held_out": SHARES},
        {"corpus": "/data", "splits": {"train": "all", "validation": "dev"}, "held_out": SHARES},
        {"corpus": "/data/t.txt", "held_out": {"train": 0.9}},
    ],
)
def test_a_part_that_would_hide_a_split_is_refused(settings):
    with refuses("held_out", settings["held_out"]):
        CorpusSource(**settings)


def test_a_data_set_of_the_hub_has_its_own_splits_or_a_share_held_out(tmp_path):
    files = {"train-0.jsonl": jsonl(LINES), "test-0.jsonl": jsonl(LINES[:9])}
    with loopback_hub.connected({"user/open": files}, tmp_path):
        assert CorpusSource("user/open").splits == ("train", "test")
        source = CorpusSource("user/open", held_out=SHARES)
        train, validation = texts(source, "train"), texts(source, "validation")
    assert validation
    assert sorted(train + validation) == sorted(LINES)


@pytest.mark.parametrize("order", [RECORDS, PARTS])
@pytest.mark.parametrize(
    ("group", "key"),
    [(None, "q"), ("q", "q"), ("page", "page"), ("{page}-{half}", None)],
)
def test_rows_of_one_input_or_group_are_on_one_side(tmp_path, order, group, key):
    rows = [
        {"q": f"{' ' * (i % 2)}q{i % 60}", "a": f"a{i}", "page": i % 40, "half": str(i % 3)}
        for i in range(480)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = {"train": str(tmp_path / "rows.jsonl")}
    source = Rows(files=files, columns=PAIR, held_out={"validation": 0.2}, group=group)
    key_of = lambda row: str(row[key]).strip() if key else f"{row['page']}-{row['half']}"
    of_answer = {row["a"]: key_of(row) for row in rows}
    answers = {}
    for split in ("train", "validation"):
        dataset = source.get_dataset(split, True, 0, order=order).as_numpy_iterator()
        documents = [*dataset]
        assert all({*row} == {"inputs", "targets"} for row in documents)
        answers[split] = [row["targets"].decode() for row in documents]
        first = source.peek_features(split, 3)["targets"]
        assert {*first} < {*answers[split]}
    assert sorted([*answers["train"], *answers["validation"]]) == sorted(of_answer)
    sides = [{of_answer[a] for a in answers[split]} for split in ("train", "validation")]
    assert not sides[0] & sides[1]
    assert all(sides)


def test_an_empty_group_lets_the_whole_row_decide():
    """By TensorFlow's farmhash of the texts with \\x1f between; saved positions need the same."""
    column = Columns({"inputs": "q", "targets": "a"}, group="")
    assert held_out.hashes([(b"un text", b" altul")], column).tolist() == [4847]


def test_a_run_goes_on_with_its_split_of_rows_or_is_told_how(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"q": "a", "a": "b"}\n{"q": "c", "a": "d"}\n')
    files = {"train": str(tmp_path / "rows.jsonl")}
    rows = lambda group: Rows(files=files, columns=PAIR, held_out={"validation": 0.5}, group=group)
    before, now = rows("").identity("train"), rows(None).identity("train")
    assert before["held_out"] == [5000, 10000]
    rows("").check_saved("train", before)
    rows("q").check_saved("train", json.loads(json.dumps(now)))
    changes = [(before, None, ""), (now, "", "q"), (now, "a", "q"), ({}, None, "")]
    for saved, group, to_write in changes:
        with refuses(f"corpus {str(tmp_path / 'rows.jsonl')!r}") as refusal:
            rows(group).check_saved("train", saved)
        assert f"group={to_write!r}" in refusal.value.to_set


def test_a_group_that_no_row_has_is_refused_with_the_columns_there_are(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"q": "a", "a": "b"}\n')
    files = {"train": str(tmp_path / "rows.jsonl")}
    source = Rows(files=files, columns=PAIR, held_out={"validation": 0.5}, group="page")
    with refuses(f"{tmp_path}/rows.jsonl") as refusal:
        source.peek("train")
    assert "page" in str(refusal.value)
