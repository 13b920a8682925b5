"""Making a cache: from a task's documents to shuffled, sharded examples, by small resumable steps.

    write_part(job, Part("train", epoch=0, index=3))     # from documents to a part; all parts first
    write_shard(job, Shard("train", index=0))            # from parts to a shard
    finish(job)                                          # info, statistics, COMPLETED

The examples of a part are dealt to the shards of its group at random; then a shard collects what
it was dealt, shuffles it and becomes one TFRecord file. What a part or a shard holds follows from
the job alone, never from who writes it or when. Both are written under another name and renamed,
and what is there is not written again: so any number of workers give the same bytes, and a job
that was killed goes on. In memory are at most one shard, or CHUNK_BYTES of a part.

    FOLDER/task_i128_t29/train.tfrecord-00000-of-00016, info.train.json, stats.train.json, COMPLETED

That is what `seqio` reads. Shards of epoch 0 come first, then those of epoch 1, and so on.
"""

import dataclasses
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from tasks.cache import deduplicate
from tasks.cache.atomic_files import finished, read_json, renamed, write_json
from tasks.cache.plan import Job, Part, Shard, parts_of, plan_of, task_of

CHUNK_BYTES = 64 << 20
_HEAD = struct.Struct("<I")  # in front of each example of a part: its bytes
_one_at_a_time = threading.Lock()  # so that what a source counts is one part's


def _part_path(job: Job, part: Part) -> str:
    return f"{job.scratch}/{part.split}-{part.epoch}-{part.index:05d}"


def _shard_path(job: Job, shard: Shard) -> str:
    prefix = seqio.get_cached_tfrecord_prefix(job.folder, shard.split)
    return f"{prefix}-{shard.index:05d}-of-{plan_of(job, shard.split).shards * job.epochs:05d}"


def _rng(job: Job, *place) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(str(key).encode()) for key in (job.seed, *place)])


