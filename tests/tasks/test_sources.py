"""A corpus is read whole, once an epoch, in a new order each epoch, and resumed where it was."""

import gzip
import json
import socket
import subprocess
import sys

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio
import tensorflow as tf
import zstandard

from fakes.file_server import FileServer
from fakes.paths import ROOT
from tasks import sources
from tasks.io import retry
from tasks.sources import CorpusSource

LINES = [f"documentul {i} " + "x" * (i * 7 % 300) for i in range(600)]


def _jsonl(texts):
    return "".join(json.dumps({"text": t, "id": i}) + "\n" for i, t in enumerate(texts)).encode()


def _write(folder, kind, texts, name="train-0"):
    if kind == "parquet":
        table = pa.table({"text": texts, "id": list(range(len(texts)))})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=50)
    elif kind == "json":
        (folder / f"{name}.json").write_text(json.dumps([{"text": t} for t in texts], indent=1))
    elif kind == "csv":
        rows = "".join(f'{i},"{t}\nși ""restul"""\n' for i, t in enumerate(texts))
        (folder / f"{name}.csv").write_text("id,text\n" + rows)
    elif kind == "txt":
        (folder / f"{name}.txt").write_text("\n".join(texts))
    elif kind == "jsonl.gz":
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(_jsonl(texts)))
    elif kind == "jsonl.zst":
        (folder / f"{name}.jsonl.zst").write_bytes(zstandard.compress(_jsonl(texts)))
    else:
        (folder / f"{name}.jsonl").write_bytes(_jsonl(texts))
    return folder


KINDS = ["jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "txt", "parquet"]


def _read(source, **kwargs):
    dataset = source.get_dataset("train", **kwargs)
    return [x["text"].decode().split("\n")[0] for x in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_every_document_in_order(tmp_path, kind):
    source = CorpusSource(str(_write(tmp_path, kind, LINES)))
    assert _read(source, shuffle=False) == LINES
    assert source.peek("train", 2)[0].startswith(LINES[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 5])
def test_shards_of_one_file_are_disjoint_and_complete(tmp_path, kind, n, monkeypatch):
    source = CorpusSource(str(_write(tmp_path, kind, LINES)))
    shards = [_read(source, seed=0, shard_info=seqio.ShardInfo(i, n)) for i in range(n)]
    assert all(shards)
    assert sorted(sum(shards, start=[])) == sorted(LINES)  # noqa: RUF017


def test_shards_own_whole_files_where_there_are_enough(tmp_path):
    for i in range(5):
        _write(tmp_path, "jsonl", LINES[i * 100 : (i + 1) * 100], f"train-{i}")
    source = CorpusSource(str(tmp_path))
    shard = _read(source, seed=0, shard_info=seqio.ShardInfo(1, 2))
    assert sorted(shard) == sorted(LINES[100:200] + LINES[300:400])
    assert source.record_counts() == source.counter.counts()
    assert source.counter.counts()["read"] == 200


@pytest.mark.parametrize("part_bytes", [1, 7, 64, 1000])
@pytest.mark.parametrize("end", ["\n", ""])
def test_byte_ranges_neither_lose_nor_double_a_line(tmp_path, monkeypatch, part_bytes, end):
    lines = ["", "a", "bb" * 40, "ș" * 9, "", "c", "d" * 300, "e"]
    (tmp_path / "train.txt").write_text("\n".join(lines) + end)
    monkeypatch.setattr(sources, "LOCAL_PART_BYTES", part_bytes)
    assert _read(CorpusSource(str(tmp_path)), shuffle=False) == [x for x in lines if x]


def test_each_epoch_has_its_own_order_and_every_document_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LOCAL_PART_BYTES", 4096)
    source = CorpusSource(str(_write(tmp_path, "jsonl", LINES)))

    def three_epochs(seed):
        dataset = source.get_dataset("train", seed=seed).repeat(3)
        texts = [x["text"].decode() for x in dataset.as_numpy_iterator()]
        return [texts[i * len(LINES) : (i + 1) * len(LINES)] for i in range(3)]

    epochs = three_epochs(0)
    assert all(sorted(epoch) == sorted(LINES) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [LINES, *epochs]}) == 4
    assert three_epochs(0) == epochs
    assert three_epochs(1) != epochs
    assert source.counter.counts()["epochs"] == 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "jsonl.gz"])
