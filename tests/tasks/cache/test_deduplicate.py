"""Of equal documents the first is kept, whatever the order of the work."""

import json

import seqio

from tasks import corpora, text_to_text
from tasks.cache import __main__ as cache
from tasks.cache import build, deduplicate, plan
from tasks.cache.plan import CacheJob
from tasks.rows import Rows
from tasks.sources import CorpusSource


def test_unique_keeps_each_text_once(tmp_path):
    lines = [json.dumps({"text": f"Rândul {n % 30} al unui text oarecare."}) for n in range(70)]
    for i, some in enumerate((lines[:35], lines[35:])):
        (tmp_path / f"train-{i}.jsonl").write_text("\n".join(some))
    source = CorpusSource(files={"train": str(tmp_path / "*.jsonl")})
    corpora.add("twice", source, "data/ro_mini/ro_mini.model")
    try:
        out = str(tmp_path / "out")
        made = CacheJob("twice", out, splits=("train",), part_bytes=1 << 10, unique=True)
        assert cache.start(made)
        for _, items, function in cache.stages(made):
            for item in reversed(items):
                function(item)
        stats = build.finish(made)["train"]
        assert plan.plan_of(made, "train").parts == 2
        assert (stats["examples"], stats["records"]["skipped_duplicate"]) == (30, 40)
    finally:
        seqio.TaskRegistry.remove("twice")


def test_rows_are_equal_if_all_their_columns_are(tmp_path):
    rows = [{"a": f"x {n % 3}", "b": f"y {n % 2}"} for n in range(20)]  # six different ones
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"inputs": "a", "targets": "b"}
    source = Rows(files={"train": str(tmp_path / "train.jsonl")}, columns=columns)
    text_to_text.add("pairs_twice", source, "data/ro_mini/ro_mini.model", metrics=("chrf",))
    try:
        made = CacheJob("pairs_twice", str(tmp_path / "out"), splits=("train",), unique=True)
        assert cache.start(made)
        for _, items, function in cache.stages(made):
            for item in items:
                function(item)
        stats = build.finish(made)["train"]
        assert (stats["examples"], stats["records"]["skipped_duplicate"]) == (6, 14)
    finally:
        seqio.TaskRegistry.remove("pairs_twice")


def test_hashes_are_those_of_the_bytes():
    assert deduplicate.hash_of(b"a") == deduplicate.hash_of(bytes([97]))
    assert deduplicate.hash_of(b"a") != deduplicate.hash_of(b"a ")
    assert 0 <= deduplicate.hash_of(b"") < 1 << 64
