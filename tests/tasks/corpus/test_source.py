"""A corpus is read completely, once an epoch, in a new order each epoch, and resumed exactly."""

import json
import re
import socket
import subprocess
import sys

import fsspec
import pytest
import seqio

from fakes.corpora import LINES, jsonl, write
from fakes.file_server import FileServer
from fakes.paths import ROOT
from tasks.corpus import formats, retry
from tasks.corpus.source import PARTS, RECORDS, CorpusSource

KINDS = ["jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "txt", "parquet"]


def _read(source, **kwargs):
    dataset = source.get_dataset("train", **kwargs)
    return [x["text"].decode().split("\n")[0] for x in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_every_document_in_order(tmp_path, kind):
    source = CorpusSource(str(write(tmp_path, kind, LINES)))
    assert _read(source, shuffle=False) == LINES
    assert source.peek("train", 2)[0].startswith(LINES[0])


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
    source = CorpusSource(str(write(tmp_path, kind, LINES)))
    infos = [seqio.ShardInfo(i, n) for i in range(n)]
    shards = [_read(source, seed=0, shard_info=info, order=order) for info in infos]
    assert all(shards)
    assert sorted(sum(shards, start=[])) == sorted(LINES)  # noqa: RUF017


def test_unusable_records_are_skipped_and_counted_by_reason(tmp_path):
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


def test_a_file_in_another_encoding_is_refused_for_that_reason(tmp_path):
    (tmp_path / "train.csv").write_bytes(b"text\nma\xe7\xe3\np\xe3o\n")
    with pytest.raises(ValueError, match=r"of 2 records read, skipped 2 not UTF-8: convert the f"):
        CorpusSource(str(tmp_path)).peek()


def test_a_split_of_fewer_texts_than_shards_is_refused_with_both_numbers(tmp_path):
    for i in range(2):  # the second text of each file is skipped
        (tmp_path / f"train-{i}.jsonl").write_text(f'{{"text": "{LINES[i]}"}}\n{{"text": ""}}\n')
    source = CorpusSource(str(tmp_path))
    source.check_shards("train", 2)
    with pytest.raises(ValueError, match="has 2 usable texts, but its 3 shards need one each"):
        source.check_shards("train", 3)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_a_missing_column_is_named_beside_those_that_exist(tmp_path, kind):
    source = CorpusSource(str(write(tmp_path, kind, LINES[:5])), column="body")
    with pytest.raises(ValueError, match=r"no column 'body' in .*: it has id, text; set"):
        source.peek("train")


def test_a_missing_split_is_named_beside_those_that_exist(tmp_path):
    source = CorpusSource(str(write(tmp_path, "jsonl", LINES[:5])), splits=["train"])
    with pytest.raises(ValueError, match=r"has no split 'test', only train: .*held_out={'test': 0"):
        source.peek("test")


def test_a_folder_without_files_of_a_split_says_what_to_set(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"text": "x"}\n')
    missing = r"no file matches '.*/validation\*': add one, or hold .*held_out={'validation': 0.01}"
    with pytest.raises(ValueError, match=missing):
        CorpusSource(str(tmp_path)).peek("validation")
    with pytest.raises(ValueError, match=r"name files train\*, or give patterns by files={'train'"):
        CorpusSource(str(tmp_path)).peek()
    for split in ("train", "validation"):
        with pytest.raises(ValueError, match=f"since there is no folder {tmp_path}/absent$"):
            CorpusSource(f"{tmp_path}/absent").peek(split)


def test_a_file_belongs_to_the_longest_name_of_a_split(tmp_path):
    for name in ("train-0", "dev-0", "devtest-0"):
        write(tmp_path, "jsonl", [name], name)
    splits = {"train": "train", "validation": "dev", "test": "devtest"}
    source = CorpusSource(str(tmp_path), splits=splits)
    found = {split: [file.url for file in source.list_files(split)] for split in splits}
    assert found == {ours: [f"{tmp_path}/{name}-0.jsonl"] for ours, name in splits.items()}
    assert len(CorpusSource(str(tmp_path), splits={"all": "dev"}).list_files("all")) == 2


@pytest.mark.parametrize("name", ["corpus [v2]", "a*b"])
def test_a_folder_may_have_any_name(tmp_path, name):
    for made in ("corpus v", "corpus 2", "aab", name):  # which the name would match
        (tmp_path / made).mkdir()
        write(tmp_path / made, "jsonl", [made])
    source = CorpusSource(str(tmp_path / name))
    assert source.peek("train", 9) == [name]
    with pytest.raises(ValueError, match=rf"/{re.escape(name)}/validation\*': add one, or hold"):
        source.peek("validation")
    with pytest.raises(ValueError, match=rf"since there is no folder .*/{re.escape(name)}2$"):
        CorpusSource(str(tmp_path / f"{name}2")).peek("train")
    bucket = fsspec.filesystem("memory")
    bucket.pipe(f"/names/{name}/train-0.jsonl", jsonl(["a"]))
    assert CorpusSource(f"memory://names/{name}").peek("train") == ["a"]


def test_unusable_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="either `corpus` or `files`"):
        CorpusSource()
    with pytest.raises(ValueError, match="must be 'lines' or 'paragraphs'"):
        CorpusSource("a/b", documents="pages")
    (tmp_path / "train.doc").write_text("?")
    with pytest.raises(ValueError, match="of no known format"):
        CorpusSource(str(tmp_path)).peek("train")
    (tmp_path / "train.doc").rename(tmp_path / "train.txt")
    for text in ("", "\n\n"):
        (tmp_path / "train.txt").write_text(text)
        with pytest.raises(ValueError, match="no usable text"):
            CorpusSource(str(tmp_path)).peek("train")


QUICK = retry.RetryPolicy(limit_s=20, first_s=0.01, longest_s=0.02)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet", "csv"])
def test_http_files_are_read_through_faults(tmp_path, kind, ranges):
    write(tmp_path, kind, LINES)
    with FileServer(tmp_path, ranges) as server:
        files = {"train": f"{server.url}/train-0.{kind}"}
        source = CorpusSource(files=files, retry_policy=QUICK)
        server.faults = ["cut", 503, "other range", 429, "other range", "cut"]
        assert _read(source, shuffle=False) == LINES


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl.zst", "json", "parquet"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_a_damaged_archive_is_refused_at_once(tmp_path, kind, share):
    path = write(tmp_path, kind, LINES) / f"train-0.{kind}"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ValueError, match=rf"train-0.{kind} is damaged or cut short"):
        CorpusSource(str(tmp_path)).peek("train", 1000, limit_s=3600.0)