def test_a_run_killed_twice_reads_what_an_undisturbed_one_reads(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(sources, "LOCAL_PART_BYTES", 4096)
    for i in range(3):
        _write(tmp_path, kind, LINES[i * 200 : (i + 1) * 200], f"train-{i}")

    def start():
        source = CorpusSource(str(tmp_path))  # as a new process would
        dataset = source.get_dataset("train", seed=5, shard_info=seqio.ShardInfo(0, 2)).repeat()
        dataset = dataset.map(lambda x: x["text"]).shuffle(20, seed=1).batch(7).prefetch(2)
        options = tf.data.Options()
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        return iter(dataset.with_options(options))

    def take(iterator, n):
        return [next(iterator).numpy().tolist() for _ in range(n)]

    undisturbed = take(start(), 200)  # more than three epochs
    iterator, done = start(), 0
    for kill_at in (31, 120):
        assert take(iterator, kill_at - done) == undisturbed[done:kill_at]
        saved = tf.train.Checkpoint(it=iterator).write(str(tmp_path / f"ckpt{kill_at}"))
        iterator, done = start(), kill_at
        tf.train.Checkpoint(it=iterator).read(saved).assert_consumed()
    assert take(iterator, 80) == undisturbed[120:]


def test_a_restore_reads_no_file_that_was_finished(tmp_path, monkeypatch):
    for i in range(4):
        _write(tmp_path, "jsonl", LINES[i * 100 : (i + 1) * 100], f"train-{i}")
    iterator = iter(CorpusSource(str(tmp_path)).get_dataset("train", shuffle=False))
    for _ in range(350):
        next(iterator)
    saved = tf.train.Checkpoint(it=iterator).write(str(tmp_path / "ckpt"))
    source = CorpusSource(str(tmp_path))
    iterator = iter(source.get_dataset("train", shuffle=False))
    tf.train.Checkpoint(it=iterator).read(saved)
    assert next(iterator)["text"].numpy().decode() == LINES[350]
    # At most the file it stood in; nothing, if the counting of that one is still to come.
    assert source.counter.counts()["read"] <= 100


def test_what_is_no_document_is_skipped_and_counted_by_reason(tmp_path):
    bad = ['{"text": ""}', '{"text": " \\n"}', '{"text": null}', '{"id": 1}', '{"text": 5}']
    bad += ['{"text": ["a"]}', '{"text": "a', "[1]", json.dumps({"text": "y" * 101})]
    text = "\n".join(['{"text": "bun"}', *bad, '{"text": "și bun"}'])
    (tmp_path / "train.jsonl").write_text(text)
    source = CorpusSource(str(tmp_path), max_chars=100)
    assert _read(source) in (["bun", "și bun"], ["și bun", "bun"])
    assert {name: n for name, n in source.counter.counts().items() if n} == {
        "read": 11,
        "skipped_empty": 2,
        "skipped_null": 2,
        "skipped_not_text": 2,
        "skipped_malformed": 2,
        "skipped_too_long": 1,
        "epochs": 1,
    }
    assert "11 records read, skipped 2 empty, 2 null" in source.counter.sentence()


def test_a_file_in_another_encoding_is_refused_by_that_name(tmp_path):
    (tmp_path / "train.csv").write_bytes(b"text\nma\xe7\xe3\np\xe3o\n")
    with pytest.raises(ValueError, match=r"of 2 records read, skipped 2 not UTF-8: convert the f"):
        CorpusSource(str(tmp_path)).peek()


def test_an_epoch_has_ended_when_all_shards_have(tmp_path):
    source = CorpusSource(str(_write(tmp_path, "jsonl", LINES)))
    datasets = [source.get_dataset("train", shard_info=seqio.ShardInfo(i, 3)) for i in range(3)]
    epochs = []
    for dataset in datasets:
        list(dataset.as_numpy_iterator())
        epochs.append(source.counter.counts()["epochs"])
    assert epochs == [0, 0, 1]
    assert source.counter.counts()["read"] == len(LINES)


def test_columns_can_be_joined_by_a_template(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"t": "Titlu", "b": "corp"}\n{"t": "x", "b": null}\n')
    assert CorpusSource(str(tmp_path), column="{t}: {b}").peek("train", 5) == ["Titlu: corp"]


def test_a_paragraph_can_be_a_document(tmp_path):
    (tmp_path / "train.txt").write_text("Una.\nDouă.\n\n\nTrei.\n \nPatru.\nCinci.")
    source = CorpusSource(str(tmp_path), documents="paragraphs")
    assert _read(source, shuffle=False) == ["Una. Două.", "Trei.", "Patru. Cinci."]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_a_missing_column_is_named_beside_those_that_exist(tmp_path, kind):
    source = CorpusSource(str(_write(tmp_path, kind, LINES[:5])), column="body")
    with pytest.raises(ValueError, match=r"no column 'body' in .*: it has id, text; set"):
        source.peek("train")


def test_a_missing_split_is_named_beside_those_that_exist(tmp_path):
    source = CorpusSource(str(_write(tmp_path, "jsonl", LINES[:5])), splits=["train"])
    with pytest.raises(ValueError, match="has no split 'test', only train"):
        source.peek("test")
    with pytest.raises(ValueError, match="no file matches"):
        CorpusSource(str(tmp_path)).peek("validation")


def test_unusable_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="either `corpus` or `files`"):
        CorpusSource()
    with pytest.raises(ValueError, match="must be 'lines' or 'paragraphs'"):
        CorpusSource("a/b", documents="pages")
    (tmp_path / "train.doc").write_text("?")
    with pytest.raises(ValueError, match="of no known format"):
        CorpusSource(str(tmp_path)).peek("train")
    (tmp_path / "train.doc").rename(tmp_path / "train.txt")
    (tmp_path / "train.txt").write_text("\n\n")
    with pytest.raises(ValueError, match="no usable text"):
        CorpusSource(str(tmp_path)).peek("train")


