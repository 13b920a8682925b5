"""Make a cache: from documents to shuffled, sharded examples, in small resumable steps.

    write_part(job, CachePart("train", epoch=0, number=3))   # documents to a part; all parts first
    write_shard(job, CacheShard("train", number=0))          # parts to a shard
    finish(job)                                             # info, statistics, COMPLETED

The examples of a part are dealt at random to the shards of its group; a shard then collects its
examples, shuffles them and becomes one TFRecord file. The content of a part or shard depends on the
job alone, not on who writes it or when. Both are written under another name and renamed, and
existing ones are not written again: any number of workers give the same bytes, and a killed job
resumes. Memory holds at most one shard, or CHUNK_BYTES of a part.

    FOLDER/task_i128_t29/train.tfrecord-00000-of-00016, info.train.json, stats.train.json, COMPLETED

This is the layout that `seqio` reads. Shards of epoch 0 come first, then epoch 1's, etc.
"""

import contextlib
import dataclasses
import json
import struct
import threading
import uuid
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from common import small_files
from common.errors import UserError
from common.source import source_of
from tasks import vocabularies
from tasks.cache.plan import CacheJob, CachePart, CacheShard, parts_of, plan_of, task_of
from tasks.corpus.records.counts import MADE
from tasks.corpus.source import PARTS, CorpusSource
from tasks.task import cached_settings

CHUNK_BYTES = 64 << 20
_HEADER = struct.Struct("<I")  # precedes each example of a part: its bytes
exists = tf.io.gfile.exists
_one_at_a_time = threading.Lock()  # a source counts one part at a time


@contextlib.contextmanager
def renamed(job: CacheJob, path: str) -> Iterator[str]:
    """Yield a path to write to, and rename it to `path` when all has been written."""
    tf.io.gfile.makedirs(job.scratch)
    unfinished = f"{job.scratch}/{uuid.uuid4().hex}.writing"
    yield unfinished
    tf.io.gfile.rename(unfinished, path, overwrite=True)


def write_json(job: CacheJob, path: str, value) -> None:
    """Write `value` as JSON with sorted keys."""
    with renamed(job, path) as unfinished, tf.io.gfile.GFile(unfinished, "w") as file:
        file.write(json.dumps(value, indent=2, sort_keys=True))


def read_json(path: str) -> Any:
    """Return the value in a JSON file of a cache, or raise UserError."""
    with small_files.parsing(path, "remove this cache and make it again"):
        return small_files.read_json(path)


def start(job: CacheJob) -> bool:
    """Write the job's description; return whether work is left.

    Raises:
      UserError: the folder holds a cache of another job, or of a corpus or vocabulary that has
        changed.
    """
    path, task = f"{job.folder}/job.json", task_of(job)
    contents = {split: source_of(task).identity(split) for split in job.splits}
    # Caches that were made before have none of these.
    optional = {
        "contents": contents,
        "vocabularies": vocabularies.contents(task),
        "settings": cached_settings(task),
    }
    corpus = {split: list(task.source.list_shards(split)) for split in job.splits}
    described = {**dataclasses.asdict(job), "corpus": corpus, **optional}
    description = json.loads(json.dumps(described))
    del description["out"]
    if not exists(path):
        write_json(job, path, description)
    saved = {name: description[name] for name in optional} | read_json(path)
    if names := [name for name in description if saved.get(name) != description[name]]:
        saved_value, value = saved.get(names[0]), description[names[0]]
        raise UserError(
            job.folder,
            why=f"holds a cache made with another {', '.join(names)} ({saved_value!r}, not "
            f"{value!r})",
            to_set="give another --out, or remove that folder",
        )
    return not exists(f"{job.folder}/COMPLETED")


def _part_path(job: CacheJob, part: CachePart) -> str:
    return f"{job.scratch}/{part.split}-{part.epoch}-{part.number:05d}"


def _shard_path(job: CacheJob, shard: CacheShard) -> str:
    prefix = seqio.get_cached_tfrecord_prefix(job.folder, shard.split)
    return f"{prefix}-{shard.number:05d}-of-{plan_of(job, shard.split).shards * job.epochs:05d}"


def _rng(job: CacheJob, *key) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(str(part).encode()) for part in (job.seed, *key)])


def examples(job: CacheJob, part: CachePart) -> tf.data.Dataset:
    """Return the examples of a part, always in the same order."""
    task = task_of(job)
    # The order of documents depends on the epoch, the noise on the part.
    order = zlib.crc32(f"{job.seed} {part.epoch}".encode())
    noise = zlib.crc32(f"{job.seed} {part.epoch} {part.split} {part.number}".encode())
    info = seqio.ShardInfo(part.number, plan_of(job, part.split).parts)
    # A part is read by itself; its examples are then dealt to shards and shuffled there.
    by_parts = {"order": PARTS} if isinstance(task.source, CorpusSource) else {}
    documents = task.source.get_dataset(
        part.split, shuffle=True, seed=order, shard_info=info, **by_parts
    )
    dataset = task.preprocess_precache(documents, seed=noise)
    options = tf.data.Options()
    options.deterministic = True
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)


def check_pipelines(job: CacheJob) -> None:
    """Build the task's pipeline for each split, without reading, to raise its errors early."""
    for split in job.splits:
        examples(job, CachePart(split, epoch=0, number=0))