def test_a_file_that_is_replaced_in_the_middle_of_an_epoch_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 8192)
    write(tmp_path, "jsonl", LINES)
    with FileServer(tmp_path) as server:
        source = CorpusSource(files={"train": f"{server.url}/train-0.jsonl"}, retry_policy=QUICK)
        texts = iter(source.get_dataset("train", shuffle=False).as_numpy_iterator())
        next(texts)
        write(tmp_path, "jsonl", [line[::-1] for line in LINES])
        with pytest.raises(Exception, match=r"train-0.jsonl changed while it was read"):
            list(texts)


@pytest.mark.parametrize("order", [RECORDS, PARTS])
def test_shards_together_fetch_a_remote_corpus_once(tmp_path, monkeypatch, order):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 8192)
    for i in range(2):
        (tmp_path / f"{i}.jsonl").write_bytes(jsonl(LINES * 5))
    total = 2 * (tmp_path / "0.jsonl").stat().st_size
    with FileServer(tmp_path) as server:
        files = {"train": [f"{server.url}/{i}.jsonl" for i in range(2)]}
        source = CorpusSource(files=files, retry_policy=QUICK)
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


def test_a_position_is_valid_for_these_files_alone(tmp_path):
    write(tmp_path, "jsonl", LINES)
    source = CorpusSource(str(tmp_path), splits=["train"])
    before = source.identity("train")
    assert before == CorpusSource(str(tmp_path), splits=["train"]).identity("train")
    assert (before["revision"], before["files"]) == (None, 1)
    source.pin_revision("a" * 40)  # has no meaning for a folder
    assert source.identity("train") == before
    write(tmp_path, "jsonl", LINES[:-1])
    assert CorpusSource(str(tmp_path), splits=["train"]).identity("train") != before