QUICK = retry.Patience(limit_s=20, first_s=0.01, longest_s=0.02)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet", "csv"])
def test_http_files_are_read_through_faults(tmp_path, kind, ranges):
    _write(tmp_path, kind, LINES)
    with FileServer(tmp_path, ranges) as server:
        files = {"train": f"{server.url}/train-0.{kind}"}
        source = CorpusSource(files=files, patience=QUICK)
        server.faults = ["cut", 503, 429, "cut"]
        assert _read(source, shuffle=False) == LINES


def test_shards_together_fetch_a_remote_corpus_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "REMOTE_PART_BYTES", 8192)
    for i in range(2):
        (tmp_path / f"{i}.jsonl").write_bytes(_jsonl(LINES * 5))
    total = 2 * (tmp_path / "0.jsonl").stat().st_size
    with FileServer(tmp_path) as server:
        files = {"train": [f"{server.url}/{i}.jsonl" for i in range(2)]}
        source = CorpusSource(files=files, patience=QUICK)
        for i in range(4):
            _read(source, seed=0, shard_info=seqio.ShardInfo(i, 4))
        assert source.counter.counts()["read"] == 10 * len(LINES)
        assert total <= sum(server.sent.values()) <= 1.1 * total


def test_buckets_are_read_by_glob_and_range(monkeypatch):
    """By way of fsspec, as gs:// is, here with its store in memory."""
    monkeypatch.setattr(sources, "REMOTE_PART_BYTES", 8192)
    store = fsspec.filesystem("memory")
    for i in range(2):
        store.pipe(f"/bucket/train-{i}.jsonl", _jsonl(LINES[i * 300 : i * 300 + 300]))
    source = CorpusSource("memory://bucket", splits=["train"])
    assert len(source.list_shards("train")) == 2
    shards = [_read(source, seed=0, shard_info=seqio.ShardInfo(i, 3)) for i in range(3)]
    assert sorted(x for shard in shards for x in shard) == sorted(LINES)


def test_a_position_holds_for_these_files_alone(tmp_path):
    _write(tmp_path, "jsonl", LINES)
    source = CorpusSource(str(tmp_path), splits=["train"])
    before = source.identity("train")
    assert before == CorpusSource(str(tmp_path), splits=["train"]).identity("train")
    assert (before["revision"], before["files"]) == (None, 1)
    source.pin_revision("a" * 40)  # has no meaning for a folder
    assert source.identity("train") == before
    _write(tmp_path, "jsonl", LINES[:-1])
    assert CorpusSource(str(tmp_path), splits=["train"]).identity("train") != before


def test_an_unreachable_corpus_is_one_sentence():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}/a.jsonl"
        with pytest.raises(ValueError, match="cannot be reached") as told:
            CorpusSource(files={"train": url}).peek("train", limit_s=0.1)
    assert isinstance(told.value, OSError)  # a door then says that it may pass