def write_part(job: CacheJob, part: CachePart) -> None:
    """Write a part's examples, grouped by shard, and its index, unless they exist."""
    path = _part_path(job, part)
    if exists(f"{path}.json"):
        return
    n_shards, rng = plan_of(job, part.split).dealt, _rng(job, *part)
    stats = ExampleStats(task_of(job))
    bounds: list[list[int]] = []
    records: list[bytes] = []
    size = written = 0

    with (
        _one_at_a_time,
        renamed(job, f"{path}.records") as unfinished,
        tf.io.gfile.GFile(unfinished, "wb") as file,
    ):
        file.write(b"")  # otherwise an empty file would not be created
        before = _records_read(job)

        def deal() -> int:
            """Write the collected records shard by shard; return the end of the file."""
            shard_of = rng.integers(n_shards, size=len(records))
            ends = [written]
            for shard in range(n_shards):
                dealt = b"".join(records[i] for i in np.flatnonzero(shard_of == shard))
                file.write(dealt)
                ends.append(ends[-1] + len(dealt))
            bounds.append(ends)
            records.clear()
            return ends[-1]

        for example in examples(job, part).as_numpy_iterator():
            stats.add(example)
            data = seqio.dict_to_tfexample(example).SerializeToString(deterministic=True)
            records.append(_HEADER.pack(len(data)) + data)
            size += len(records[-1])
            if size >= CHUNK_BYTES:
                written, size = deal(), 0
        written = deal()
        counts = {name: n - before.get(name, 0) for name, n in _records_read(job).items()}
    index = {"bounds": bounds, "records": counts, **dataclasses.asdict(stats)}
    write_json(job, f"{path}.json", index)


def write_shard(job: CacheJob, shard: CacheShard) -> None:
    """Write a shard from the parts of its group, unless it exists."""
    path = _shard_path(job, shard)
    if exists(path):
        return
    plan = plan_of(job, shard.split)
    epoch, index = divmod(shard.number, plan.shards)
    group, column = index % plan.groups, index // plan.groups
    records: list[bytes] = []
    for i in range(group, plan.parts, plan.groups):
        part = _part_path(job, CachePart(shard.split, epoch, i))
        with tf.io.gfile.GFile(f"{part}.records", "rb") as file:
            for bounds in read_json(f"{part}.json")["bounds"]:
                file.seek(bounds[column])
                records += _split_records(file.read(bounds[column + 1] - bounds[column]))
    order = _rng(job, "order", *shard).permutation(len(records))
    with renamed(job, path) as unfinished, tf.io.TFRecordWriter(unfinished) as file:
        for i in order:
            file.write(records[i])


def _split_records(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (size,) = _HEADER.unpack_from(data, at)
        at += _HEADER.size + size
        yield data[at - size : at]


@dataclasses.dataclass
class ExampleStats:
    """The features and counts of a part's examples, named as in seqio's info and statistics."""

    task: dataclasses.InitVar[seqio.Task]
    stats: dict[str, int] = dataclasses.field(default_factory=lambda: {"examples": 0})
    features: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self, task):
        self._no_tokens = {
            name: [feature.vocabulary.pad_id, feature.vocabulary.eos_id]
            for name, feature in vocabularies.token_features(task).items()
        }

    def add(self, example: dict[str, np.ndarray]) -> None:
        """Count an example, and its tokens other than padding and EOS."""
        if not self.features:
            self.features = {name: _feature(value) for name, value in example.items()}
        self.stats["examples"] += 1
        for name, others in self._no_tokens.items():
            if name in example:
                tokens = int((~np.isin(example[name], others)).sum())
                total, most = f"{name}_tokens", f"{name}_max_tokens"
                self.stats[total] = self.stats.get(total, 0) + tokens
                self.stats[most] = max(self.stats.get(most, 0), tokens)


def _feature(value) -> dict[str, Any]:
    value = np.asarray(value)
    shape = [None, *value.shape[1:]] if value.shape else []
    return {"shape": shape, "dtype": "string" if value.dtype.kind in "OSU" else value.dtype.name}


def _records_read(job: CacheJob) -> dict[str, int]:
    """Return this process's record counts of the corpus, {} if its source does not count."""
    source = task_of(job).source
    counts = source.record_counts() if isinstance(source, CorpusSource) else {}
    return {name: n for name, n in counts.items() if name not in ("epochs", MADE)}


def finish(job: CacheJob) -> dict[str, dict[str, Any]]:
    """Write info, statistics and COMPLETED, delete the parts; return {split: statistics}.

    Besides seqio's numbers the statistics have the records read and skipped by reason, and the
    examples of each epoch.
    """
    statistics = {}
    for split in job.splits:
        parts = [part for part in parts_of(job) if part.split == split]
        indices = [read_json(f"{_part_path(job, part)}.json") for part in parts]
        stats: dict[str, Any] = _merge([index["stats"] for index in indices])
        stats["records"] = _merge([index["records"] for index in indices])
        stats["epochs"] = [
            sum(
                index["stats"]["examples"]
                for index, part in zip(indices, parts, strict=True)
                if part.epoch == epoch
            )
            for epoch in range(job.epochs)
        ]
        info = {
            "num_shards": plan_of(job, split).shards * job.epochs,
            "features": next((index["features"] for index in indices if index["features"]), {}),
            "seqio_version": seqio.__version__,
        }
        write_json(job, seqio.get_cached_info_path(job.folder, split), info)
        write_json(job, seqio.get_cached_stats_path(job.folder, split), stats)
        statistics[split] = stats
    write_json(job, f"{job.folder}/COMPLETED", {})
    tf.io.gfile.rmtree(job.scratch)
    return statistics


def _merge(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return the sum of each name, and the maximum of <name>_max_tokens."""
    names = {name: None for part in counts for name in part}
    merge = lambda name: max if name.endswith("_max_tokens") else sum
    return {name: merge(name)(part.get(name, 0) for part in counts) for name in names}
