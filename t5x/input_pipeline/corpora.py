"""The methods of a corpus besides its examples, and the checks of corpora at the start of a run.

A task may read from any `seqio.DataSource`; tf.data restores its position. A source that is also a
`ResumableSource` is checked before the run, listed by one host for all, kept at one revision over
restarts, and reports what it skipped.
"""

import difflib
from collections.abc import Mapping
from typing import Any, Protocol, cast, runtime_checkable

import seqio
from absl import logging

from common.errors import UserError
from common.tables import CheckResult
from t5x.input_pipeline.config import DatasetConfig
from t5x.multihost.broadcast import broadcast_from_first


class ResumableSource(Protocol):
    """Methods that a data source adds to those of `seqio.DataSource`: all or none."""

    def peek(self, split: str, n: int) -> list[str]:
        """Return the first `n` texts of a split; raise a UserError if it cannot be read."""

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
class DividedSource(Protocol):
    """The method of a `ResumableSource` that may hold documents of a split out of it."""

    def check_saved(self, split: str, saved: Mapping[str, Any]) -> None:
        """Raise UserError if the `identity` of a saved data position is of other documents."""


@runtime_checkable
class CountedSource(Protocol):
    """The methods of a `ResumableSource` that knows whether it has enough texts for a run."""

    def check_shards(self, split: str, num_shards: int) -> None:
        """Raise UserError if a split has fewer texts than shards, which need one each."""

    def text_bytes(self, split: str) -> int | None:
        """Return roughly how many bytes of text a split has, None if it is unknown."""


@runtime_checkable
class ShownTask(Protocol):
    """The methods of a task that say what its corpus is, and what a sample of it holds."""

    name: str

    def understood(self, split: str) -> str:
        """Return what was understood of a split of its corpus, "" if that cannot be said."""

    def look(self, split: str, lengths: Mapping[str, int] | None, pack: bool) -> list[CheckResult]:
        """Return the lines of a table, by name in `check`; raise UserError for unfit lengths.

        `numbers` of the line "pieces" has `corpus_tokens`, of the split, None if they are unknown,
        `known`, how they are, to end a sentence, `row_tokens`, of the corpus in a row, and
        `most_epochs`, beyond which another epoch is of little use.
        """


_MANY_TIMES = 10
METHODS = tuple(name for name in vars(ResumableSource) if not name.startswith("_"))


def resumable_source(task: seqio.Task) -> ResumableSource | None:
    """Return the task's source if it is a `ResumableSource`, UserError if only in part."""
    offered = {name for name in dir(task.source) if not name.startswith("_")}
    missing = [name for name in METHODS if name not in offered]
    if not missing:
        return cast(ResumableSource, task.source)
    own = sorted(offered - set(METHODS) - set(dir(seqio.DataSource)))
    similar = {name: difflib.get_close_matches(name, own, 1, cutoff=0.75) for name in missing}
    hints = [f"; its {found[0]!r} looks like {name!r}" for name, found in similar.items() if found]
    if not hints and offered.isdisjoint(METHODS):
        return None
    raise UserError(
        f"The source of task {task.name}, {type(task.source).__name__}, lacks "
        f"{', '.join(missing)}{''.join(hints)}. Implement all methods of "
        "t5x.input_pipeline.corpora.ResumableSource, or none for a plain seqio source."
    )


