"""Turns records into documents.

    column = Column("{title}\\n{body}")            # or just Column("body")
    column = Column("body", min_chars=200, where={"language": "ro"})
    column = Column("body", copies={"quality": {7: 1, 9: 2}})
    column = Column("body", file_copies={"10_*": 3, "9_*": 2})
    screened = screen(records, column, max_chars=1_000_000)
    screened.usable                 # [(b"un text",), …]
    counts.count_codes(screened.codes)  # {'read': 512, 'skipped_empty': 2}

`screen` turns each record into a document, or skips it and returns the reason.
"""

import bisect
import copy
import dataclasses
import fnmatch
import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from common.errors import UserError
from tasks.corpus.records.counts import EXTRA_COPIES, code
from tasks.corpus.records.values import MALFORMED, NOT_UTF8, TOO_LONG, UNREADABLE, UNUSABLE, value

_CONTAINERS = (list, dict, bytes)
_GROUP = "group of the row"  # the feature of a group that is no other feature
Document: TypeAlias = tuple[bytes, ...]  # the text of each of a column's features, in UTF-8


@dataclasses.dataclass(frozen=True)
class UnknownLabel:
    """A value that no label lists."""

    label: str


class Column:
    """A column's name, or a template of several such as "{title}\\n{body}", with filters.

    Every source takes it: CorpusSource("user/name", column=Column("text", min_chars=200)).

    A template accepts numbers, and their records are counted. A column may be a path into objects,
    "meta.text". A record is skipped if its column holds an object, or a list that is not `joined`.

    Records may lack columns, but the first records of each file must contain every text column, and
    those of the first file the columns of `where` and `copies` too. A parquet file must have all
    columns.

    Args:
      name: the name or template.
      min_chars: shorter texts are skipped.
      max_chars: longer texts are skipped; the source's own limit applies too.
      where: required values of other columns, {"language": "ro"} or {"language": ["ro", "mo"]};
        records with other values (lists and objects too), or none, are skipped.
      copies: by column, how often an epoch has a record with a number there: {"quality": {7: 1, 9:
        2}} is once from 7 up, twice from 9 up, and never below 7. Several columns multiply. A
        record without a number there is used once. The copies of a record are as far apart as its
        epoch is mixed.
      file_copies: by pattern of a file's name, {"10_*": 3, "9_*": 2}, how often an epoch has its
        records; the first pattern that matches counts, and files without one are used once. It
        multiplies with `copies`.
      joined: what stands between the texts of a list that is in a column, such as "\\n".
    """

    features: tuple[str, ...] = ("text",)  # the names of a document's texts
    split_by: tuple[str, ...] = ("text",)  # those that decide whether a document is held out
    group = ""  # the column of that text, if it is not the whole document

    def __init__(
        self,
        name: str,
        min_chars: int = 0,
        max_chars: int | None = None,
        where: Mapping[str, str | Sequence[str]] | None = None,
        copies: Mapping[str, Mapping[float, int]] | None = None,
        file_copies: Mapping[str, int] | None = None,
        joined: str | None = None,
    ):
        if max_chars is not None and min_chars > max_chars:
            raise UserError(
                "min_chars",
                min_chars,
                f"and max_chars {max_chars}, which leaves no text",
                "set max_chars to no less",
            )
        self.name, self._joined = name, joined
        self.min_chars, self.max_chars = min_chars, max_chars
        self._where = {
            key: [value] if isinstance(value, str) else list(value)
            for key, value in (where or {}).items()
        }
        self.copies = {key: _sorted_copies(key, steps) for key, steps in (copies or {}).items()}
        self.file_copies = dict(file_copies or {})
        for pattern, number in self.file_copies.items():
            _check_copies(f"copies of files {pattern!r}", number)
        self._of_file = 1  # copies of each record of the file that is read
        # By column, the numbers from which on, and how often below the first and from each.
        self._steps = {k: ([*steps], [0, *steps.values()]) for k, steps in self.copies.items()}
        parts = [part for part in string.Formatter().parse(name) if part[1] is not None]
        self._of = tuple(dict.fromkeys(cast(str, part[1]) for part in parts)) or (name,)
        self._is_template = bool(parts)
        self._template = _numbered(name, self._of)
        self.text_fields = self._of
        # All that must be read.
        self.fields = tuple(dict.fromkeys([*self._of, *self._where, *self.copies]))
        self._labels: dict[str, dict[str, str]] = {}  # {feature: {value: label}}, set by `Columns`

    @property
    def known_labels(self) -> list[str]:
        """The listed labels, as they are written in the corpus."""
        return [label for labels in self._labels.values() for label in labels]

    @property
    def settings(self) -> dict[str, Any]:
        """What decides which records are documents, as JSON; `copies` are apart."""
        settings = {"column": self.name, "where": self._where, "labels": self._labels}
        return settings | {"chars": [self.min_chars, self.max_chars]}

    def matches(self, record: Mapping) -> bool:
        """Return whether the record's other columns have the required values."""
        # Lists are searched by equality, since a record's value may be a list or an object itself.
        return all(value(record, key) in values for key, values in self._where.items())

    def for_file(self, url: str) -> "Column":
        """Return the column with the copies that `file_copies` gives a file."""
        if not self.file_copies:
            return self
        name, column = url.rpartition("/")[2], copy.copy(self)
        fits = (n for pattern, n in self.file_copies.items() if fnmatch.fnmatchcase(name, pattern))
        column._of_file = next(fits, 1)
        return column

    def count_copies(self, record: Mapping) -> int:
        """Return how often an epoch has the record."""
        copies = self._of_file
        for key, (limits, counts) in self._steps.items():
            number = value(record, key)
            if isinstance(number, int | float) and number == number:
                copies *= counts[bisect.bisect_right(limits, number)]
        return copies

    def extract(self, record: Mapping) -> Any:
        """Return the text of each feature, or the value in place of one that is no text."""
        text = self.text(record)
        return (text,) if isinstance(text, str) else text

    def text(self, record: Mapping) -> Any:
        """Return the text, None if a column is null or absent, or a value that is no text."""
        values = [value(record, field) for field in self._of]
        if self._joined is not None:
            values = [_joined(text, self._joined) for text in values]
        if not self._is_template:
            return values[0]
        if any(text is None for text in values):
            return None
        for text in values:
            if isinstance(text, _CONTAINERS):
                return text
        try:
            return self._template.format(*values)
        except (TypeError, ValueError):  # a format such as {year:04d} does not suit the value
            return values

    def has_numbers(self, record: Mapping) -> bool:
        """Return whether a template's columns hold other values than texts."""
        return self._is_template and not all(isinstance(value(record, f), str) for f in self._of)


