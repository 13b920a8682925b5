"""A corpus from a server with a fault arrives completely or is refused, never in part."""

import random

import pytest

from benchmarks.attacks import servers
from tasks.io import formats


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.zst"])
@pytest.mark.parametrize(
    ("server", "fault", "outcome"),
    [
        ("ranges, ETag", "none", servers.COMPLETE),
        ("ranges, ETag", "other range", servers.COMPLETE),
        ("no mark of the end, ETag", 404, servers.REFUSED),
    ],
)
def test_outcomes(tmp_path, monkeypatch, kind, server, fault, outcome):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", servers.PART_BYTES)
    monkeypatch.setattr(random.Random, "randrange", lambda *_: 0)  # at the first request
    rng = random.Random(0)
    assert servers.attack(tmp_path, kind, server, fault, rng) == outcome


def test_records_that_are_missing_are_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "RECORDS", servers.RECORDS[:20])
    real = servers.write
    monkeypatch.setattr(servers, "write", lambda *a: real(*a[:2], a[2][:-1]))
    got = servers.attack(tmp_path, "txt", "ranges, ETag", "none", random.Random(0))
    assert got.startswith("lost: 19 of 20 records")
