"""From records to documents: the wanted text of each, and a count of what was left out and why.

column = Column("{title}\\n{body}")            # or just Column("body")
tally = Tally("my corpus")
texts = screen(records, column, max_chars=1_000_000, tally=tally)
tally.counts()   # {'read': 512, 'skipped_empty': 2, ..., 'epochs': 0}
"""

import collections
import string
import threading
from collections.abc import Iterable, Mapping

from tasks.records import MALFORMED

REASONS = ("empty", "null", "not_text", "malformed", "too_long")


class Column:
    """A column's name, or a template of several such as "{title}\\n{body}"."""

    def __init__(self, name: str):
        self.name = name
        named = [field for _, field, _, _ in string.Formatter().parse(name) if field is not None]
        self.fields = tuple(dict.fromkeys(named)) or (name,)
        self._template = bool(named)

    def of(self, record: Mapping):
        """Returns the record's text, None if a column is null or absent, or what else it holds."""
        values = [record.get(field) for field in self.fields]
        if not self._template:
            return values[0]
        if any(value is None for value in values):
            return None
        return self.name.format(**dict(zip(self.fields, values, strict=True)))


class Tally:
    """Counts of one corpus's records, safe to add to from several threads."""

    def __init__(self, corpus: str):
        self.corpus = corpus
        self._lock = threading.Lock()
        self._counts = collections.Counter()
        self._epochs = collections.defaultdict(dict)

    def add(self, counts: Mapping[str, int]) -> None:
        """Adds `counts`, by name."""
        with self._lock:
            self._counts.update(counts)

    def begin(self, split: str, shard: tuple[int, int]) -> None:
        """Says that this process reads a shard (index, of how many) of a split."""
        with self._lock:
            self._epochs[split].setdefault(shard, 0)

    def end_epoch(self, split: str, shard: tuple[int, int]) -> bool:
        """Counts an epoch of a shard; True if all shards that are read have now ended it."""
        with self._lock:
            shards = self._epochs[split]
            before = min(shards.values(), default=0)
            shards[shard] = shards.get(shard, 0) + 1
            return min(shards.values()) > before

    def counts(self) -> dict[str, int]:
        """Returns records read, records skipped by reason, and epochs completed.

        An epoch of a split is complete when every shard of it that this process reads is; of
        several splits, that with most epochs counts.
        """
        names = ("read", *(f"skipped_{reason}" for reason in REASONS))
        with self._lock:
            epochs = max((min(e.values()) for e in self._epochs.values()), default=0)
            return {**{name: self._counts[name] for name in names}, "epochs": epochs}

    def sentence(self) -> str:
        """Returns the counts as one line for the log."""
        counts = self.counts()
        skipped = [f"{counts['skipped_' + r]} {r.replace('_', ' ')}" for r in REASONS]
        skipped = [s for s in skipped if not s.startswith("0 ")]
        return (
            f"corpus {self.corpus}: {counts['read']} records read, "
            f"skipped {', '.join(skipped) or 'none'}, {counts['epochs']} epochs completed"
        )


def screen(records: Iterable, column: Column, max_chars: int, tally: Tally | None) -> list[bytes]:
    """Returns the documents worth training on, UTF-8; counts all records in `tally`.

    Left out are records that are malformed, whose text is null, no string, blank, or of more than
    `max_chars` characters.
    """
    counts = collections.Counter()
    kept = []
    for record in records:
        counts["read"] += 1
        text = MALFORMED if record is MALFORMED else column.of(record)
        reason = _fault(text, max_chars)
        if reason:
            counts[f"skipped_{reason}"] += 1
        else:
            kept.append(text.encode("utf-8", "replace"))
    if tally:
        tally.add(counts)
    return kept


def _fault(text, max_chars: int) -> str | None:
    if text is MALFORMED:
        return "malformed"
    if text is None:
        return "null"
    if not isinstance(text, str):
        return "not_text"
    if not text or text.isspace():
        return "empty"
    if len(text) > max_chars:
        return "too_long"
    return None
