"""A corpus is read completely, once an epoch, in a new order each epoch, and resumed exactly."""

import dataclasses
import functools
import json
import os
import socket
import time

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio
import tensorflow as tf

import gin
from fakes import loopback_hub
from fakes.corpora import LINES, jsonl, write
from fakes.file_server import FileServer
from fakes.refuses import refuses
from tasks.corpus.catalog import Unreachable
from tasks.corpus.records import formats
from tasks.corpus.records.documents import Column, Columns
from tasks.corpus.source import PARTS, RECORDS, CorpusSource
from tasks.corpus.storage import retry
from tasks.corpus.storage.hub import Offline

KINDS = ["jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "txt", "parquet"]


def _read(source, **kwargs):
    dataset = source.get_dataset("train", **kwargs)
    return [x["text"].decode().split("\n")[0] for x in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("n", "order", "kind"),
    [
        *(
            pytest.param(
                *(2, PARTS, kind),
                marks=() if kind in ("jsonl", "parquet", "jsonl.zst") else pytest.mark.slow,
            )
            for kind in KINDS
        ),
        *((5, RECORDS, kind) for kind in KINDS),
    ],
)
def test_shards_of_one_file_are_disjoint_and_complete(tmp_path, kind, n, order):
    source = CorpusSource(str(write(tmp_path, kind, LINES)), held_out={})
    infos = [seqio.ShardInfo(i, n) for i in range(n)]
    shards = [_read(source, seed=0, shard_info=info, order=order) for info in infos]
    assert all(shards)
    assert sorted(sum(shards, start=[])) == sorted(LINES)  # noqa: RUF017


def test_unusable_records_are_skipped_and_counted_by_reason(tmp_path):
    bad = ['{"text": ""}', '{"text": " \\n"}', '{"text": null}', '{"id": 1}', '{"text": 5}']
    bad += ['{"text": ["a"]}', '{"text": "a', "[1]", json.dumps({"text": "y" * 101})]
    text = "\n".join(['{"text": "bun"}', *bad, '{"text": "și bun"}'])
    (tmp_path / "train.jsonl").write_text(text)
    source = CorpusSource(str(tmp_path), max_chars=100, held_out={})
    assert sorted(_read(source)) == ["bun", "și bun"]
    skipped = {"empty": 2, "null": 2, "not_text": 2, "malformed": 2, "too_long": 1}
    counts = {name: n for name, n in source.counter.counts().items() if n}
    assert counts == {"read": 11, "epochs": 1} | {f"skipped_{k}": n for k, n in skipped.items()}
    assert "11 records read, skipped 2 empty, 2 null" in source.counter.sentence()


REFUSED = [  # (files, arguments, split, the setting at fault, what to set)
    ({}, {}, "train", "{}/*", ""),
    ({"train.txt": b"a\nb\n"}, {}, "validation", "corpus '{}'", "held_out={'validation': 0.01}"),
    (
        {"train.txt": b"a\na\n"},
        {"held_out": {"validation": 0.01}},
        "validation",
        "split 'validation' of corpus '{}'",
        "add documents",
    ),
    ({}, {"splits": ["train"]}, "test", "corpus '{}'", "held_out={'test': 0.01}"),
    ({"train.doc": b"?"}, {}, "train", "{}/train.doc", ".txt"),
    ({"train.txt": b""}, {}, "train", "{}/train.txt", "leave it out"),
    ({"train.txt": b"\n\n"}, {}, "train", "{}/train.txt", ""),
    ({"train.csv": b"text\nma\xe7\xe3\np\xe3o\n"}, {}, "train", "{}/train.csv", "iconv"),
    *(
        ({f"train.{kind}": kind}, {"column": "body"}, "train", f"{{}}/train.{kind}", "in its place")
        for kind in ("jsonl", "parquet", "csv")
    ),
]


@pytest.mark.parametrize(("files", "arguments", "split", "setting", "to_set"), REFUSED)
def test_a_corpus_that_cannot_be_used_is_refused_in_a_sentence(
    tmp_path, files, arguments, split, setting, to_set
):
    for name, data in files.items():
        if isinstance(data, bytes):
            (tmp_path / name).write_bytes(data)
        else:
            write(tmp_path, data, LINES[:5], "train")
    with refuses(setting.format(tmp_path)) as refusal:
        CorpusSource(str(tmp_path), **arguments).peek(split)
    assert to_set in refusal.value.to_set


def test_arguments_that_exclude_each_other_are_refused(tmp_path):
    with refuses("a corpus source"):
        CorpusSource()
    with refuses("documents", "pages"):
        CorpusSource("a/b", documents="pages")
    with refuses(f"{tmp_path}/absent/*"):
        CorpusSource(f"{tmp_path}/absent").peek("validation")


def test_a_split_of_fewer_texts_than_shards_is_refused_with_both_numbers(tmp_path):
    for i in range(2):  # the second text of each file is skipped
        (tmp_path / f"train-{i}.jsonl").write_text(f'{{"text": "{LINES[i]}"}}\n{{"text": ""}}\n')
    source = CorpusSource(str(tmp_path), held_out={})
    source.check_shards("train", 2)
    with refuses(f"split 'train' of corpus {str(tmp_path)!r}"):
        source.check_shards("train", 3)


def test_a_file_belongs_to_the_longest_name_of_a_split(tmp_path):
    for name in ("train-0", "dev-0", "devtest-0"):
        write(tmp_path, "jsonl", [name], name)
    splits = {"train": "train", "validation": "dev", "test": "devtest"}
    source = CorpusSource(str(tmp_path), splits=splits)
    found = {split: [file.url for file in source.list_files(split)] for split in splits}
    assert found == {ours: [f"{tmp_path}/{name}-0.jsonl"] for ours, name in splits.items()}


@pytest.mark.parametrize("name", ["corpus [v2]", "a*b"])
def test_a_folder_may_have_any_name(tmp_path, name):
    for made in ("corpus v", "corpus 2", "aab", name):  # which the name would match
        (tmp_path / made).mkdir()
        write(tmp_path / made, "jsonl", [made])
    source = CorpusSource(str(tmp_path / name))
    assert source.peek("train", 9) == [name]
    if "*" not in name:  # else it is a pattern
        with refuses(f"{tmp_path}/{name}2/*"):
            CorpusSource(str(tmp_path / f"{name}2")).peek("train")
    bucket = fsspec.filesystem("memory")
    bucket.pipe(f"/names/{name}/train-0.jsonl", jsonl(["a"]))
    assert CorpusSource(f"memory://names/{name}").peek("train") == ["a"]


QUICK = retry.RetryPolicy(limit_s=20, first_s=0.01, longest_s=0.02)


def test_a_file_that_is_replaced_in_the_middle_of_an_epoch_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 8192)
    write(tmp_path, "jsonl", LINES)
    with FileServer(tmp_path) as server:
        policy = dataclasses.replace(QUICK, limit_s=1)  # a part that is read ahead has no server
        source = CorpusSource(files={"train": f"{server.url}/train-0.jsonl"}, retry_policy=policy)
        texts = iter(source.get_dataset("train", shuffle=False).as_numpy_iterator())
        next(texts)
        write(tmp_path, "jsonl", [line[::-1] for line in LINES])
        with pytest.raises(Exception, match=r"train-0.jsonl changed while it was read"):
            list(texts)


