"""Counts of the records that this process reads of a corpus, by split."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from absl import logging

from common.tables import counted

REASONS = ("empty", "null", "not_text", "not_UTF-8", "malformed", "too_long")
# Where a column asks for them.
FILTERS = ("too_short", "other_value", "low_value", "unknown_label")
SKIPS = tuple(f"skipped_{reason}" for reason in (*REASONS, *FILTERS))
# Of records that are used, but not as they are written.
CHANGES = ("kept_with_numbers", "kept_with_replaced_characters")
EXTRA_COPIES = "extra_copies"  # of records that an epoch has several times
CODED = (*SKIPS, *CHANGES, EXTRA_COPIES)  # of a record: bit i of its code is of CODED[i]
NOTES = ("cut_inputs", "cut_targets")  # counted per example made
MADE = "examples"
MOST_LABELS = 3  # unknown labels to remember


class RecordCounter:
    """Counts of one corpus, safe to add to from several threads."""

    def __init__(self, corpus: str):
        self.corpus = corpus
        self.split: str | None = None  # of the dataset that was made last
        self.labels: list[str] = []  # some labels that no class lists
        self._lock = threading.RLock()
        self._counts: defaultdict[str | None, Counter[str]] = defaultdict(Counter)
        # By split and number of shards, since the number of shards decides what a batch holds; None
        # where records are known by number.
        self._distinct: defaultdict[tuple[str | None, int | None], Counter[str]] = defaultdict(
            Counter
        )
        self._records: dict[tuple[str, int], np.ndarray] = {}  # which were read, by number
        # Of a part of a shard, the steps that were read: bit i of its number is of step i.
        self._seen: defaultdict[tuple[str | None, int, tuple], int] = defaultdict(int)
        self._epochs: defaultdict[str, dict[tuple[int, int], int]] = defaultdict(dict)

    def start_shard(self, split: str, shard: tuple[int, int]) -> None:
        """Note that this process reads a shard (index, number of shards) of a split."""
        with self._lock:
            self.split = split
            # A stream that resumes may have made other shards before it knew their number.
            of_split = {s: n for s, n in self._epochs[split].items() if s[1] == shard[1]}
            self._epochs[split] = of_split
            of_split.setdefault(shard, 0)

    def add(
        self,
        counts: Mapping[str, int],
        labels: Iterable[str] = (),
        split: str | None = None,
        shard: tuple[int, int] | None = None,
        batch: tuple[int, ...] = (0,),
    ) -> None:
        """Add the counts of some records of a split, and unknown labels in these records.

        `shard` was read if `counts` are of all records of a batch, and `batch` is its place within
        the shard: numbers of a part, then the step in it. Epochs, restarts and evaluations read a
        batch several times; what it holds is always the same, so it is distinct once.
        """
        with self._lock:
            self._counts[split].update(counts)
            self.labels = list(dict.fromkeys([*self.labels, *labels]))[:MOST_LABELS]
            if shard is None:
                return
            index, num_shards = shard
            *part, step = batch
            place = (split, num_shards, (index, *part))
            if not self._seen[place] >> step & 1:
                self._seen[place] |= 1 << step
                self._distinct[split, num_shards].update(counts)

    def add_records(
        self, split: str, codes: np.ndarray, numbers: np.ndarray, total: int, labels: Iterable[str]
    ) -> None:
        """Add records that are known by their numbers in the split.

        Args:
          split: of the corpus.
          codes: int [k], see `code`.
          numbers: int [k]; a record is distinct once.
          total: number of records in the split.
          labels: unknown labels in the split.
        """
        with self._lock:
            seen = self._records.setdefault((split, total), np.zeros(total, bool))
            self._counts[split].update(_by_name(codes))
            self._distinct[split, None].update(_by_name(codes[~seen[numbers]]))
            seen[numbers] = True
            self.labels = list(dict.fromkeys([*self.labels, *labels]))[:MOST_LABELS]

    def end_epoch(self, split: str, shard: tuple[int, int], epochs: int) -> bool:
        """Note that a reader completed `epochs` of a shard; True if now all shards have."""
        with self._lock:
            shards = self._epochs[split]
            before = min(shards.values(), default=0)
            shards[shard] = max(shards.get(shard, 0), epochs)
            return min(shards.values()) > before

    def log_epoch(self, split: str, shard: tuple[int, int], epochs: int) -> None:
        """Call `end_epoch`, and log the counts if all shards have completed the epoch."""
        if self.end_epoch(split, shard, epochs):
            logging.info("%s", self.sentence(split))

    def counts(self, split: str | None = None, distinct: bool = False) -> dict[str, int]:
        """Return the records read, skipped and changed, examples cut, and epochs completed.

        An epoch is complete when every shard that this process reads is. All names are present,
        also with 0, because hosts add up their counts name by name. Without `split` it is the sum
        of all; `distinct` counts each record of a split once, and adds the `examples` made.
        """
        with self._lock:
            mine = (counts for of, counts in self._counts.items() if split in (None, of))
            total: Counter[str] = sum(mine, Counter())
            of_split = (shards for of, shards in self._epochs.items() if split in (None, of))
            epochs = [min(shards.values()) for shards in of_split if shards]
            found = {name: total[name] for name in ("read", *CODED, *NOTES)}
            if distinct:
                cuts = [counts for (of, _), counts in self._distinct.items() if of == split]
                once = max(cuts, key=lambda counts: counts["read"], default=Counter())
                found |= {name: once[name] for name in ("read", *CODED)}
                found[MADE] = total[MADE]
            return {**found, "epochs": max(epochs, default=0)}

    def skipped(self) -> str:
        """Return how many records were skipped by reason, as "2 empty, 1 null", or "none"."""
        return _reasons(self.counts())

    def sentence(self, split: str | None = None) -> str:
        """Return the counts as one line for the log."""
        counts = self.counts(split)
        shown = [name for name in (*CHANGES, EXTRA_COPIES, *NOTES) if counts[name]]
        notes = [f"{counts[name]} {name.replace('_', ' ')}, " for name in shown]
        epochs = counted(counts["epochs"], "epoch")
        return (
            f"corpus {self.corpus}{f', split {split}' if split else ''}: "
            f"{counted(counts['read'], 'record')} read, skipped {_reasons(counts)}, "
            f"{''.join(notes)}{epochs} completed"
        )

    def splits(self) -> list[str]:
        """Return the splits with any record read."""
        with self._lock:
            return [split for split, counts in self._counts.items() if split and counts["read"]]


def code(names: Iterable[str]) -> int:
    """Return the names under which a record is counted as one number; see `CODED`."""
    return sum(1 << CODED.index(name) for name in names)


def _by_name(codes: np.ndarray) -> Counter[str]:
    """Return the counts of records by name, from their codes."""
    counts = Counter({"read": len(codes)})
    for found, n in zip(*np.unique(codes, return_counts=True), strict=True):
        for i, name in enumerate(CODED):
            counts[name] += int(n) if found >> i & 1 else 0
    counts["read"] -= counts[EXTRA_COPIES]
    return counts


def _reasons(counts: Mapping[str, int]) -> str:
    found = [(counts[name], name.removeprefix("skipped_")) for name in SKIPS]
    return ", ".join(f"{n} {reason.replace('_', ' ')}" for n, reason in found if n) or "none"