def examples_of(
    job: Job, part: Part, counts: dict[str, int] | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the examples of a part, always the same in the same order.

    `counts` takes the number of documents left out as repetitions, if the job asks for that.
    """
    task = task_of(job)
    # The order of documents follows from the epoch, the noise from the place.
    order = zlib.crc32(f"{job.seed} {part.epoch}".encode())
    noise = zlib.crc32(f"{job.seed} {part.epoch} {part.split} {part.index}".encode())
    info = seqio.ShardInfo(part.index, plan_of(job, part.split).parts)
    documents = task.source.get_dataset(part.split, shuffle=True, seed=order, shard_info=info)
    if job.unique:
        documents = deduplicate.keep_first(job, part, documents, {} if counts is None else counts)
    dataset = task.preprocess_precache(documents, seed=noise)
    options = tf.data.Options()
    options.deterministic = True
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def check(job: Job) -> None:
    """Builds the task's column for each split, reading nothing, so that what is wrong is said now.

    Raises:
      ValueError: what the source or a preprocessor refuses, such as targets that are too short.
    """
    task = task_of(job)
    for split in job.splits:
        info = seqio.ShardInfo(0, plan_of(job, split).parts)
        documents = task.source.get_dataset(split, shuffle=False, seed=0, shard_info=info)
        task.preprocess_precache(documents, seed=0)


def write_part(job: Job, part: Part) -> Part:
    """Writes a part and its index, if they are not there: examples by the shard they go to."""
    path = _part_path(job, part)
    if finished(f"{path}.json"):
        return part
    tf.io.gfile.makedirs(job.scratch)
    plan, rng = plan_of(job, part.split), _rng(job, *part)
    counter, bounds, records, size, written = Counter(task_of(job)), [], [], 0, 0
    with _one_at_a_time, renamed(job, f"{path}.records") as file:
        before, repeated = _records_read(job), {}

        def deal() -> int:
            """Writes what was gathered in the order of shards."""
            to = rng.integers(plan.dealt, size=len(records))
            ends = [written]
            for shard in range(plan.dealt):
                lot = b"".join(records[i] for i in np.flatnonzero(to == shard))
                file.write(lot)
                ends.append(ends[-1] + len(lot))
            bounds.append(ends)
            records.clear()
            return ends[-1]

        for example in examples_of(job, part, repeated):
            counter.add(example)
            data = seqio.dict_to_tfexample(example).SerializeToString(deterministic=True)
            records.append(_HEAD.pack(len(data)) + data)
            size += len(records[-1])
            if size >= CHUNK_BYTES:
                written, size = deal(), 0
        written = deal()
        after = _records_read(job)
    read = {name: after[name] - before.get(name, 0) for name in after}
    found = {"bounds": bounds, "records": {**read, **repeated}, **dataclasses.asdict(counter)}
    write_json(job, f"{path}.json", found)
    return part


def write_shard(job: Job, shard: Shard) -> Shard:
    """Writes a shard, if it is not there, from the parts of its group."""
    path = _shard_path(job, shard)
    if finished(path):
        return shard
    plan = plan_of(job, shard.split)
    epoch, index = divmod(shard.index, plan.shards)
    group, column = index % plan.groups, index // plan.groups
    records = []
    for i in range(group, plan.parts, plan.groups):
        part = _part_path(job, Part(shard.split, epoch, i))
        with tf.io.gfile.GFile(f"{part}.records", "rb") as file:
            for bounds in read_json(f"{part}.json")["bounds"]:
                file.seek(bounds[column])
                records += _split(file.read(bounds[column + 1] - bounds[column]))
    order = _rng(job, "order", *shard).permutation(len(records))
    with renamed(job, path, tf.io.TFRecordWriter) as file:
        for i in order:
            file.write(records[i])
    return shard


def _split(lot: bytes) -> list[bytes]:
    records, at = [], 0
    while at < len(lot):
        (size,) = _HEAD.unpack_from(lot, at)
        records.append(lot[at + _HEAD.size : at + _HEAD.size + size])
        at += _HEAD.size + size
    return records


@dataclasses.dataclass
class Counter:
    """What the examples of a part come to, in the words of seqio's info and statistics."""

    task: dataclasses.InitVar[seqio.Task]
    stats: dict[str, int] = dataclasses.field(default_factory=lambda: {"examples": 0})
    features: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self, task):
        self._no_tokens = {
            name: [feature.vocabulary.pad_id, feature.vocabulary.eos_id]
            for name, feature in task.output_features.items()
        }

    def add(self, example: dict[str, np.ndarray]) -> None:
        """Counts an example, and its tokens other than padding and EOS."""
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


def _records_read(job: Job) -> dict[str, int]:
    """What this process has read of the job's corpus so far, {} if its source does not count."""
    counts = getattr(task_of(job).source, "record_counts", dict)()
    return {name: n for name, n in counts.items() if name != "epochs"}


def finish(job: Job) -> dict[str, dict[str, Any]]:
    """Writes info and statistics of each split and COMPLETED, removes the parts; {split: stats}.

    Beside seqio's numbers the statistics have what the corpus was read for: records read and
    skipped by reason, and the examples of each epoch.
    """
    found = {}
    for split in job.splits:
        parts = [part for part in parts_of(job) if part.split == split]
        read = [read_json(f"{_part_path(job, part)}.json") for part in parts]
        stats = _merged([each["stats"] for each in read])
        stats["records"] = _merged([each["records"] for each in read])
        stats["epochs"] = [
            sum(e["stats"]["examples"] for e, p in zip(read, parts, strict=True) if p.epoch == n)
            for n in range(job.epochs)
        ]
        info = {
            "num_shards": plan_of(job, split).shards * job.epochs,
            "features": next((each["features"] for each in read if each["features"]), {}),
            "seqio_version": seqio.__version__,
        }
        write_json(job, seqio.get_cached_info_path(job.folder, split), info)
        write_json(job, seqio.get_cached_stats_path(job.folder, split), stats)
        found[split] = stats
    with renamed(job, f"{job.folder}/COMPLETED"):
        pass
    tf.io.gfile.rmtree(job.scratch)
    return found


def _merged(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Sums by name, but the greatest of what is named so."""
    names = {name: None for each in counts for name in each}
    merge = lambda name: max if name.endswith("_max_tokens") else sum
    return {name: merge(name)(each.get(name, 0) for each in counts) for name in names}