class Corpora:
    """The resumable sources of a dataset's tasks that have its split; none if caches are read."""

    def __init__(self, cfg: DatasetConfig):
        self.cfg, self.split = cfg, cfg.split
        self.sources: dict[str, ResumableSource] = {}
        for task in () if cfg.use_cached else cfg.tasks_with_split:
            if source := resumable_source(task):
                self.sources[task.name] = source

    def check(self, required: bool = True) -> None:
        """Read the first record of each corpus, on one host; use its files on all hosts.

        Warn if one batch reads the corpora many times. Raise UserError, with what exists, for a
        missing column or corpus, and if the split is `required` and no task has it; tasks without
        it are skipped later. Raise it also if the split is shuffled and has no order that can be
        saved.
        """
        cfg = self.cfg
        if required and not cfg.tasks_with_split:
            raise UserError(
                f"DatasetConfig.split is {self.split!r}, which {cfg.provider.name} does not have; "
                f"set it to one of {', '.join(sorted(cfg.splits))}."
            )
        broadcast_from_first(lambda: [s.peek(self.split, 1) for s in self.sources.values()])
        self._share_listings()
        self.orders()
        if repeated := self._repeated_by_a_batch():
            logging.warning("%s", repeated)

    def _shown(self) -> list[ShownTask]:
        tasks = () if self.cfg.use_cached else self.cfg.tasks_with_split
        return [task for task in tasks if isinstance(task, ShownTask)]

    def understood(self) -> list[str]:
        """Return a line per task on what was understood of its corpus; one host reads for all."""
        split = self.cfg.split
        found = broadcast_from_first(lambda: {t.name: t.understood(split) for t in self._shown()})
        return [f"Corpus of {name}, split {split!r}: {s}." for name, s in found.items() if s]

    def looks(self) -> dict[str, list[CheckResult]]:
        """Return what a sample of each corpus shows, by task; one host reads it for all."""
        cfg = self.cfg

        def look() -> dict[str, list[dict[str, Any]]]:
            shown = self._shown()
            found = {t.name: t.look(cfg.split, cfg.task_feature_lengths, cfg.pack) for t in shown}
            return {name: [vars(row) for row in rows] for name, rows in found.items()}

        found = broadcast_from_first(look)
        return {name: [CheckResult(**row) for row in rows] for name, rows in found.items()}

    def check_shards(self, num_shards: int) -> None:
        """Raise UserError if a corpus has fewer texts than the stream has shards."""

        def check() -> None:
            for source in self.sources.values():
                if isinstance(source, CountedSource):
                    source.check_shards(self.split, num_shards)

        broadcast_from_first(check)

    def identities(self) -> dict[str, dict[str, Any]]:
        """Return the identity of each corpus, by task name."""
        return {name: source.identity(self.split) for name, source in self.sources.items()}

    def orders(self) -> dict[str, str]:
        """Return the order of the shuffled epochs of each corpus that has several, by task name."""
        found = self.sources.items() if self.cfg.shuffle else ()
        return {name: s.order(self.split) for name, s in found if isinstance(s, OrderedSource)}

    def pin(self, saved: Mapping[str, Any]) -> None:
        """Read each corpus at the revision and in the order of `saved`, a `position.saved`.

        Must precede making the stream.
        """
        for name, source in self.sources.items():
            identity = saved["corpora"].get(name, {})
            if revision := identity.get("revision"):
                source.pin_revision(revision)
            if identity and isinstance(source, DividedSource):
                source.check_saved(self.split, identity)
        self._share_listings()
        self.pin_orders(saved["orders"])

    def pin_orders(self, orders: Mapping[str, str]) -> None:
        """Read each corpus in its order in `orders`, by task name."""
        for name, source in self.sources.items():
            if isinstance(source, OrderedSource) and name in orders:
                source.pin_order(self.split, orders[name])

    def mixing(self, num_shards: int) -> list[str]:
        """Return a line per task on how far its records are mixed, none if they are not."""
        if not self.cfg.shuffle:
            return []
        lines = []
        for task in seqio.get_subtasks(self.cfg.provider):
            source = self.sources.get(task.name)
            reach = "records are read in the order of their source"
            if isinstance(source, OrderedSource):
                reach = source.mixing(self.split, num_shards)
            elif self.cfg.use_cached:
                reach = "the files of its cache are read in random order"
            keeps_epochs = getattr(source, "keeps_epochs", lambda split: False)(self.split)
            if (buffer := task.shuffle_buffer_size) and not keeps_epochs:
                reach += f"; then each of {num_shards} shards mixes {buffer:,} examples"
            lines.append(f"Order of {task.name}, split {self.split!r}: {reach}.")
        return lines

    def _share_listings(self) -> None:
        """List each corpus on the first host and use its files on all hosts."""
        sources = self.sources
        found = broadcast_from_first(lambda: {n: s.listing(self.split) for n, s in sources.items()})
        for name, source in sources.items():
            source.use_listing(self.split, found[name])

    def _repeated_by_a_batch(self) -> str | None:
        """Return a sentence if one batch of packed rows reads all corpora many times over.

        A token is a byte or more, so that the corpora are read at least so often. Their sizes may
        be those of remote files, so that one host asks for them.
        """
        cfg, length = self.cfg, (self.cfg.task_feature_lengths or {}).get("inputs")
        if not (cfg.pack and length):
            return None

        def measure() -> list[int | None]:
            of = lambda s: s.text_bytes(self.split) if isinstance(s, CountedSource) else None
            return [of(source) for source in self.sources.values()]

        sizes = broadcast_from_first(measure)
        if not (sizes and all(sizes)):
            return None
        times = cfg.batch_size * length // sum(size or 0 for size in sizes)
        if times < _MANY_TIMES:
            return None
        return (
            f"a batch of {cfg.batch_size:,} rows of {length} tokens reads {cfg.provider.name}, "
            f"split {self.split!r}, {times:,} times or more, which takes long and teaches little: "
            f"set BATCH_SIZE to {max(cfg.batch_size // times, 1):,} or less"
        )
