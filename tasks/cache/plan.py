"""The contents of a cache and the division of the work, the same for any number of workers.

A split is read in *parts*, shares of the corpus: 64, or as many as have 64 MiB of text. Up to 64
parts form a *group*, which shares its shards with no other group, so that the work grows linearly
with the corpus. `tasks.cache.build` writes the parts, and then the shards.
"""

import dataclasses
import functools
from typing import NamedTuple

import seqio

from common.errors import UserError
from tasks import registered
from tasks.cache import cached
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage import files

PART_BYTES = (1 << 20, 64 << 20)  # bytes of text, least and most; in between, a 64th of the split
MIN_LINES_BYTES = 4 << 10  # least bytes per part of a file of lines
GROUP_PARTS = 64
SHARD_BYTES = 64 << 20
MIN_SHARDS = 16


class CachePart(NamedTuple):
    """A share of a split in one epoch."""

    split: str
    epoch: int
    number: int


class CacheShard(NamedTuple):
    """A file of a finished split; `number` counts through all epochs."""

    split: str
    number: int


@dataclasses.dataclass(frozen=True)
class CacheJob:
    """What to make; equal jobs make equal bytes."""

    task: str  # a registered one
    out: str  # the folder of caches, local or gs://
    # (feature, tokens) pairs of finished examples; () caches the documents' tokens, at the task's
    # own placeholder.
    lengths: tuple[tuple[str, int], ...] = ()
    epochs: int = 1  # how many times the corpus is corrupted, each time differently
    splits: tuple[str, ...] = ("train", "validation")
    seed: int = 0  # seed of order and noise
    shards: int = 0  # files per epoch and split; 0 chooses by the corpus's size
    part_bytes: int = 0  # text per part; 0 chooses by the corpus's size
    modules: tuple[str, ...] = ("tasks.romanian",)  # imported first, for their registrations
    bindings: tuple[str, ...] = ()  # gin bindings, 'tasks.vocabularies.ro_model.path = "..."'

    @property
    def folder(self) -> str:
        """The folder of the cache."""
        lengths = dict(self.lengths)
        name = cached.pregenerated_name(self.task, lengths) if lengths else self.task
        return f"{self.out.rstrip('/')}/{seqio.get_task_dir_from_name(name)}"

    @property
    def scratch(self) -> str:
        """The folder of parts and unfinished files, until `finish`."""
        return f"{self.folder}/unfinished"


@functools.lru_cache(maxsize=4)
def task_of(job: CacheJob) -> seqio.Task:
    """Return the job's task, registered in this process.

    Raises:
      UserError: it cannot be cached, or not in this way.
    """
    task = registered.find(job.task, "--task", job.modules, job.bindings)
    if job.lengths:
        registered.check_features(task, dict(job.lengths))
        task = cached.add_pregenerated(job.task, dict(job.lengths))
    elif not task.supports_caching:
        raise UserError(
            "--task",
            job.task,
            "which has no seqio.CacheDatasetPlaceholder",
            "put one into its preprocessors, or give --lengths, which caches finished examples",
        )
    if job.epochs != 1 and not (job.lengths or task.requires_caching):
        raise UserError(
            "--epochs",
            job.epochs,
            f"but task {job.task} is cached before its tokens are corrupted, so that all epochs "
            "are equal",
            "give --lengths (such as inputs=512,targets=114) to corrupt them first, or leave "
            "--epochs out: training redraws the corruption every epoch",
        )
    if unknown := set(job.splits) - set(task.splits):
        raise UserError(
            "--splits",
            why=f"names {', '.join(sorted(unknown))}, but task {job.task} has "
            f"{', '.join(sorted(task.splits))}",
        )
    return task


class SplitPlan(NamedTuple):
    """How one epoch of a split is cut: into `parts` in `groups`, each dealt to `dealt` shards."""

    parts: int
    groups: int
    dealt: int

    @property
    def shards(self) -> int:
        """Files of one epoch."""
        return self.groups * self.dealt


@functools.lru_cache(maxsize=64)
def plan_of(job: CacheJob, split: str) -> SplitPlan:
    """Return the parts of a split by the size of its corpus.

    Raises:
      UserError: `job.shards` is no multiple of the groups.
    """
    source = task_of(job).source
    parts, size = count_parts(source, split, job.part_bytes)
    groups = -(-parts // GROUP_PARTS)
    least = max(MIN_SHARDS, size // SHARD_BYTES)
    power_of_two = 1 << (least - 1).bit_length()
    dealt = -(-(job.shards or power_of_two) // groups)
    if job.shards and groups * dealt != job.shards:
        raise UserError(
            "--shards",
            job.shards,
            f"but split {split} is read in {groups} groups of parts that share no shard",
            f"set it to a multiple of {groups}",
        )
    return SplitPlan(parts, groups, dealt)


def count_parts(source: seqio.DataSource, split: str, part_bytes: int) -> tuple[int, int]:
    """Return the number of parts to cut a split into, and its bytes (0 if unknown)."""
    if not source.supports_arbitrary_sharding:
        return len(source.list_shards(split)), 0
    if not isinstance(source, CorpusSource):
        return 1, 0
    listing, layout = source.list_files(split), source.layout
    sizes = [size for file in listing if (size := files.size(file)) is not None]
    if len(sizes) < len(listing):
        return len(listing), 0
    total, (low, high) = sum(sizes), PART_BYTES
    parts = -(-total // (part_bytes or min(max(total // GROUP_PARTS, low), high)))
    if parts > len(listing):
        most = len(listing)
        if all(layout.divisible(file) for file in listing):
            most = sum(
                layout.count(file) if file.kind == "parquet" else max(size // MIN_LINES_BYTES, 1)
                for file, size in zip(listing, sizes, strict=True)
            )
        parts = min(parts, most)
    return max(parts, 1), total


def parts_of(job: CacheJob) -> list[CachePart]:
    """Return all parts of a job."""
    return [
        CachePart(split, epoch, index)
        for split in job.splits
        for epoch in range(job.epochs)
        for index in range(plan_of(job, split).parts)
    ]


def shards_of(job: CacheJob) -> list[CacheShard]:
    """Return all shards of a job."""
    counts = {split: plan_of(job, split).shards * job.epochs for split in job.splits}
    return [CacheShard(split, index) for split, count in counts.items() for index in range(count)]
