"""From records to documents: the wanted text of each, and a count of what was left out and why.

column = Column("{title}\\n{body}")            # or just Column("body")
column = Column("body", min_chars=200, where={"language": "ro"}, unique=True)
counter = RecordCounter("my corpus")
texts = screen(records, column, max_chars=1_000_000, add=counter.add)
counter.counts()   # {'read': 512, 'skipped_empty': 2, ..., 'epochs': 0}
"""

import collections
import copy
import dataclasses
import string
from collections.abc import Callable, Iterable, Mapping, Sequence

from tasks.io.formats import MALFORMED, NOT_UTF8
from tasks.record_counts import MOST_LABELS

SEPARATOR = "\x1f"  # between the columns of `Columns`; no text has it


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A label that is not listed."""

    label: str


class Column:
    """A column's name, or a template of several such as "{title}\\n{body}", and which to keep.

    Give it to any source: CorpusSource("user/name", column=Column("text", min_chars=200)).

    Args:
      name: the name or template; or a column, which gives the same column.
      min_chars: texts of fewer characters are skipped.
      max_chars: texts of more are skipped; the source's own limit holds too.
      where: values that other columns must have, {"language": "ro"} or {"language": ["ro", "mo"]};
        records with others, or none, are skipped.
      unique: skip a text that came before, letter by letter, in the same batch of records as they
        are read (up to 512 records, or a megabyte of JSON lines). A stream promises no more: its
        shards read at the same time and resume anywhere, so what others have read they cannot
        know. Which are skipped depends on the corpus and the number of shards alone, never on
        order, resume or hosts. `python -m tasks.cache --unique` finds all repetitions of a split.
    """

    def __init__(
        self,
        name: "str | Column",
        min_chars: int = 0,
        max_chars: int | None = None,
        where: Mapping[str, str | Sequence[str]] | None = None,
        unique: bool = False,
    ):
        if isinstance(name, Column):
            self.__dict__.update(name.__dict__)
            return
        if max_chars is not None and min_chars > max_chars:
            raise ValueError(
                f"min_chars is {min_chars} and max_chars {max_chars}, which leaves no text: set "
                "max_chars to no less"
            )
        self.name = name
        self.min_chars, self.max_chars, self.unique = min_chars, max_chars, unique
        self._where = {
            key: {value} if isinstance(value, str) else set(value)
            for key, value in (where or {}).items()
        }
        named = [field for _, field, _, _ in string.Formatter().parse(name) if field is not None]
        self._of = tuple(dict.fromkeys(named)) or (name,)
        self._template = bool(named)
        # All that must be read.
        self.fields = tuple(dict.fromkeys([*self._of, *self._where]))

    @property
    def known(self) -> list[str]:
        """The labels that may be, where a column has any."""
        return []

    def keeps(self, record: Mapping) -> bool:
        """Says whether the record's other columns have the values asked for."""
        return all(record.get(key) in values for key, values in self._where.items())

    def of(self, record: Mapping):
        """Returns the record's text, None if a column is null or absent, or what else it holds."""
        values = [record.get(field) for field in self._of]
        if not self._template:
            return values[0]
        if any(value is None for value in values):
            return None
        return self.name.format(**dict(zip(self._of, values, strict=True)))


class Columns(Column):
    """Several columns kept apart: their texts stand one after the other with SEPARATOR between.

    Columns({"inputs": "{Title}\\n{Body}", "targets": "Y"}, {"targets": {"HQ": "high"}})

    Args:
      columns: by feature, a column or template.
      labels: by feature, what each value of its column is called.
      clean: by column, what is done to its text first, such as `html_text.text_of`.

    Raises:
      ValueError: labels of a feature that has no column.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        labels: Mapping[str, Mapping[str, str]] | None = None,
        clean: Mapping[str, Callable[[str], str]] | None = None,
    ):
        super().__init__(", ".join(columns.values()))
        self._clean = dict(clean or {})
        self._sides = {feature: Column(name) for feature, name in columns.items()}
        self._labels = {k: dict(v) for k, v in (labels or {}).items()}
        for unknown in self._labels.keys() - self._sides.keys():
            raise ValueError(f"labels are given for {unknown!r}, but columns for {list(columns)}")
        self.fields = tuple(dict.fromkeys(f for side in self._sides.values() for f in side.fields))

    @property
    def known(self) -> list[str]:
        """The labels that are listed, as they are written."""
        return [label for labels in self._labels.values() for label in labels]

    def only(self, feature: str, names: Sequence[str]) -> "Columns":
        """Returns these columns with a feature that may be one of `names` alone.

        Other values are left out as unknown labels are. Without labels they are called as they are
        written.

        Raises:
          ValueError: a label is called something else, or the feature has no column.
        """
        if feature not in self._sides:
            raise ValueError(f"classes are given for {feature!r}, but columns for {[*self._sides]}")
        labels = self._labels.get(feature) or {name: name for name in names}
        for value, name in labels.items():
            if name not in names:
                raise ValueError(
                    f"label {value!r} is called {name!r}, which is not one of the classes "
                    f"{', '.join(map(repr, names))}: name it among them, or leave that label out"
                )
        other = copy.copy(self)
        other._labels = {**self._labels, feature: labels}
        return other

    def of(self, record: Mapping):
        """Returns all texts; None, blank, no string or Unknown if one of them is."""
        for name, clean in self._clean.items():
            if isinstance(text := record.get(name), str):
                record = {**record, name: clean(text)}
        found = []
        for feature, side in self._sides.items():
            value = side.of(record)
            if value is not None and feature in self._labels:
                label = str(value).strip()
                value = self._labels[feature].get(label, Unknown(label) if label else "")
            if not isinstance(value, str) or not value.strip():
                return value
            found.append(value.replace(SEPARATOR, " "))
        return SEPARATOR.join(found)


def screen(records: Iterable, column: Column, max_chars: int, add: Callable | None) -> list[bytes]:
    """Returns the documents worth training on, UTF-8; counts all records.

    Left out are records that are malformed, whose text is null, no string, blank, or of more than
    `max_chars` characters, and what `column` does not keep. `add` is given the counts by name and
    some labels that are not listed, as `RecordCounter.add` takes them.
    """
    counts = collections.Counter()
    kept, labels = [], {}
    seen: set[str] = set()
    longest = max_chars if column.max_chars is None else min(max_chars, column.max_chars)
    for record in records:
        counts["read"] += 1
        text = record if record in (MALFORMED, NOT_UTF8) else column.of(record)
        reason = _fault(text, longest) or _unwanted(record, text, column, seen)
        if reason:
            counts[f"skipped_{reason}"] += 1
        else:
            kept.append(text.encode("utf-8", "replace"))
        if isinstance(text, Unknown) and len(labels) < MOST_LABELS:
            labels[text.label] = None
    if add:
        add(counts, labels)
    return kept


def _fault(text, max_chars: int) -> str | None:
    if text is MALFORMED:
        return "malformed"
    if text is NOT_UTF8:
        return "not_UTF-8"
    if text is None:
        return "null"
    if isinstance(text, Unknown):
        return "unknown_label"
    if not isinstance(text, str):
        return "not_text"
    if not text or text.isspace():
        return "empty"
    if len(text) > max_chars:
        return "too_long"
    return None


def _unwanted(record: Mapping, text: str, column: Column, seen: set[str]) -> str | None:
    if len(text) < column.min_chars:
        return "too_short"
    if not column.keeps(record):
        return "other_value"
    if column.unique:
        if text in seen:
            return "duplicate"
        seen.add(text)
    return None
