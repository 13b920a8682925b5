"""Of equal documents the first is kept, whatever the order of the work."""

import json

import seqio

from tasks import corpora
from tasks.cache import __main__ as cache
from tasks.cache import build, deduplicate, plan
from tasks.cache.plan import CacheJob
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


def test_hashes_are_those_of_the_bytes():
    assert deduplicate.hash_of(b"a") == deduplicate.hash_of(bytes([97]))
    assert deduplicate.hash_of(b"a") != deduplicate.hash_of(b"a ")
    assert 0 <= deduplicate.hash_of(b"") < 1 << 64
