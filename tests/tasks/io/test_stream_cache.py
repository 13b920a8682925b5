"""Ranges that were read are cached within the bound; the next ones are fetched ahead."""

import errno
import os
import signal
import threading
import time
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio
import zstandard

from fakes.file_server import FileServer
from fakes.paths import ROOT
from fakes.pods import Pod
from t5x import batches, train
from t5x.input_pipeline.config import DatasetConfig
from tasks import corpora, vocabularies
from tasks.io import formats, http_files, retry, stream_cache
from tasks.io.stream_cache import StreamCache
from tasks.sources import PARTS, CorpusSource

QUICK = retry.RetryPolicy(limit_s=20, first_s=0.01, longest_s=0.02)
TEXTS = [f"documentul {i} " + "x" * (i * 7 % 300) for i in range(800)]


@pytest.fixture
def kept(tmp_path):
    stream_cache.enable(str(tmp_path / "spool"), gigabytes=1.0)
    yield stream_cache.current
    stream_cache.enable(None)


def test_a_range_is_fetched_once_and_found_by_the_next_process(tmp_path):
    fetched = []
    fetch = lambda: fetched.append(1) or b"abc"
    for _ in range(2):
        kept = StreamCache(str(tmp_path), 100)
        assert kept.read("http://a/b", 3, 6, fetch) == b"abc"
    assert len(fetched) == 1
    assert kept.read("http://a/b", 0, 6, lambda: b"012345") == b"012345"  # another range


def test_a_damaged_entry_is_fetched_again(tmp_path):
    kept = StreamCache(str(tmp_path), 100)
    kept.read("u", 0, 3, lambda: b"abc")
    (piece,) = tmp_path.glob("*.piece")
    piece.write_bytes(b"a")
    assert kept.read("u", 0, 3, lambda: b"abc") == b"abc"
    assert piece.read_bytes() == b"abc"


def test_the_oldest_entries_are_deleted_at_the_bound(tmp_path):
    kept = StreamCache(str(tmp_path), 100)
    for i in range(5):
        kept.read("u", i * 30, i * 30 + 30, lambda: bytes(30))
        for path in tmp_path.glob(f"*-{i * 30}-*.piece"):
            os.utime(path, (i, i))
    starts = sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("*.piece"))
    assert starts == [60, 90, 120]
    assert sum(p.stat().st_size for p in tmp_path.glob("*.piece")) <= 100
    reopened = StreamCache(str(tmp_path), 100)
    reopened.read("u", 500, 530, lambda: bytes(30))
    assert not list(tmp_path.glob("*-60-90.piece"))


def test_a_copy_of_a_file_continues_where_it_was_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_cache, "CHUNK_BYTES", 4)
    asked = []

    def fetch(start, stop):
        asked.append((start, stop))
        if len(asked) == 2:
            raise ConnectionError
        return b"0123456789"[start:stop]

    kept = StreamCache(str(tmp_path), 100)
    with pytest.raises(ConnectionError):
        kept.open_copy("u", 10, fetch)
    again = StreamCache(str(tmp_path), 100)
    with again.open_copy("u", 10, fetch) as file:
        assert file.read() == b"0123456789"
    assert asked == [(0, 4), (4, 8), (4, 8), (8, 10)]


def test_a_copy_is_right_if_the_process_that_was_writing_it_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_cache, "CHUNK_BYTES", 4)
    waiting = threading.Event()
    found = []

    def fetch(start, stop):
        return b"0123456789"[start:stop]

    def fail(start, stop):
        if start == 0:
            return fetch(start, stop)
        second.start()  # opens the unfinished copy, and waits for the lock on it
        assert waiting.wait(20)
        time.sleep(0.1)
        raise ConnectionError

    def read():
        with StreamCache(str(tmp_path), 100).open_copy("u", 10, fetch) as file:
            found.append(file.read())

    lock = stream_cache.fcntl.flock
    monkeypatch.setattr(
        stream_cache.fcntl,
        "flock",
        lambda *call: (threading.current_thread() is second and waiting.set(), lock(*call)),
    )
    second = threading.Thread(target=read)
    with pytest.raises(ConnectionError):
        StreamCache(str(tmp_path), 100).open_copy("u", 10, fail)
    second.join(20)
    assert found == [b"0123456789"]


