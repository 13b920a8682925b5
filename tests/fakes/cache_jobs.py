"""Small jobs of tasks.cache, done in any order."""

import contextlib
import pathlib

import seqio

from tasks.cache import build, plan
from tasks.cache.plan import CacheJob

LENGTHS = {"inputs": 64, "targets": 14}


def job(out, **settings) -> CacheJob:
    settings = {"splits": ("validation",), "shards": 4, "part_bytes": 10 << 10, **settings}
    return CacheJob("ro_mini_span_corruption", str(out), **settings)


def finished(out, **settings) -> CacheJob:
    return job(out, lengths=tuple(LENGTHS.items()), epochs=2, **settings)


@contextlib.contextmanager
def global_caches(folders):
    """Let seqio look for caches in these folders alone."""
    before = [*seqio.utils.get_global_cache_dirs()]
    seqio.utils.set_global_cache_dirs(folders)
    try:
        yield
    finally:
        seqio.utils.set_global_cache_dirs(before)


def make(made: CacheJob, order=lambda items: items) -> dict:
    assert build.start(made)
    for part in order(plan.parts_of(made)):
        build.write_part(made, part)
    for shard in order(plan.shards_of(made)):
        build.write_shard(made, shard)
    return build.finish(made)


def files(made: CacheJob) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(pathlib.Path(made.folder).iterdir())}
