"""Counts of a corpus's records by split: all that is read, and each record once.

tally = Tally("my corpus")
reading = tally.begin("train", (0, 8), shuffled=True)      # this process reads a shard
reading.add((epoch, file, part, step), {"read": 512, "skipped_empty": 2})
tally.counts("train")      # {'read': 512, 'skipped_empty': 2, …, 'epochs': 0}, epoch on epoch
tally.each_once("train")   # the same of one epoch: true of the data, however far it is read ahead
"""

import collections
import threading
from collections.abc import Iterable, Mapping

REASONS = ("empty", "null", "not_text", "not_UTF-8", "malformed", "too_long")
# Where a column asks for them.
FILTERS = ("too_short", "other_value", "duplicate", "unknown_label")
NOTES = ("cut_inputs", "cut_targets")  # counted of the examples that are made
MADE = "examples"
MOST_LABELS = 3  # that are remembered of the unknown ones


class Tally:
    """Counts of one corpus's records, safe to add to from several threads."""

    def __init__(self, corpus: str):
        self.corpus = corpus
        self.split: str | None = None  # the one whose dataset was begun last
        self.labels: list[str] = []  # some of those that are not listed
        self._lock = threading.RLock()
        self._counts = collections.defaultdict(collections.Counter)
        self._epochs = collections.defaultdict(dict)
        self._readings = collections.defaultdict(list)

    def add(
        self, counts: Mapping[str, int], labels: Iterable[str] = (), split: str | None = None
    ) -> None:
        """Adds `counts`, by name, and unknown labels that were met."""
        with self._lock:
            self._counts[split].update(counts)
            self.labels = list(dict.fromkeys([*self.labels, *labels]))[:MOST_LABELS]

    def begin(self, split: str, shard: tuple[int, int], shuffled: bool = False) -> "Reading":
        """Says that this process reads a shard (index, of how many) of a split."""
        with self._lock:
            self.split = split
            self._epochs[split].setdefault(shard, 0)
            self._readings[split, shard].append(Reading(self, split, shard, shuffled))
            return self._readings[split, shard][-1]

    def end_epoch(self, split: str, shard: tuple[int, int], ended: int) -> bool:
        """A reader has ended so many of a shard; True if it is news that all shards have."""
        with self._lock:
            shards = self._epochs[split]
            before = min(shards.values(), default=0)
            shards[shard] = max(shards.get(shard, 0), ended)
            return min(shards.values()) > before

    def counts(self, split: str | None = None) -> dict[str, int]:
        """Returns records read, records skipped by reason, and epochs completed, of all splits.

        An epoch of a split is complete when every shard of it that this process reads is. Of
        several readers of a shard, and of several splits, that with most epochs counts.
        """
        # All of them, zeros too: hosts add up what they have counted, name by name.
        names = ["read", *(f"skipped_{reason}" for reason in (*REASONS, *FILTERS)), *NOTES]
        with self._lock:
            found = sum(
                (counts for of, counts in self._counts.items() if split in (None, of)),
                collections.Counter(),
            )
            ended = [shards for of, shards in self._epochs.items() if split in (None, of)]
            epochs = max((min(e.values()) for e in ended if e), default=0)
            return {**{name: found[name] for name in names}, "epochs": epochs}

    def each_once(self, split: str) -> dict[str, int]:
        """Returns what `counts` does of a split, but each of its records counted once.

        Of each shard it is the fullest epoch: a whole one, where one was read from its beginning.
        What was cut is of all `examples` that were made of it.
        """
        with self._lock:
            by_number = collections.defaultdict(collections.Counter)
            for (of, (_, shards)), readings in self._readings.items():
                if of == split:
                    fullest = max((reading.fullest for reading in readings), key=_read)
                    by_number[shards].update(fullest)
            found = max(by_number.values(), key=_read, default=collections.Counter())
            made = {name: self._counts[split][name] for name in (MADE, *NOTES)}
            return {**self.counts(split), **dict.fromkeys(_skips(), 0), "read": 0, **found, **made}

    def skipped(self) -> str:
        """Returns how many records were skipped by reason, as "2 empty, 1 null", or "none"."""
        return _reasons(self.counts())

    def sentence(self, split: str | None = None) -> str:
        """Returns the counts as one line for the log."""
        counts = self.counts(split)
        cut = [f"{counts[note]} {note.replace('_', ' ')}, " for note in NOTES if counts[note]]
        return (
            f"corpus {self.corpus}{f', split {split}' if split else ''}: "
            f"{counts['read']} records read, skipped {_reasons(counts)}, "
            f"{''.join(cut)}{counts['epochs']} epochs completed"
        )

    def splits(self) -> list[str]:
        """Returns the splits of which something was read."""
        with self._lock:
            return [split for split, counts in self._counts.items() if split and counts["read"]]


class Reading:
    """What one reader of a shard meets; see `Tally.begin`."""

    def __init__(self, tally: Tally, split: str, shard: tuple[int, int], shuffled: bool):
        self._tally, self._name, self._shuffled = tally, (split, shard), shuffled
        self._epochs: dict[int, tuple[tuple, collections.Counter]] = {}
        self._last: tuple | None = None
        self._ended = 0
        self.fullest = collections.Counter()

    def add(
        self, place: tuple[int, ...], counts: Mapping[str, int], labels: Iterable[str] = ()
    ) -> None:
        """Adds the counts of a place, (epoch, file, part, step).

        A place that is asked for again adds nothing to its epoch: an epoch that is not shuffled
        may be read by several at a time, and comes to its places in their order.
        """
        epoch, *at = place
        with self._tally._lock:
            if place != self._last:
                self._tally.add(counts, labels, self._name[0])
            self._last = place
            last, found = self._epochs.get(epoch, (None, collections.Counter()))
            if last is None or (at != last if self._shuffled else at > last):
                found.update(counts)
                self._epochs[epoch] = at, found
                self.fullest = max(self.fullest, found, key=_read)

    def end_epoch(self, epoch: int) -> bool:
        """Counts an epoch; True if all shards that are read have now ended it."""
        with self._tally._lock:
            self._epochs.pop(epoch, None)
            self._ended += 1
            return self._tally.end_epoch(*self._name, self._ended)


def _read(counts: Mapping[str, int]) -> int:
    return counts["read"]


def _skips() -> list[str]:
    return [f"skipped_{reason}" for reason in (*REASONS, *FILTERS)]


def _reasons(counts: Mapping[str, int]) -> str:
    found = [(counts[name], name.removeprefix("skipped_")) for name in _skips()]
    return ", ".join(f"{n} {reason.replace('_', ' ')}" for n, reason in found if n) or "none"