def test_a_copy_that_is_in_use_may_be_deleted_and_a_used_one_goes_last(tmp_path):
    kept = StreamCache(str(tmp_path), 10)
    fetch = lambda start, stop: b"abcd"[start:stop]
    for age, url in enumerate("uv"):
        kept.open_copy(url, 4, fetch).close()
        newest = max(tmp_path.glob("*.piece"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (age, age))
    with kept.open_copy("u", 4, fetch) as used:  # now younger than the other one
        kept.open_copy("w", 4, fetch).close()
        kept.open_copy("u", 4, None).close()  # still there
        kept.open_copy("x", 4, fetch).close()
        kept.open_copy("y", 4, fetch).close()
        assert used.read() == b"abcd"


def test_a_full_disk_leaves_an_entire_file_to_its_server(tmp_path, monkeypatch):
    monkeypatch.setattr(StreamCache, "_add", Mock(side_effect=OSError(errno.ENOSPC, "full")))
    kept = StreamCache(str(tmp_path), 100)
    assert kept.open_copy("u", 4, lambda start, stop: b"abcd"[start:stop]) is None


def test_concurrent_readers_of_one_entry_fetch_it_once(tmp_path):
    kept, fetched = StreamCache(str(tmp_path), 100), []

    def fetch():
        fetched.append(1)
        time.sleep(0.05)
        return b"abc"

    threads = [threading.Thread(target=kept.read, args=("u", 0, 3, fetch)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1


def test_an_unusable_folder_or_bound_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"STREAM_CACHE_DIR is .*file/a, which is not writable"):
        StreamCache(str(tmp_path / "file/a"), 100)
    with pytest.raises(ValueError, match="STREAM_CACHE_GB must be above 0"):
        StreamCache(str(tmp_path), 0)


def _corpus(folder, kind):
    lines = "".join(f'{{"text": "{t}"}}\n' for t in TEXTS).encode()
    if kind == "parquet":
        pq.write_table(pa.table({"text": TEXTS}), folder / "a.parquet", row_group_size=100)
    else:
        data = zstandard.compress(lines) if kind == "jsonl.zst" else lines
        (folder / f"a.{kind}").write_bytes(data)


def _wait_until_quiet(server, seconds=30.0):
    end, asked = time.monotonic() + seconds, -1
    while asked != len(server.asked):
        assert time.monotonic() < end
        asked = len(server.asked)
        time.sleep(0.3)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "jsonl.zst"])
def test_reading_continues_while_the_server_is_down(tmp_path, kept, monkeypatch, kind):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 16384)
    _corpus(tmp_path, kind)
    size = (tmp_path / f"a.{kind}").stat().st_size
    with FileServer(tmp_path) as server:
        files = {"train": f"{server.url}/a.{kind}"}

        def start():
            source = CorpusSource(files=files, retry_policy=QUICK)
            return iter(source.get_dataset("train", seed=1, order=PARTS))

        texts = start()
        read = [next(texts)["text"].numpy()]
        _wait_until_quiet(server)
        server.down = True
        read += [x["text"].numpy() for x in texts]
        assert sorted(read) == sorted(t.encode() for t in TEXTS)
        assert [x["text"].numpy() for x in start()][:1] == read[:1]  # from its beginning again
    if kind != "parquet":  # whose end is read first, here nearly all of it
        assert sum(server.sent.values()) <= 1.1 * size


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.zst"])
def test_entries_are_those_of_one_version_of_a_file(tmp_path, kept, kind):
    found = []
    with FileServer(tmp_path) as server:
        for text in ("a" * 50, "b" * 50):
            lines = f'{{"text": "{text}"}}\n'.encode()
            data = zstandard.compress(lines) if kind == "jsonl.zst" else lines
            (tmp_path / f"a.{kind}").write_bytes(data)
            http_files.probe.cache_clear()  # as in a new process
            files = {"train": f"{server.url}/a.{kind}"}
            found.append(CorpusSource(files=files, retry_policy=QUICK).peek("train", 1))
    assert found == [["a" * 50], ["b" * 50]]