def _joined(items: Any, between: str) -> Any:
    """Return the text of a list of texts and of nulls; other values as they are."""
    if not isinstance(items, list):
        return items
    texts = [text for text in items if text is not None]
    return between.join(texts) if all(isinstance(text, str) for text in texts) else items


def _numbered(template: str, fields: Sequence[str]) -> str:
    """Return a template with the numbers of its fields, since a path is none of `str.format`'s."""
    made = ""
    for literal, field, form, conversion in string.Formatter().parse(template):
        made += literal.replace("{", "{{").replace("}", "}}")
        if field is not None:
            how = f"!{conversion}" * bool(conversion) + f":{form}" * bool(form)
            made += f"{{{fields.index(field)}{how}}}"
    return made


def _sorted_copies(column: str, steps: Mapping[float, int]) -> dict[float, int]:
    for first, copies in steps.items():
        _check_copies(f"copies of column {column!r} from {first} up", copies)
        if not math.isfinite(first):
            raise UserError(
                f"copies of column {column!r}",
                why=f"begin at {first}",
                to_set="set a finite number",
            )
    return dict(sorted(steps.items()))


def _check_copies(setting: str, copies: int) -> None:
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 0:
        raise UserError(setting, copies, to_set="set an integer, 0 to leave such records out")


class Columns(Column):
    """Several columns; each becomes a feature of the document.

        Columns({"inputs": "{Title}\\n{Body}", "targets": "Y"}, {"targets": {"HQ": "high"}})

    See `tasks.rows.Rows` for the arguments.

    Raises:
      UserError: a feature has labels but no column.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        labels: Mapping[str, Mapping[str, str]] | None = None,
        clean: Mapping[str, Callable[[str], str]] | None = None,
        lists: Mapping[str, Callable[[Sequence[str]], str]] | None = None,
        group: str | None = None,
    ):
        super().__init__(", ".join(columns.values()))
        self.group = next(iter(columns.values())) if group is None else group
        feature_of = {column: feature for feature, column in [*columns.items()][::-1]}
        self.split_by = (feature_of.get(self.group, _GROUP),) if self.group else tuple(columns)
        if _GROUP in self.split_by:  # a template, since a group may be a number
            is_name = not any(sign in self.group for sign in "{}!:")
            columns = {**columns, _GROUP: f"{{{self.group}}}" if is_name else self.group}
        self._clean, self._lists = dict(clean or {}), dict(lists or {})
        self._columns = {feature: Column(name) for feature, name in columns.items()}
        self.features = tuple(columns)
        self._labels = {k: dict(v) for k, v in (labels or {}).items()}
        for unknown in self._labels.keys() - self._columns.keys():
            raise UserError(
                "labels", why=f"are given for {unknown!r}, but columns for {list(columns)}"
            )
        fields = [field for column in self._columns.values() for field in column.fields]
        self.fields = self.text_fields = tuple(dict.fromkeys(fields))

    def only(self, feature: str, names: Sequence[str]) -> "Columns":
        """Return these columns with a feature restricted to `names`.

        Records with other values are skipped as unknown labels. A feature without labels keeps its
        values as names.

        Raises:
          UserError: a label's name is not one of `names`, or the feature has no column.
        """
        if feature not in self._columns:
            why = f"are given for {feature!r}, but columns for {[*self._columns]}"
            raise UserError("classes", why=why)
        labels = self._labels.get(feature) or {name: name for name in names}
        for label, name in labels.items():
            if name not in names:
                raise UserError(
                    f"label {label!r}",
                    why=f"is called {name!r}, which is not one of the classes "
                    f"{', '.join(map(repr, names))}",
                    to_set="name it among them, or leave that label out",
                )
        other = copy.copy(self)
        other._labels = {**self._labels, feature: labels}
        return other

    def names_of(self, feature: str) -> list[str]:
        """Return the names of a feature's labels; none if it has no labels."""
        return [*self._labels.get(feature, {}).values()]

    def extract(self, record: Mapping) -> Any:
        """Return the text of each feature, or the first that is blank or no text."""
        for name, joined in self._lists.items():
            items = value(record, name)
            if isinstance(items, list) and all(isinstance(item, str) for item in items):
                record = {**record, name: joined(items)}
        for name, clean in self._clean.items():
            if isinstance(text := value(record, name), str):
                record = {**record, name: clean(text)}
        texts = []
        for feature, column in self._columns.items():
            text = column.text(record)
            if feature in self._labels and not (text is None or isinstance(text, _CONTAINERS)):
                label = str(text).strip()
                text = self._labels[feature].get(label, UnknownLabel(label) if label else "")
            if not isinstance(text, str) or not text.strip():
                return text
            texts.append(text)
        return tuple(texts)

    def has_numbers(self, record: Mapping) -> bool:
        """Return whether a template's columns hold other values than texts."""
        return any(column.has_numbers(record) for column in self._columns.values())


