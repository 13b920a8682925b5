"""A corpus on a faulty web server arrives completely and in order, or reading ends in an error.

Each format is read from each kind of server with each fault, at a request that follows from the
seed. See tests/fakes/file_server.py.
"""

import pathlib
import random

import pytest

from fakes.corpora import write
from fakes.file_server import FileServer, forget_files
from tasks.corpus.records import formats
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage.retry import RetryPolicy

FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "txt", "parquet")
SERVERS = {
    "ranges, ETag": {},
    "ranges, weak ETag": {"version": "weak ETag"},
    "ranges, Last-Modified": {"version": "Last-Modified"},
    "ranges, no version": {"version": None},
    "ranges, ignores If-Range": {"obeys": False},
    "length, ETag": {"ranges": False},
    "length, no version": {"ranges": False, "version": None},
    "chunks, ETag": {"ranges": False, "ends": "chunks"},
    "no mark of the end, ETag": {"ranges": False, "ends": "nothing"},
}
REPLACED, SHORTENED = "replaced", "replaced by half"
FAULTS = (None, 503, 404, "cut", "other range", "half size", REPLACED, SHORTENED)
RECORDS = [f"{i} {'abcdefghij' * (i % 9)}" for i in range(600)]
COMPLETE, REFUSED = "complete", "refused"
POLICY = RetryPolicy(limit_s=2, first_s=0.01, longest_s=0.05)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", 8 << 10)


def outcome(folder: pathlib.Path, kind: str, server: str, fault, request: int = 0) -> str:
    """Read a corpus from a server with a fault at a request, and return what became of it."""
    forget_files()
    write(folder, kind, RECORDS)
    with FileServer(folder, **SERVERS[server]) as files:
        address = {"train": f"{files.url}/train-0.{kind}"}
        source = CorpusSource(files=address, held_out={}, retry_policy=POLICY)
        if fault not in (None, REPLACED, SHORTENED):
            files.faults = [fault] + [None] * request
        got: list[str] = []
        try:
            for record in source.get_dataset("train", shuffle=False).as_numpy_iterator():
                if fault in (REPLACED, SHORTENED) and not got:
                    write(folder, kind, _other(fault, SERVERS[server].get("version", "ETag")))
                got.append(record["text"].decode().split("\n")[0])
        except Exception:
            return REFUSED
    return COMPLETE if got == RECORDS else f"{len(got)} of {len(RECORDS)} records, or others"


def _other(fault: str, version: str | None) -> list[str]:
    """Return other records, of the same length if the server sends a version of the file."""
    if fault == SHORTENED:
        return RECORDS[: len(RECORDS) // 2]
    longer = "" if version else "longer"  # without a version only a length can be compared
    return [f"{record}{longer}"[::-1] for record in RECORDS]


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", FORMATS)
def test_no_fault_loses_a_record_in_silence(tmp_path, kind, server):
    rng = random.Random(f"{kind} {server}")
    outcomes = {fault: outcome(tmp_path, kind, server, fault, rng.randrange(4)) for fault in FAULTS}
    # Text without a mark of its end may be cut, so it is refused.
    assert outcomes[None] == COMPLETE or server == "no mark of the end, ETag", outcomes
    assert set(outcomes.values()) <= {COMPLETE, REFUSED}, outcomes


@pytest.mark.parametrize(
    ("server", "fault", "wanted"),
    [
        ("ranges, ETag", None, COMPLETE),
        ("ranges, ETag", "other range", COMPLETE),
        ("no mark of the end, ETag", 404, REFUSED),
    ],
)
def test_some_faults_are_outlived_and_others_end_the_reading(tmp_path, server, fault, wanted):
    for kind in ("jsonl", "jsonl.zst"):
        assert outcome(tmp_path, kind, server, fault) == wanted