def test_reading_ahead_stays_within_half_of_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 4096)
    _corpus(tmp_path, "jsonl")
    stream_cache.enable(str(tmp_path / "spool"), gigabytes=60e-6)
    with FileServer(tmp_path) as server:
        source = CorpusSource(files={"train": f"{server.url}/a.jsonl"}, retry_policy=QUICK)
        texts = iter(source.get_dataset("train", seed=1, order=PARTS))
        next(texts)
        _wait_until_quiet(server)
        assert 20_000 < sum(server.sent.values()) < 45_000
        assert len(list(texts)) == len(TEXTS) - 1
    assert sum(p.stat().st_size for p in (tmp_path / "spool").glob("*.piece")) <= 60_000
    stream_cache.enable(None)


def test_a_training_stream_survives_an_outage_if_the_environment_names_a_cache(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 16384)
    monkeypatch.setenv("STREAM_CACHE_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("STREAM_CACHE_GB", "0.1")
    (tmp_path / "served").mkdir()
    _corpus(tmp_path / "served", "jsonl")
    with FileServer(tmp_path / "served") as server:
        source = CorpusSource(files={"train": f"{server.url}/a.jsonl"}, retry_policy=QUICK)
        corpora.add("spooled", source, vocabularies.ro_mini_model)
        lengths = {"inputs": 64, "targets": 64}
        cfg = DatasetConfig("spooled", lengths, "train", 8, True, 0, pack=True)
        try:
            train.enable_stream_cache({"train": cfg, "train_eval": None})
            assert stream_cache.current is not None
            stream = batches.TrainStream(cfg, seqio.EncDecFeatureConverter, (0, 8), 0, shards=1)
            next(stream)
            _wait_until_quiet(server)
            server.down = True
            while stream.counts()["spooled"]["epochs"] < 2:  # from the cache alone
                next(stream)
        finally:
            stream_cache.enable(None)
    assert any((tmp_path / "spool").rglob("*"))


_TASK = """
from tasks import corpora, vocabularies
from tasks.sources import CorpusSource
corpora.add("far_away", CorpusSource(files={{"train": "{}"}}), vocabularies.ro_mini_model)
"""
_RUN = """
MIXTURE_OR_TASK_MODULE = 'far_away_task'
MIXTURE_OR_TASK_NAME = 'far_away'
"""


@pytest.mark.slow
def test_a_run_survives_an_outage_and_reads_everything_over_the_network_once(tmp_path):
    (tmp_path / "served").mkdir()
    _corpus(tmp_path / "served", "jsonl")
    size = (tmp_path / "served/a.jsonl").stat().st_size
    environment = {
        "PYTHONPATH": f"{ROOT}:{tmp_path}",
        "STREAM_CACHE_DIR": str(tmp_path / "spool"),
        "STREAM_CACHE_GB": "0.1",
    }
    with FileServer(tmp_path / "served") as server:
        (tmp_path / "far_away_task.py").write_text(_TASK.format(f"{server.url}/a.jsonl"))
        with Pod(tmp_path / "run", 1_000_000, bindings=_RUN, environment=environment) as pod:
            looked_at = 1 << 16  # by the check of the first record
            pod.wait_for(lambda: sum(server.sent.values()) >= size + looked_at)
            pod.wait_for(pod.saved)
            _wait_until_quiet(server)
            server.down = True
            behind = max(pod.saved()) + 300  # of 8 x 64 tokens: more than there are letters
            pod.wait_for(lambda: max(pod.saved()) >= behind, 550)
            pod.send(0, signal.SIGINT)
            assert pod.ends(within=90) == [0], pod.said()
    assert sum(server.sent.values()) <= 1.1 * (size + looked_at)