@pytest.fixture
def forty(tmp_path):
    """Forty parquet files of which the last has another column."""
    for i in range(40):
        text = "content" if i == 39 else "text"
        pq.write_table(
            pa.table({text: [f"{i}-{j}" for j in range(9)]}), f"{tmp_path}/train-{i}.parquet"
        )
    yield tmp_path
    gin.clear_config()


SKIP = "tasks.corpus.source.bad_files.skip"


def test_one_file_of_forty_without_the_column_is_named_before_the_run(forty):
    with refuses(str(forty / "train-39.parquet")):
        CorpusSource(str(forty)).peek("train")
    gin.bind_parameter(SKIP, True)
    assert CorpusSource(str(forty)).peek("train") == ["0-0"]


@pytest.mark.parametrize("bad", ["changed", "damaged", "without the column"])
@pytest.mark.parametrize("order", [RECORDS, PARTS])
def test_a_file_that_turns_bad_ends_the_run_or_is_skipped_and_counted(forty, order, bad):
    bad_path, source = forty / "train-39.parquet", lambda: CorpusSource(str(forty), held_out={})
    skipping = source()
    good, ending = bad_path.with_name("train-0.parquet").read_bytes(), source()
    for each in (skipping, ending):
        each.list_files("train")
    if bad == "damaged":
        bad_path.write_bytes(good[:-9])
        skipping, ending = source(), source()
    elif bad == "changed":
        bad_path.write_bytes(good)
    with pytest.raises(tf.errors.OpError, match=r"train-39\.parquet"):
        _read(ending, seed=0, order=order)
    gin.bind_parameter(SKIP, True)
    infos = [seqio.ShardInfo(i, 2) for i in range(2)]
    for _ in range(2):  # also when it is started again
        epochs = [_read(skipping, seed=0, shard_info=info, order=order) for info in infos]
        texts = [text for epoch in epochs for text in epoch]
        assert sorted(texts) == sorted(f"{i}-{j}" for i in range(39) for j in range(9))
        assert skipping.record_counts("train")["bad_files"] == 1
        assert "1 bad file," in skipping.counter.sentence("train")


