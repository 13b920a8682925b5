"""Counts of the records that this process reads of a corpus, by split."""

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np
from absl import logging

from common.tables import counted

REASONS = ("empty", "null", "not_text", "not_UTF-8", "malformed", "too_long")
# Where a column requests copies.
FILTERS = ("too_short", "other_value", "low_value", "unknown_label")
SKIPS = tuple(f"skipped_{reason}" for reason in (*REASONS, *FILTERS))
# Of records that are used, but not as they are written.
CHANGES = ("kept_with_numbers", "kept_with_replaced_characters")
EXTRA_COPIES = "extra_copies"  # copies of records that an epoch has several times
CODED = (*SKIPS, *CHANGES, EXTRA_COPIES)
NOTES = ("cut_inputs", "cut_targets")  # counted per example made
MADE = "examples"
BAD_FILES = "bad_files"  # skipped files, each counted once
SPELLED = "texts_with_special_tokens"  # such as "</s>", of a published tokenizer
# Of the texts that the pipeline reads, normalized, and of what it makes of them.
TEXTS = ("text_bytes", "replaced_characters", "pieces", "unknown_pieces", SPELLED)

_BITS = {name: 1 << i for i, name in enumerate(CODED)}
# A record is counted under the names of its code's bits; 0 is a record that is used as it is.
code = _BITS.__getitem__


def count_codes(codes: np.ndarray) -> Counter[str]:
    """Return the counts by name of records and copies with these codes, int [k]."""
    counts = Counter({"read": len(codes)})
    for bits, n in zip(*np.unique(codes, return_counts=True), strict=True):
        counts.update({name: int(n) for name, bit in _BITS.items() if bits & bit})
    counts["read"] -= counts[EXTRA_COPIES]
    return counts


class RecordCounter:
    """Counts of one corpus, safe to add to from several threads.

    A record that is read again, in another epoch, evaluation or run of the reader, counts again.
    """

    def __init__(self, corpus: str):
        self.corpus = corpus
        self._lock = threading.RLock()
        self._counts: defaultdict[str | None, Counter[str]] = defaultdict(Counter)
        self._bad_files: set[tuple[str, str]] = set()  # split, address
        self._epochs: defaultdict[str, dict[tuple[int, int], int]] = defaultdict(dict)

    def add(self, counts: Mapping[str, int], split: str | None = None) -> None:
        """Add counts by name, of a split."""
        with self._lock:
            self._counts[split].update(counts)

    def add_records(self, split: str, codes: np.ndarray) -> None:
        """Add records and copies with these codes, int [k]."""
        self.add(count_codes(codes), split)

    def skip_file(self, split: str, file: object, error: Exception) -> None:
        """Count a file of a split that cannot be read, and log why."""
        with self._lock:
            is_new = (split, str(file)) not in self._bad_files
            self._bad_files.add((split, str(file)))
        if is_new:
            logging.warning("corpus %s skips a file: %s", self.corpus, error)

    def start_shard(self, split: str, shard: tuple[int, int]) -> None:
        """Note that this process reads a shard (index, number of shards) of a split."""
        with self._lock:
            # A stream that resumes may have made other shards before it knew their number.
            of_split = {s: n for s, n in self._epochs[split].items() if s[1] == shard[1]}
            self._epochs[split] = of_split
            of_split.setdefault(shard, 0)

    def end_epoch(self, split: str, shard: tuple[int, int], epochs: int) -> None:
        """Note that a reader completed `epochs` of a shard; log the counts if all shards have."""
        with self._lock:
            shards = self._epochs[split]
            before = min(shards.values(), default=0)
            shards[shard] = max(shards.get(shard, 0), epochs)
            if min(shards.values()) > before:
                logging.info("%s", self.sentence(split))

    def counts(self, split: str | None = None) -> dict[str, int]:
        """Return the records read, skipped and changed, texts, examples cut, epochs completed.

        An epoch is complete when all shards that this process reads have completed it. All names
        are present, also with 0, because hosts add up their counts name by name. Without `split` it
        is the sum of all.
        """
        with self._lock:
            mine = (counts for of, counts in self._counts.items() if split in (None, of))
            total: Counter[str] = sum(mine, Counter())
            of_split = (shards for of, shards in self._epochs.items() if split in (None, of))
            epochs = [min(shards.values()) for shards in of_split if shards]
            numbers = {name: total[name] for name in ("read", *CODED, *NOTES, MADE, *TEXTS)}
            numbers[BAD_FILES] = sum(split in (None, of) for of, _ in self._bad_files)
            return {**numbers, "epochs": max(epochs, default=0)}

    def skipped(self) -> str:
        """Return how many records were skipped by reason, as "2 empty, 1 null", or "none"."""
        return _reasons(self.counts())

    def sentence(self, split: str | None = None) -> str:
        """Return the counts as one line for the log."""
        counts = self.counts(split)
        names = [name for name in (*CHANGES, EXTRA_COPIES, *NOTES) if counts[name]]
        notes = [f"{counts[name]} {name.replace('_', ' ')}, " for name in names]
        if counts[BAD_FILES]:
            notes.append(f"skipped {counted(counts[BAD_FILES], 'bad file')}, ")
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


def _reasons(counts: Mapping[str, int]) -> str:
    numbers = [(counts[name], name.removeprefix("skipped_")) for name in SKIPS]
    return ", ".join(f"{n} {reason.replace('_', ' ')}" for n, reason in numbers if n) or "none"