_ON_THE_HUB = """
import json, os, sys
sys.path[:0] = sys.argv[1:3]
from fakes import loopback_hub

texts = [f"document {i}" for i in range(300)]
lines = lambda t: "".join(json.dumps({"text": x}) + "\\n" for x in t).encode()
hub = loopback_hub.LoopbackHub(
    {
        "user/open": {"train-0.jsonl": lines(texts[:150]), "train-1.jsonl": lines(texts[150:])},
        "user/secret": {"README.md": b"# hm\\n", "data/train-0.jsonl": lines(texts)},
    },
    private=["user/secret"],
)
for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.pop(name, None)
os.environ.update(HF_ENDPOINT=hub.url, HF_HOME=sys.argv[3])
from tasks.io.retry import Patience
from tasks.sources import CorpusSource

def attempt(corpus, limit=5, **kwargs):
    source = CorpusSource(corpus, patience=Patience(limit, 0.01, 0.02), **kwargs)
    try:
        source.peek("train", limit_s=6 * limit)
        dataset = source.get_dataset("train", shuffle=False)
        return [x["text"].decode() for x in dataset.as_numpy_iterator()] == texts
    except ValueError as error:
        return str(error)

found = {"open": attempt("user/open"), "none": attempt("user/none")}
found["config"] = attempt("user/open", config="other")
found["split"] = attempt("user/open", splits={"train": "dev"})
found["no token"] = attempt("user/secret")
os.environ["HF_TOKEN"] = "hf_wrong"
found["wrong token"] = attempt("user/secret")
os.environ["HF_TOKEN"] = "hf_right"
found["right token"] = attempt("user/secret")
hub.faults = [503, 429, 500]
found["faults"] = attempt("user/secret")
found["urls"] = CorpusSource("user/open").list_shards("train")
other = CorpusSource("user/open")
told = json.loads(json.dumps(CorpusSource("user/open").listing("train")))
asked = len(hub.log)
other.use_listing("train", told)
found["identity"] = other.identity("train")
found["adopted"] = [x["text"].decode() for x in other.get_dataset("train", shuffle=False)
    .as_numpy_iterator()] == texts
found["lengths"] = [file[3] for file in told]
found["lists"] = [p for _, p, _ in hub.log[asked:] if "/api/" in p]
from tasks.io import hub as the_hub, stream_cache
stream_cache.keep(sys.argv[3] + "/spool")
found["spooled"] = attempt("user/secret")
the_hub.find.cache_clear()
hub.close()
found["away"] = attempt("user/secret", limit=0.05)
print("FOUND" + json.dumps(found))
"""


def test_hub_corpora_are_read_with_a_token_and_refused_in_sentences(tmp_path):
    root = ROOT
    args = [root, root / "tests", tmp_path]
    command = [sys.executable, "-c", _ON_THE_HUB, *map(str, args)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(result.stdout.split("FOUND")[1])
    assert found["open"] is found["right token"] is found["faults"] is True
    assert "is private, and there is no token" in found["no token"]
    assert "set HF_TOKEN or run `hf auth login`" in found["no token"]
    assert "the token at hand may not read it" in found["wrong token"]
    assert found["none"].startswith("corpus 'user/none' is not on the hub")
    assert "has no configuration 'other'" in found["config"]
    assert "has no split 'dev', only train" in found["split"]
    assert all("@0123456789abcdef" in url for url in found["urls"])  # the commit is pinned
    assert found["identity"]["revision"] == "0123456789abcdef0123456789abcdef01234567"
    assert found["adopted"] is found["spooled"] is True
    assert all(length > 1000 for length in found["lengths"])
    assert found["lists"] == []  # what another host has listed is not asked for again
    assert found["away"] is True  # listing and bytes are of the spool


_ENDS = """
import sys
sys.path.insert(0, sys.argv[1])
from tasks.sources import CorpusSource

dataset = CorpusSource(sys.argv[2]).get_dataset("train", seed=0).repeat().batch(3).prefetch(4)
iterator = iter(dataset)
next(iterator)
"""


def test_a_process_ends_amid_an_endless_stream(tmp_path):
    _write(tmp_path, "jsonl", LINES)
    root = ROOT
    command = [sys.executable, "-c", _ENDS, str(root), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr[-2000:]


def test_offline_mode_is_named_rather_than_waited_out():
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set"):
        CorpusSource("user/corpus").peek("train")