def test_files_that_are_all_bad_end_the_run(tmp_path):
    for i in range(2):
        (tmp_path / f"train-{i}.jsonl.gz").write_bytes(b"?")
    gin.bind_parameter(SKIP, True)
    try:
        for order in (RECORDS, PARTS):
            with pytest.raises(tf.errors.OpError, match="damaged"):
                _read(CorpusSource(str(tmp_path), held_out={}), seed=0, order=order)
    finally:
        gin.clear_config()


@pytest.mark.parametrize("order", [RECORDS, PARTS])
def test_shards_together_fetch_a_remote_corpus_once(tmp_path, monkeypatch, order):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 8192)
    for i in range(2):
        (tmp_path / f"{i}.jsonl").write_bytes(jsonl(LINES * 5))
    total = 2 * (tmp_path / "0.jsonl").stat().st_size
    with FileServer(tmp_path) as server:
        files = {"train": [f"{server.url}/{i}.jsonl" for i in range(2)]}
        source = CorpusSource(files=files, retry_policy=QUICK, held_out={})
        for i in range(4):
            _read(source, seed=0, shard_info=seqio.ShardInfo(i, 4), order=order)
        assert source.counter.counts()["read"] == 10 * len(LINES)
        assert total <= sum(server.sent.values()) <= 1.1 * total


@pytest.mark.parametrize("order", [RECORDS, PARTS])
def test_buckets_are_read_by_glob_and_range(monkeypatch, order):
    """By way of fsspec, as gs:// is, here with its store in memory."""
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 8192)
    store = fsspec.filesystem("memory")
    for i in range(2):
        store.pipe(f"/bucket/train-{i}.jsonl", jsonl(LINES[i * 300 : i * 300 + 300]))
    source = CorpusSource("memory://bucket", splits=["train"])
    assert len(source.list_shards("train")) == 2
    infos = [seqio.ShardInfo(i, 3) for i in range(3)]
    shards = [_read(source, seed=0, shard_info=info, order=order) for info in infos]
    assert sorted(x for shard in shards for x in shard) == sorted(LINES)


def test_a_position_is_valid_for_the_contents_of_these_files_alone(tmp_path):
    path = write(tmp_path, "jsonl", LINES) / "train-0.jsonl"
    source = lambda: CorpusSource(str(tmp_path), splits=["train"])
    identity = lambda: source().identity("train")
    before, data = identity(), path.read_bytes()
    assert (before["revision"], before["files"]) == (None, 1)
    pinned = source()
    pinned.pin_revision("a" * 40)  # has no meaning for a folder
    assert pinned.identity("train") == before
    path.write_bytes(data.replace(b"documentul 300", b"documentul 999"))  # of the same size
    assert {k for k, v in identity().items() if v != before[k]} == {"contents"}
    path.write_bytes(data)  # as a copy, at another time
    assert identity() == before
    write(tmp_path, "jsonl", LINES[:-1])
    assert identity()["names"] != before["names"]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"documents": "paragraphs"}, id="documents"),
        pytest.param({"column": "body"}, id="column"),
        pytest.param({"column": Column("text", where={"kind": "news"})}, id="where"),
        pytest.param({"column": Column("text", min_chars=9)}, id="min_chars"),
        pytest.param({"column": Columns({"inputs": "text"}, {"inputs": {"a": "b"}})}, id="labels"),
    ],
)
def test_a_position_is_valid_for_the_same_documents_alone(tmp_path, changed):
    row = {"text": "a", "body": "b", "kind": "news"}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n" * 9)
    source = functools.partial(CorpusSource, str(tmp_path), held_out={})
    before, now = source().identity("train"), source(**changed).identity("train")
    assert {k for k, v in now.items() if v != before[k]} == {"reads"}
    assert json.loads(json.dumps(now)) == now


