"""The methods of a corpus besides its examples, and the checks of corpora at the start of a run.

A task may read from any `seqio.DataSource`; tf.data restores its position. A source that is also a
`ResumableSource` is checked before the run, listed by one host for all, kept at one revision over
restarts, and reports what it skipped.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast, runtime_checkable

import seqio

from t5x.input_pipeline.config import DatasetConfig
from t5x.multihost.broadcast import broadcast_from_first


class ResumableSource(Protocol):
    """Methods that a data source has in addition to those of `seqio.DataSource`: all or none."""

    def peek(self, split: str, n: int) -> list[str]:
        """Return the first `n` texts of a split; raise a ValueError if it cannot be read."""

    def identity(self, split: str) -> dict[str, Any]:
        """Return the state that a data position in a split depends on, as JSON; it must not change.

        `revision`, if it has one, is given to `pin_revision` when the run resumes.
        """

    def pin_revision(self, revision: str) -> None:
        """Read the corpus at this revision, unless the user set another."""

    def listing(self, split: str) -> list:
        """Return the files of a split as JSON, for `use_listing` on other hosts."""

    def use_listing(self, split: str, listing: list) -> None:
        """Use these files, so that only one host lists the remote storage."""

    def record_counts(self, split: str, distinct: bool = False) -> dict[str, int]:
        """Return this process's record counts of a split.

        `read` records, of these `skipped_<reason>`, and complete `epochs`. With `distinct` each
        record counts once however often it was read, and of the `examples` made from them
        `cut_<feature>` had to be cut.
        """


@runtime_checkable
class OrderedSource(Protocol):
    """Methods of a `ResumableSource` whose shuffled epochs can have several orders."""

    def order(self, split: str) -> str:
        """Return the name of the order in which shuffled epochs of a split are read."""

    def pin_order(self, split: str, order: str) -> None:
        """Use the order of a saved data position."""

    def mixing(self, split: str, num_shards: int) -> str:
        """Return how far a shuffled epoch mixes the records, as a predicate for the log."""


@runtime_checkable
class CountedSource(Protocol):
    """The methods of a `ResumableSource` that knows whether it has enough texts for a run."""

    def check_shards(self, split: str, num_shards: int) -> None:
        """Raise ValueError if a split has fewer texts than shards, which need one each."""

    def text_bytes(self, split: str) -> int | None:
        """Return roughly how many bytes of text a split has, None if it is unknown."""


_MANY_TIMES = 10
METHODS = tuple(name for name in vars(ResumableSource) if not name.startswith("_"))


def resumable_source(task: seqio.Task) -> ResumableSource | None:
    """Return the task's source if it is a `ResumableSource`, ValueError if only in part."""
    offered = {name for name in dir(task.source) if not name.startswith("_")}
    missing = [name for name in METHODS if name not in offered]
    if not missing:
        return cast(ResumableSource, task.source)
    own = sorted(offered - set(METHODS) - set(dir(seqio.DataSource)))
    similar = {name: difflib.get_close_matches(name, own, 1, cutoff=0.75) for name in missing}
    hints = [f"; its {found[0]!r} looks like {name!r}" for name, found in similar.items() if found]
    if not hints and offered.isdisjoint(METHODS):
        return None
    raise ValueError(
        f"The source of task {task.name}, {type(task.source).__name__}, lacks "
        f"{', '.join(missing)}{''.join(hints)}. Implement all methods of "
        "t5x.input_pipeline.corpora.ResumableSource, or none for a plain seqio source."
    )


def resumable_sources(cfg: DatasetConfig) -> Iterator[tuple[str, ResumableSource]]:
    """Yield (task name, source) of the tasks that have the split; none if caches are read."""
    if cfg.use_cached:
        return
    for task in cfg.tasks_with_split:
        if source := resumable_source(task):
            yield task.name, source


def check_corpora(cfg: DatasetConfig, required: bool = True) -> None:
    """Read the first record of each corpus that has the split, on one host.

    Raise ValueError, with what exists, for a missing column or corpus, and if the split is
    `required` and no task has it; tasks without it are skipped later. Raise it also if the split
    is shuffled and has no order that can be saved.
    """
    tasks = cfg.tasks_with_split
    if required and not tasks:
        known = seqio.get_subtasks(cfg.provider)
        splits = sorted({split for task in known for split in task.splits or ()})
        raise ValueError(
            f"DatasetConfig.split is {cfg.split!r}, which {cfg.provider.name} does not have; set "
            f"it to one of {', '.join(splits)}."
        )

    def peek() -> None:
        for _, source in resumable_sources(cfg):
            source.peek(cfg.split, 1)

    broadcast_from_first(peek)
    _share_listings(cfg)
    orders(cfg)