class Screened(NamedTuple):
    """What becomes of some records, in their order, each copy after its record.

    `documents`: None where the record is skipped. `codes`: int32 [k], how each is counted; see
    `counts.code`. `labels`: the unknown labels, one for each record that was skipped for its
    label.
    """

    documents: list[Document | None]
    codes: np.ndarray
    labels: list[str]

    @property
    def usable(self) -> list[Document]:
        """The documents of the records that are not skipped."""
        return [document for document in self.documents if document is not None]


def screen(records: Iterable, column: Column, max_chars: int) -> Screened:
    """Return the document of each record, or why it is skipped.

    Skipped are records that are malformed, whose text is null, no string, blank, or longer than
    `max_chars`, and those that `column` filters out. Lone surrogates, which UTF-8 cannot encode,
    become question marks.
    """
    longest = max_chars if column.max_chars is None else min(max_chars, column.max_chars)
    documents: list[Document | None] = []
    codes: list[int] = []
    labels: list[str] = []
    for record in records:
        texts = record if record in UNUSABLE else column.extract(record)
        if reason := _fault(texts, longest) or _filtered(record, texts, column):
            documents.append(None)
            codes.append(code(f"skipped_{reason}"))
            if isinstance(texts, UnknownLabel):
                labels.append(texts.label)
            continue
        how = code("kept_with_numbers") if column.has_numbers(record) else 0
        try:
            document = tuple(text.encode() for text in texts)
        except UnicodeEncodeError:
            how |= code("kept_with_replaced_characters")
            readable = (text.replace(UNREADABLE, "\ufffd") for text in texts)
            document = tuple(text.encode("utf-8", "replace") for text in readable)
        extra = column.count_copies(record) - 1
        documents += [document] * (1 + extra)
        codes += [how, *[code(EXTRA_COPIES)] * extra]
    return Screened(documents, np.array(codes, np.int32), labels)


def _fault(texts: Any, max_chars: int) -> str | None:
    """Return why what `Column.extract` returned is no document, None if it is one."""
    if texts is MALFORMED:
        return "malformed"
    if texts is NOT_UTF8:
        return "not_UTF-8"
    if texts is TOO_LONG:
        return "too_long"
    if texts is None:
        return "null"
    if isinstance(texts, UnknownLabel):
        return "unknown_label"
    if isinstance(texts, str):
        return "empty"  # a blank text among several
    if not isinstance(texts, tuple):
        return "not_text"
    if not texts[0] or texts[0].isspace():
        return "empty"
    return "too_long" if _characters(texts) > max_chars else None


def _characters(texts: tuple[str, ...]) -> int:
    """Return the length of the texts, with one character between two."""
    return sum(map(len, texts)) + len(texts) - 1


def _filtered(record: Mapping, texts: tuple[str, ...], column: Column) -> str | None:
    """Return which of the column's filters rejects a document, None if none does."""
    if _characters(texts) < column.min_chars:
        return "too_short"
    if not column.matches(record):
        return "other_value"
    return None if column.count_copies(record) else "low_value"
