"""A corpus from a server with a fault arrives completely or is refused, never in part."""

import random

import pytest

from benchmarks import attack_servers
from tasks.io import formats


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.zst"])
@pytest.mark.parametrize(
    ("server", "fault", "outcome"),
    [
        ("ranges, ETag", "none", attack_servers.COMPLETE),
        ("ranges, ETag", "other range", attack_servers.COMPLETE),
        ("no mark of the end, ETag", 404, attack_servers.REFUSED),
    ],
)
def test_outcomes(tmp_path, monkeypatch, kind, server, fault, outcome):
    monkeypatch.setattr(formats, "REMOTE_PART_BYTES", attack_servers.PART_BYTES)
    monkeypatch.setattr(random.Random, "randrange", lambda *_: 0)  # at the first request
    rng = random.Random(0)
    assert attack_servers.attack(tmp_path, kind, server, fault, rng) == outcome


def test_records_that_are_missing_are_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(attack_servers, "RECORDS", attack_servers.RECORDS[:20])
    real = attack_servers.write
    monkeypatch.setattr(attack_servers, "write", lambda *a: real(*a[:2], a[2][:-1]))
    got = attack_servers.attack(tmp_path, "txt", "ranges, ETag", "none", random.Random(0))
    assert got.startswith("lost: 19 of 20 records")