def check_shards(cfg: DatasetConfig, num_shards: int) -> None:
    """Raise ValueError if a corpus has fewer texts than the stream has shards."""

    def check() -> None:
        for _, source in resumable_sources(cfg):
            if isinstance(source, CountedSource):
                source.check_shards(cfg.split, num_shards)

    broadcast_from_first(check)


def repeated_by_a_batch(cfg: DatasetConfig) -> str | None:
    """Return a sentence if one batch of packed rows reads all corpora many times over.

    A token is a byte or more, so that the corpora are read at least so often. Their sizes may be
    those of remote files, so that one host asks for them.
    """
    length = (cfg.task_feature_lengths or {}).get("inputs")
    if not (cfg.pack and length):
        return None

    def measure() -> list[int | None]:
        sources = [source for _, source in resumable_sources(cfg)]
        return [s.text_bytes(cfg.split) if isinstance(s, CountedSource) else None for s in sources]

    sizes = broadcast_from_first(measure)
    if not (sizes and all(sizes)):
        return None
    times = cfg.batch_size * length // sum(size or 0 for size in sizes)
    if times < _MANY_TIMES:
        return None
    return (
        f"a batch of {cfg.batch_size:,} rows of {length} tokens reads {cfg.provider.name}, split "
        f"{cfg.split!r}, {times:,} times or more, which takes long and teaches little: set "
        f"BATCH_SIZE to {max(cfg.batch_size // times, 1):,} or less"
    )


def _share_listings(cfg: DatasetConfig) -> None:
    """List each corpus on the first host and use its files on all hosts."""
    sources = dict(resumable_sources(cfg))
    listings = broadcast_from_first(lambda: {n: s.listing(cfg.split) for n, s in sources.items()})
    for name, source in sources.items():
        source.use_listing(cfg.split, listings[name])


def identities(cfg: DatasetConfig) -> dict[str, dict[str, Any]]:
    """Return the identity of each task's corpus, by task name."""
    return {name: source.identity(cfg.split) for name, source in resumable_sources(cfg)}


def pin_revisions(cfg: DatasetConfig, saved: Mapping[str, Any]) -> None:
    """Read each corpus at the revision and in the order of `saved`, a checkpoint's `stream.json`.

    Must precede making the stream.
    """
    for name, source in resumable_sources(cfg):
        revision = saved["corpora"].get(name, {}).get("revision")
        if revision:
            source.pin_revision(revision)
    _share_listings(cfg)
    pin_orders(cfg, saved)


def orders(cfg: DatasetConfig) -> dict[str, str]:
    """Return the order of the shuffled epochs of each corpus that has several, by task name."""
    found = resumable_sources(cfg) if cfg.shuffle else ()
    return {name: s.order(cfg.split) for name, s in found if isinstance(s, OrderedSource)}


def pin_orders(cfg: DatasetConfig, saved: Mapping[str, Any]) -> None:
    """Read each corpus in the order of `saved`."""
    for name, source in resumable_sources(cfg):
        if isinstance(source, OrderedSource) and name in saved["orders"]:
            source.pin_order(cfg.split, saved["orders"][name])


def mixing(cfg: DatasetConfig, num_shards: int) -> list[str]:
    """Return a line per task on how far its records are mixed, none if they are not shuffled."""
    if not cfg.shuffle:
        return []
    sources, lines = dict(resumable_sources(cfg)), []
    for task in seqio.get_subtasks(cfg.provider):
        source = sources.get(task.name)
        reach = "records are read in the order of their source"
        if isinstance(source, OrderedSource):
            reach = source.mixing(cfg.split, num_shards)
        elif cfg.use_cached:
            reach = "the files of its cache are read in random order"
        if buffer := task.shuffle_buffer_size:
            reach += f"; then each of {num_shards} shards mixes {buffer:,} examples"
        lines.append(f"Order of {task.name}, split {cfg.split!r}: {reach}.")
    return lines
