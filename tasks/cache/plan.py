"""What a cache is to hold, and how the work on it is cut: the same for any number of workers.

    job = Job(task="ro_mini_span_corruption", out="/data/caches", lengths=(("inputs", 128), ...))
    task_of(job)                    # the seqio task, registered
    plan_of(job, "train")           # Plan(parts=64, groups=1, dealt=16)
    parts_of(job), shards_of(job)   # all there is to do, see `tasks.cache.build`

A split is read in *parts*, shares of the corpus, 64 of them or as many as have 64 MiB of text. At
most 64 parts are a *group*, which shares its shards with no other: so the work grows with the
corpus and no faster.
"""

import dataclasses
import functools
import importlib
from typing import NamedTuple

import seqio

import gin
from tasks import caches
from tasks.io import files

PART_BYTES = (1 << 20, 64 << 20)  # of text, least and most; between them, a 64th of the split
LEAST_BYTES = 4 << 10  # of a part of a file of lines
GROUP_PARTS = 64
SHARD_BYTES = 64 << 20
LEAST_SHARDS = 16


class Part(NamedTuple):
    """A share of a split in one epoch."""

    split: str
    epoch: int
    index: int


class Shard(NamedTuple):
    """A file of a finished split; `index` counts through all epochs."""

    split: str
    index: int


@dataclasses.dataclass(frozen=True)
class Job:
    """What is made; equal jobs make equal bytes.

    Attributes:
      task: a registered task.
      out: the folder of caches, local or gs://.
      lengths: (feature, tokens) pairs of finished examples; () caches what stands before the
        task's own placeholder, its documents' tokens.
      epochs: how many times the corpus is hidden, each time elsewhere.
      splits: of the task.
      seed: of order and noise.
      shards: files an epoch and split; 0 for as many as the corpus's size asks for.
      part_bytes: text a part; 0 for what the corpus's size asks for.
      unique: leave out documents that repeat another of the split, see `tasks.cache.deduplicate`.
      modules: imported first, for their registrations.
      bindings: gin bindings, 'tasks.vocabularies.ro_model.path = "..."'.
    """

    task: str
    out: str
    lengths: tuple[tuple[str, int], ...] = ()
    epochs: int = 1
    splits: tuple[str, ...] = ("train", "validation")
    seed: int = 0
    shards: int = 0
    part_bytes: int = 0
    unique: bool = False
    modules: tuple[str, ...] = ("tasks.romanian",)
    bindings: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Where the cache lies."""
        name = (
            caches.pregenerated_name(self.task, dict(self.lengths)) if self.lengths else self.task
        )
        return f"{self.out.rstrip('/')}/{seqio.get_task_dir_from_name(name)}"

    @property
    def scratch(self) -> str:
        """Where parts and unfinished files lie, until `finish`."""
        return f"{self.folder}/unfinished"


@functools.lru_cache(maxsize=4)
def task_of(job: Job) -> seqio.Task:
    """Returns the task whose cache `job` is, registered in this process.

    Raises:
      ValueError: there is no such task or split, it has no place for a cache, or several epochs are
        asked for of tokens, which are the same in each.
    """
    for module in job.modules:
        importlib.import_module(module)
    gin.parse_config(job.bindings, skip_unknown=False)
    if job.task not in seqio.TaskRegistry.names():
        raise ValueError(
            f"--task is {job.task!r}, which {', '.join(job.modules)} does not register; give the "
            "module that does by --module"
        )
    if job.lengths:
        task = caches.add_pregenerated(job.task, dict(job.lengths))
    else:
        task = seqio.TaskRegistry.get(job.task)
        if not task.supports_caching:
            raise ValueError(
                f"task {job.task} has no seqio.CacheDatasetPlaceholder: put one into its "
                "preprocessors, or give --lengths, which caches finished examples"
            )
    if job.epochs != 1 and not (job.lengths or task.requires_caching):
        raise ValueError(
            f"--epochs is {job.epochs}, but task {job.task} is cached before its tokens are "
            "hidden, so that all epochs are one; give --lengths (such as inputs=512,targets=114) "
            "to hide them before, or leave --epochs out: training hides them anew in each epoch"
        )
    unknown = set(job.splits) - set(task.splits)
    if unknown:
        raise ValueError(
            f"--splits names {', '.join(sorted(unknown))}, but task {job.task} has "
            f"{', '.join(sorted(task.splits))}"
        )
    return task


class Plan(NamedTuple):
    """How one epoch of a split is cut: `parts`, in `groups`, each dealt to `dealt` shards."""

    parts: int
    groups: int
    dealt: int

    @property
    def shards(self) -> int:
        """Files of one epoch."""
        return self.groups * self.dealt


@functools.lru_cache(maxsize=64)
def plan_of(job: Job, split: str) -> Plan:
    """Cuts a split by the size of its corpus; nothing else decides.

    Raises:
      ValueError: `job.shards` is no multiple of the groups.
    """
    source = task_of(job).source
    parts, size = _parts_of(source, split, job.part_bytes)
    groups = -(-parts // GROUP_PARTS)
    wanted = max(LEAST_SHARDS, size // SHARD_BYTES)
    dealt = -(-(job.shards or 1 << (wanted - 1).bit_length()) // groups)
    if job.shards and groups * dealt != job.shards:
        raise ValueError(
            f"--shards is {job.shards}, but split {split} is read in {groups} groups of parts that "
            f"share no shard: set it to a multiple of {groups}"
        )
    return Plan(parts, groups, dealt)


def _parts_of(source: seqio.DataSource, split: str, part_bytes: int) -> tuple[int, int]:
    """Returns into how many parts a split is best cut, and its bytes (0 where none knows)."""
    if not source.supports_arbitrary_sharding:
        return len(source.list_shards(split)), 0
    if not hasattr(source, "layout"):
        return 1, 0
    found = source.list_files(split)
    sizes = [files.size(file) for file in found]
    if None in sizes:
        return len(found), 0
    least, most = PART_BYTES
    wanted = -(-sum(sizes) // (part_bytes or min(max(sum(sizes) // GROUP_PARTS, least), most)))
    if wanted > len(found) and not all(source.layout(f).divisible(f) for f in found):
        wanted = len(found)
    elif wanted > len(found):
        rows = [source.layout(f).parts(f) for f in found if f.kind == "parquet"]
        lines = [
            max(n // LEAST_BYTES, 1)
            for f, n in zip(found, sizes, strict=True)
            if f.kind != "parquet"
        ]
        wanted = min(wanted, sum(rows) + sum(lines))
    return max(wanted, 1), sum(sizes)


def parts_of(job: Job) -> list[Part]:
    """Returns all parts of a job."""
    return [
        Part(split, epoch, index)
        for split in job.splits
        for epoch in range(job.epochs)
        for index in range(plan_of(job, split).parts)
    ]


def shards_of(job: Job) -> list[Shard]:
    """Returns all shards of a job."""
    counts = {split: plan_of(job, split).shards * job.epochs for split in job.splits}
    return [Shard(split, index) for split, count in counts.items() for index in range(count)]