def test_a_position_is_not_valid_for_what_a_server_gives_now(tmp_path):
    found = []
    for lines in (LINES, LINES, [line[::-1] for line in LINES]):
        write(tmp_path, "jsonl", lines)
        with FileServer(tmp_path) as server:
            source = CorpusSource(files={"train": f"{server.url}/train-0.jsonl"})
            listing = json.loads(json.dumps(source.listing("train")))
            other = CorpusSource(files={"train": f"{server.url}/train-0.jsonl"})
            other.use_listing("train", listing)
            assert other.identity("train") == source.identity("train")
            found.append(source.identity("train"))
    assert found[0] == found[1] != found[2]


def test_an_unreachable_corpus_is_one_sentence():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}/a.jsonl"
        with refuses(f"corpus {url!r}", kind=Unreachable) as error:
            CorpusSource(files={"train": url}).peek("train", limit_s=0.1)
    assert isinstance(error.value, OSError)  # an entry point then suggests a retry


def test_hub_corpora_are_read_with_a_token_and_refused_in_sentences(tmp_path, monkeypatch):
    texts = [f"document {i}" for i in range(300)]
    repositories = {
        "user/open": {"train-0.jsonl": jsonl(texts[:150]), "train-1.jsonl": jsonl(texts[150:])},
        "user/secret": {"README.md": b"# hm\n", "data/train-0.jsonl": jsonl(texts)},
    }
    pause = time.sleep  # the hub's client waits for up to 8 s before it asks again
    monkeypatch.setattr(time, "sleep", lambda seconds: pause(min(seconds, 0.01)))

    def refused(corpus, to_set, **arguments):
        with refuses(f"corpus {corpus!r}") as refusal:
            CorpusSource(corpus, retry_policy=QUICK, **arguments).peek()
        assert to_set in refusal.value.to_set

    with loopback_hub.connected(repositories, tmp_path) as fake:
        fake.private = ["user/secret"]
        source = CorpusSource("user/open", retry_policy=QUICK, held_out={})
        assert _read(source, shuffle=False) == texts
        assert all(f"@{loopback_hub.COMMIT}" in url for url in source.list_shards("train"))
        refused("user/none", "check the name")
        refused("user/open", "name one of its", config="other")
        refused("user/open", "`splits`", splits={"train": "dev"})
        refused("user/secret", "set HF_TOKEN")
        os.environ["HF_TOKEN"] = "hf_wrong"
        refused("user/secret", "has access")
        os.environ["HF_TOKEN"] = "hf_right"
        fake.faults = [503, 429, 500]
        secret = CorpusSource("user/secret", retry_policy=QUICK, held_out={})
        assert _read(secret, shuffle=False) == texts
        # What another host has listed is not asked for again.
        listing, asked = json.loads(json.dumps(source.listing("train"))), len(fake.log)
        assert all(file[3] > 1000 for file in listing)  # their lengths
        other = CorpusSource("user/open", retry_policy=QUICK, held_out={})
        other.use_splits(source.splits)
        other.use_listing("train", listing)
        assert other.identity("train")["revision"] == loopback_hub.COMMIT
        assert _read(other, shuffle=False) == texts
        assert not [path for _, path, _ in fake.log[asked:] if "/api/" in path]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_a_hub_that_renames_and_signs_gives_the_same_and_says_so(
    tmp_path, monkeypatch, caplog, kind
):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 8192)
    data = (write(tmp_path, kind, LINES) / f"train-0.{kind}").read_bytes()
    files = {f"train-0.{kind}": data}
    with loopback_hub.connected({"user/new": files}, tmp_path) as fake:
        fake.renamed = {"user/old": "user/new"}
        source = CorpusSource("user/old", retry_policy=QUICK, held_out={})
        assert source.list_files("train")
        fake.signed, fake.uses = 3, 2
        assert _read(source, shuffle=False) == LINES
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "user/new" in line and "user/old" in line]) == 1
    assert not [line for line in said if "secret" in line]
    assert fake.signature


def test_offline_mode_is_reported_rather_than_retried():
    with refuses("corpus 'user/corpus'", kind=Offline):
        CorpusSource("user/corpus").peek("train")
