"""Rows of CSV and TSV files, and quotes that stand there by accident.

    for row in read_rows(text, file, fields=("text",), longest=80_000_000): ...

In CSV a field that begins with a quote ends at the next one. So two quotes of the text, rows apart,
would make one field of all rows between. In TSV a quote is a character like others.
"""

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

from absl import logging

from common.errors import UserError
from tasks.corpus.records import values
from tasks.corpus.records.lines import LONGEST_LINE
from tasks.corpus.storage.files import CorpusFile

_DELIMITERS = {"csv": ",;\t|", "tsv": "\t,;|"}  # the usual one first
# A quoted field is suspected if more than this share of its lines are rows by themselves; a few of
# few columns may be so by chance. A sound file shows what its quotes are for within so many rows.
_SHARE_OF_ROWS, _FIELDS_IN_DOUBT, _ROWS_TO_PROVE = 0.9, 8, 1000
_WITH_QUOTES = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
_HOW_TO_QUOTE = (
    'quote the entire field and double each quote in it, "He said ""yes""", or write the file as '
    "JSONL"
)

csv.field_size_limit(LONGEST_LINE)


class _Row(NamedTuple):
    """A row by column, the number of its first line, and its lines as they are written."""

    columns: dict
    number: int
    lines: list[str]


def read_rows(text: TextIO, file: CorpusFile, fields: Sequence[str], longest: int) -> Iterator:
    """Yield the rows of a CSV or TSV file; NOT_UTF8 or MALFORMED for those that are no record.

    Quotes in the header of a TSV file show that a program has quoted it, as CSV.

    Raises:
      UserError: a quoted field does not end, or another character than the delimiter follows its
        end, or its lines are rows. Or a line is longer than `longest` characters.
    """
    row_lines: list[str] = []
    lines = _bounded(text, file, longest, row_lines)
    header = next(lines, "")
    delimiter, is_by_program = _delimiter(header, file.kind, fields), '"' in header
    has_quotes = file.kind == "csv" or delimiter != "\t" or is_by_program
    reader = csv.DictReader(
        itertools.chain([header], lines),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE,
        strict=True,
    )
    rows = _numbered(reader, row_lines, file)
    if not has_quotes:
        rows = _with_quotes_named(rows, file)
    elif not is_by_program:
        rows = _without_accidents(rows, file, delimiter)
    yield from (_checked(row.columns) for row in rows)


def _bounded(text: TextIO, file: CorpusFile, longest: int, row_lines: list[str]) -> Iterator[str]:
    """Yield the lines of a text, and append them to those of the row that is read."""
    while line := text.readline(longest):
        if len(line) == longest and line[-1] not in "\r\n":
            why = f"has a line of more than {longest:,} characters"
            raise UserError(str(file), why=why, to_set="cut it")
        row_lines.append(line)
        yield line


def _delimiter(header: str, kind: str, fields: Sequence[str]) -> str:
    """Return the delimiter by which a header has most of the wanted columns, or most columns."""

    def columns(delimiter: str) -> tuple[int, int]:
        header_names = next(csv.reader([header], delimiter=delimiter), [])
        return len(set(header_names) & set(fields)), len(header_names)

    return max(_DELIMITERS[kind], key=columns)


def _numbered(reader: csv.DictReader, row_lines: list[str], file: CorpusFile) -> Iterator[_Row]:
    number = 1
    try:
        _ = reader.fieldnames  # reads the header
        row_lines.clear()
        number = reader.line_num + 1
        for columns in reader:
            yield _Row(columns, number, row_lines.copy())
            row_lines.clear()
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"the row of {file} that begins at line {number}",
            why=f"has a quote that does not end, or text after one that does ({error})",
            to_set=_HOW_TO_QUOTE,
        ) from error


def _without_accidents(rows: Iterator[_Row], file: CorpusFile, delimiter: str) -> Iterator[_Row]:
    """Yield rows, or refuse a quoted field that seems to hold rows.

    Only a file that no program has written has such a field. So there is none if quotes have a
    purpose elsewhere in the file, since a delimiter, a quote or lines of text stand in them.
    """
    doubt: _Row | None = None
    waiting: list[_Row] = []
    for row in rows:
        is_proof = is_doubtful = False
        if any('"' in line for line in row.lines):
            is_proof, is_doubtful = _judged(row, delimiter)
        if is_proof:
            yield from (*waiting, row)
            yield from rows
            return
        if is_doubtful and (doubt is None or len(row.lines) > len(doubt.lines)):
            doubt = row
        if doubt is None:
            yield row
            continue
        waiting.append(row)
        if len(waiting) > _ROWS_TO_PROVE:
            _refuse(doubt, file)
            yield from waiting
            doubt, waiting = None, []
    if doubt:
        _refuse(doubt, file)
        yield from waiting


def _refuse(doubt: _Row, file: CorpusFile) -> None:
    """Raise UserError for a field that holds rows; only warn of the first that has few."""
    where, n = f"the row of {file} that begins at line {doubt.number}", len(doubt.lines)
    if n * len(doubt.columns) < _FIELDS_IN_DOUBT:
        _warn_once(str(file), f"{where} has a quoted field of {n} lines, which may be rows")
        return
    why = f"has a quoted field of {n} lines, which are rows themselves"
    raise UserError(where, why=why, to_set=_HOW_TO_QUOTE)


def _judged(row: _Row, delimiter: str) -> tuple[bool, bool]:
    """Return whether the quotes of a row have a purpose, and whether its lines may be rows."""
    lines = [*itertools.dropwhile(lambda line: not line.strip(), row.lines)]
    n = len(row.columns) - (None in row.columns)
    by_themselves = sum(bool(line.strip()) and line.count(delimiter) == n - 1 for line in lines)
    are_rows = by_themselves > _SHARE_OF_ROWS * len(lines)
    is_complete = None not in row.columns and None not in row.columns.values()
    is_proof = is_complete and (not are_rows or any('""' in line for line in lines))
    return is_proof, are_rows and len(lines) > 1 and not is_proof


def _with_quotes_named(rows: Iterator[_Row], file: CorpusFile) -> Iterator[_Row]:
    """Yield the rows of a file without quotes; warn if a program has quoted some as in CSV."""
    for row in rows:
        yield row
        fields = (field for field in row.columns.values() if isinstance(field, str))
        if '""' in row.lines[-1] and any(map(_WITH_QUOTES.fullmatch, fields)):
            what = f"{file} has at line {row.number} a field in quotes with doubled ones, as in CSV"
            _warn_once(str(file), f"{what}; in TSV they are text: if not, end its name in .csv")
            break
    yield from rows


_warned: set[str] = set()


def _warn_once(file: str, sentence: str) -> None:
    """Log the first sentence on a file, which each epoch reads again."""
    if file not in _warned:
        _warned.add(file)
        logging.warning("%s", sentence)


def _checked(row: dict):
    """Return a CSV row; NOT_UTF8, or MALFORMED if it has more values than there are columns."""
    try:
        "".join(value for value in row.values() if value).encode()
    except UnicodeEncodeError:
        return values.NOT_UTF8
    except TypeError:  # csv puts the surplus values into a list under None
        return values.MALFORMED
    return row