def test_a_position_is_not_valid_for_other_contents_of_the_same_size(tmp_path):
    path = write(tmp_path, "jsonl", LINES) / "train-0.jsonl"
    identity = lambda: CorpusSource(str(tmp_path), splits=["train"]).identity("train")
    before, data = identity(), path.read_bytes()
    path.write_bytes(data.replace(b"documentul 300", b"documentul 999"))
    assert {k for k, v in identity().items() if v != before[k]} == {"contents"}
    path.write_bytes(data)  # as a copy, at another time
    assert identity() == before


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
        with pytest.raises(ValueError, match="cannot be reached") as error:
            CorpusSource(files={"train": url}).peek("train", limit_s=0.1)
    assert isinstance(error.value, OSError)  # an entry point then suggests a retry


_ON_THE_HUB = """
import json, os, sys, time
sys.path[:0] = sys.argv[1:3]
pause = time.sleep  # the hub's client waits for up to 8 s before it asks again
time.sleep = lambda seconds: pause(min(seconds, 0.01))
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
from tasks.corpus.retry import RetryPolicy
from tasks.corpus.source import PARTS, RECORDS, CorpusSource

def attempt(corpus, limit=5, **kwargs):
    source = CorpusSource(corpus, retry_policy=RetryPolicy(limit, 0.01, 0.02), **kwargs)
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
listing = json.loads(json.dumps(CorpusSource("user/open").listing("train")))
asked = len(hub.log)
other.use_listing("train", listing)
found["identity"] = other.identity("train")
found["adopted"] = [x["text"].decode() for x in other.get_dataset("train", shuffle=False)
    .as_numpy_iterator()] == texts
found["lengths"] = [file[3] for file in listing]
found["lists"] = [p for _, p, _ in hub.log[asked:] if "/api/" in p]
from tasks.corpus import hub as hub_files
hub_files.load_repository.cache_clear()
hub.close()
found["away"] = attempt("user/secret", limit=0.05)
print("FOUND" + json.dumps(found))
"""


def test_hub_corpora_are_read_with_a_token_and_refused_in_sentences(tmp_path):
    root = ROOT
    args = [root, root / "tests", tmp_path]
    command = [sys.executable, "-c", _ON_THE_HUB, *map(str, args)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(result.stdout.split("FOUND")[1])
    assert found["open"] is found["right token"] is found["faults"] is True
    assert "is private, and no token is set" in found["no token"]
    assert "set HF_TOKEN or run `hf auth login`" in found["no token"]
    assert "your token may not read it" in found["wrong token"]
    assert found["none"].startswith("corpus 'user/none' is not on the hub")
    assert "has no configuration 'other'" in found["config"]
    assert "has no split 'dev', only train" in found["split"]
    assert all("@0123456789abcdef" in url for url in found["urls"])  # the commit is pinned
    assert found["identity"]["revision"] == "0123456789abcdef0123456789abcdef01234567"
    assert found["adopted"] is True
    assert all(length > 1000 for length in found["lengths"])
    assert found["lists"] == []  # what another host has listed is not asked for again
    assert "cannot be reached" in found["away"]


def test_offline_mode_is_reported_rather_than_retried():
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set"):
        CorpusSource("user/corpus").peek("train")
