"""Counts of the records that this process reads of a corpus, by split.

counter = RecordCounter("my corpus")
counter.start_shard("train", shard=(0, 8))           # this process reads shard 0 of 8
counter.add({"read": 512, "skipped_empty": 2}, split="train", shard=(0, 8), batch=(0, 3, 1))
counter.counts("train")                  # {'read': 512, 'skipped_empty': 2, …}, over all epochs
counter.counts("train", distinct=True)   # the same, with each record counted once
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping

REASONS = ("empty", "null", "not_text", "not_UTF-8", "malformed", "too_long")
# Where a column asks for them.
FILTERS = ("too_short", "other_value", "duplicate", "unknown_label")
SKIPS = tuple(f"skipped_{reason}" for reason in (*REASONS, *FILTERS))
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
        # By split and number of shards, since the number of shards decides what a batch holds.
        self._distinct: defaultdict[tuple[str | None, int], Counter[str]] = defaultdict(Counter)
        self._seen: defaultdict[tuple[str | None, int], set] = defaultdict(set)
        self._epochs: defaultdict[str, dict[tuple[int, int], int]] = defaultdict(dict)

    def start_shard(self, split: str, shard: tuple[int, int]) -> None:
        """Note that this process reads a shard (index, number of shards) of a split."""
        with self._lock:
            self.split = split
            self._epochs[split].setdefault(shard, 0)

    def add(
        self,
        counts: Mapping[str, int],
        labels: Iterable[str] = (),
        split: str | None = None,
        shard: tuple[int, int] | None = None,
        batch: Hashable = None,
    ) -> None:
        """Add the counts of some records.

        Args:
          counts: number by name.
          labels: unknown labels in these records.
          split: of the corpus.
          shard: the shard that was read, where `counts` is of all records of a batch.
          batch: names the batch within its shard. Epochs, restarts and evaluations read a batch
            several times; what it holds is always the same, so it is distinct once.
        """
        with self._lock:
            self._counts[split].update(counts)
            self.labels = list(dict.fromkeys([*self.labels, *labels]))[:MOST_LABELS]
            if shard is None:
                return
            index, num_shards = shard
            seen = self._seen[split, num_shards]
            if (index, batch) not in seen:
                seen.add((index, batch))
                self._distinct[split, num_shards].update(counts)

    def end_epoch(self, split: str, shard: tuple[int, int], epochs: int) -> bool:
        """Note that a reader completed `epochs` of a shard; True if now all shards have."""
        with self._lock:
            shards = self._epochs[split]
            before = min(shards.values(), default=0)
            shards[shard] = max(shards.get(shard, 0), epochs)
            return min(shards.values()) > before

    def counts(self, split: str | None = None, distinct: bool = False) -> dict[str, int]:
        """Return the records read and skipped by reason, examples cut, and epochs completed.

        An epoch is complete when every shard that this process reads is. All names are present,
        also with 0, because hosts add up their counts name by name.

        Args:
          split: None for the sum of all splits.
          distinct: count each record of `split` once; adds the number of `examples` made.
        """
        with self._lock:
            total: Counter[str] = sum(
                (counts for of, counts in self._counts.items() if split in (None, of)),
                Counter(),
            )
            epochs = [
                min(shards.values())
                for of, shards in self._epochs.items()
                if shards and split in (None, of)
            ]
            found = {name: total[name] for name in ("read", *SKIPS, *NOTES)}
            if distinct:
                cuts = [counts for (of, _), counts in self._distinct.items() if of == split]
                once = max(cuts, key=lambda counts: counts["read"], default=Counter())
                found |= {name: once[name] for name in ("read", *SKIPS)} | {MADE: total[MADE]}
            return {**found, "epochs": max(epochs, default=0)}

    def skipped(self) -> str:
        """Return how many records were skipped by reason, as "2 empty, 1 null", or "none"."""
        return _reasons(self.counts())

    def sentence(self, split: str | None = None) -> str:
        """Return the counts as one line for the log."""
        counts = self.counts(split)
        cut = [f"{counts[note]} {note.replace('_', ' ')}, " for note in NOTES if counts[note]]
        return (
            f"corpus {self.corpus}{f', split {split}' if split else ''}: "
            f"{counts['read']} records read, skipped {_reasons(counts)}, "
            f"{''.join(cut)}{counts['epochs']} epochs completed"
        )

    def splits(self) -> list[str]:
        """Return the splits with any record read."""
        with self._lock:
            return [split for split, counts in self._counts.items() if split and counts["read"]]


def _reasons(counts: Mapping[str, int]) -> str:
    found = [(counts[name], name.removeprefix("skipped_")) for name in SKIPS]
    return ", ".join(f"{n} {reason.replace('_', ' ')}" for n, reason in found if n) or "none"
