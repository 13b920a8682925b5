"""The checks of corpora at the start of a run, and what a data position stores about them.

A task may read from any `seqio.DataSource`; tf.data restores its position. A `common.source.Source`
is also checked before the run, listed by one host for all, kept at one revision over restarts, and
reports what it skipped.
"""

from collections.abc import Mapping
from typing import Any

import seqio
from absl import logging

from common.errors import UserError
from common.source import EPOCHS, CorpusMixture, CorpusTask, Source, source_of
from common.tables import CheckResult
from t5x.input_pipeline.config import DatasetConfig
from t5x.multihost.broadcast import broadcast_from_first

_MANY_TIMES = 10


class Corpora:
    """The sources of a dataset's tasks that have its split, by task; none if caches are read.

    All hosts must make one at the same time: the first names the splits for all.
    """

    def __init__(self, cfg: DatasetConfig):
        self.cfg, self.split = cfg, cfg.split
        self.sources: dict[str, Source] = {}
        if not cfg.use_cached:
            _share_splits(cfg)
            self.sources = {task.name: source_of(task) for task in cfg.tasks_with_split}

    def check(self) -> None:
        """Read the first record of each corpus, on one host; use its files on all hosts.

        Warn if one batch reads the corpora many times. Raise UserError, with what exists, for a
        missing column or corpus, and for a split that no task has; tasks without it are skipped
        later. Raise it also if the split is shuffled and has no order that can be saved.
        """
        cfg = self.cfg
        if not cfg.tasks_with_split:
            raise UserError(
                "DatasetConfig.split",
                self.split,
                f"which {cfg.provider.name} does not have",
                f"set it to one of {', '.join(sorted(cfg.splits))}",
            )
        broadcast_from_first(lambda: [s.peek(self.split, 1) for s in self.sources.values()])
        self._share_listings()
        self.orders()
        if warning := self._warning_of_few_texts():
            logging.warning("%s", warning)

    def _corpus_tasks(self) -> list[CorpusTask]:
        tasks = () if self.cfg.use_cached else self.cfg.tasks_with_split
        return [task for task in tasks if isinstance(task, CorpusTask)]

    def describe_corpora(self) -> list[str]:
        """Return a line per task that describes its corpus; one host reads for all."""
        split = self.cfg.split
        sentences = broadcast_from_first(
            lambda: {task.name: task.describe_corpus(split) for task in self._corpus_tasks()}
        )
        return [f"Corpus of {name}, split {split!r}: {s}." for name, s in sentences.items() if s]

    def looks(self) -> dict[str, list[CheckResult]]:
        """Return what samples show of each task, and of a mixture; one host reads them for all."""
        cfg = self.cfg

        def look() -> dict[str, list[dict[str, Any]]]:
            rows = lambda task: task.look(cfg.split, cfg.task_feature_lengths, cfg.pack)
            looks = {task.name: [vars(row) for row in rows(task)] for task in self._corpus_tasks()}
            if looks and isinstance(cfg.provider, CorpusMixture):
                looks[cfg.provider.name] = [vars(row) for row in cfg.provider.look(cfg.split)]
            return looks

        tables = broadcast_from_first(look)
        return {name: [CheckResult(**row) for row in rows] for name, rows in tables.items()}

    def check_shards(self, num_shards: int) -> None:
        """Raise UserError if a corpus has fewer texts than the stream has shards."""

        def check() -> None:
            for source in self.sources.values():
                source.check_shards(self.split, num_shards)

        broadcast_from_first(check)

    def identities(self) -> dict[str, dict[str, Any]]:
        """Return the identity of each corpus that has one, by task name."""
        identities = {name: s.identity(self.split) for name, s in self.sources.items()}
        return {name: identity for name, identity in identities.items() if identity}

    def orders(self) -> dict[str, str]:
        """Return the order of the shuffled epochs of each corpus that has one, by task name."""
        if not self.cfg.shuffle:
            return {}
        orders = {name: source.order(self.split) for name, source in self.sources.items()}
        return {name: order for name, order in orders.items() if order}

    def pin(self, saved: Mapping[str, Any]) -> None:
        """Read each corpus at the revision and in the order of `saved`, a `position.saved`.

        Must precede making the stream. Raise UserError for a corpus that is set otherwise now.
        """
        for name, source in self.sources.items():
            identity = saved["corpora"].get(name, {})
            if revision := identity.get("revision"):
                source.pin_revision(revision)
            if identity:
                source.check_saved(self.split, identity)
        self._share_listings()
        self.pin_orders(saved["orders"])

    def pin_orders(self, orders: Mapping[str, str]) -> None:
        """Read each corpus in its order in `orders`, by task name."""
        for name, source in self.sources.items():
            if name in orders:
                source.pin_order(self.split, orders[name])

    def mixing(self, num_shards: int) -> list[str]:
        """Return a line per task on how far its records are mixed, none if they are not."""
        if not self.cfg.shuffle:
            return []
        orders, lines = self.orders(), []
        for task in self.cfg.tasks_with_split:
            reach = "the files of its cache are read in random order"
            if not self.cfg.use_cached:
                reach = self.sources[task.name].mixing(self.split, num_shards)
            if (buffer := task.shuffle_buffer_size) and orders.get(task.name) != EPOCHS:
                reach += f"; then each of {num_shards} shards mixes {buffer:,} examples"
            lines.append(f"Order of {task.name}, split {self.split!r}: {reach}.")
        return lines

    def _share_listings(self) -> None:
        """List each corpus on the first host and use its files on all hosts."""
        sources = self.sources
        listings = broadcast_from_first(
            lambda: {name: source.listing(self.split) for name, source in sources.items()}
        )
        for name, source in sources.items():
            source.use_listing(self.split, listings[name])

    def _warning_of_few_texts(self) -> str | None:
        """Return a sentence if one batch of packed rows reads all corpora many times over.

        A token is a byte or more, so that the corpora are read at least so often. Their sizes may
        be those of remote files, so that one host asks for them.
        """
        cfg, length = self.cfg, (self.cfg.task_feature_lengths or {}).get("inputs")
        if not (cfg.pack and length):
            return None
        sizes = broadcast_from_first(
            lambda: [source.text_bytes(self.split) for source in self.sources.values()]
        )
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


def _share_splits(cfg: DatasetConfig) -> None:
    """Ask each corpus for its splits on the first host, and use them on all."""
    sources = {task.name: source_of(task) for task in seqio.get_subtasks(cfg.provider)}
    splits = broadcast_from_first(lambda: {n: [*(s.splits or ())] for n, s in sources.items()})
    for name, source in sources.items():
        source.use_splits(splits[name])
