"""File formats: how files are cut into parts, and the records of a part.

A *part* can be read independently: a byte range of an uncompressed JSONL or text file (the lines
that begin in it), a row group of a parquet file, or an entire file of any other kind. It is read
in *batches* of records; see `tasks.corpus.records.values`.

    file = names.recognize("/data/ro.jsonl.zst")
    layout = PartLayout(column.fields, documents="lines")
    for part in range(layout.count(file)):
        for records in layout.batches(file, part): ...
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any, BinaryIO

from common.errors import UserError
from tasks.corpus.records import archives, contents, csv_rows, lines, parquet, values
from tasks.corpus.records.contents import HEAD_BYTES, Contents
from tasks.corpus.records.lines import LONGEST_LINE
from tasks.corpus.records.values import NOT_UTF8, TOO_LONG, UNREADABLE, UNUSABLE
from tasks.corpus.storage import files
from tasks.corpus.storage.files import PARALLEL, CorpusFile

DOCUMENTS = ("lines", "paragraphs", "files")  # what a document of plain text may be
PARALLEL_COLUMNS = ("source", "target")
BATCH_RECORDS = 512
MOST_BYTES = 1 << 30  # of a batch's texts, which are held together
LOCAL_PART_BYTES = 1 << 20
REMOTE_PART_BYTES = 8 << 20
_FOOTERS = 16  # read at a time


@dataclasses.dataclass(frozen=True)
class PartLayout:
    """How the files of a corpus are cut into parts and read.

    `fields`: the columns to read. `documents`: what a document is in plain text, "lines",
    "paragraphs" (lines up to an empty one, joined by spaces), "files", or the lines up to one like
    "%". `part_bytes`: size of a byte range; by default LOCAL_PART_BYTES or REMOTE_PART_BYTES.
    `longest`: bytes of a line, or of a JSON record; a longer one is not read. `batch_rows`: rows of
    a parquet file in a batch.
    """

    fields: tuple[str, ...] = ("text",)
    documents: str = "lines"
    part_bytes: int | None = None
    longest: int = LONGEST_LINE
    batch_rows: int = BATCH_RECORDS

    def divisible(self, file: CorpusFile) -> bool:
        """Return whether `file` can have more than one part."""
        return file.kind == "parquet" or self._by_bytes(file)

    def count(self, file: CorpusFile) -> int:
        """Return the number of parts of `file`, at least 1; costs at most one small read."""
        if file.kind == "parquet":
            return max(parquet.count_groups(file), 1)
        if self._by_bytes(file):
            return max(-(-files.known_size(file) // self.bytes_per_part(file)), 1)
        return 1

    def bytes_per_part(self, file: CorpusFile) -> int:
        """Return the size of the byte ranges that `file` is cut into."""
        return self.part_bytes or (REMOTE_PART_BYTES if file.remote else LOCAL_PART_BYTES)

    def _bounds(self, file: CorpusFile, part: int) -> tuple[int, int]:
        size = self.bytes_per_part(file)
        return part * size, min((part + 1) * size, files.known_size(file))

    def batches(
        self, file: CorpusFile, part: int, required: Sequence[str] | None = None
    ) -> Iterator[list]:
        """Yield the records of one part in batches, always in the same order.

        Some record at the beginning of `file` must have the columns `required`, by default all;
        parquet files have all. How the file is cut does not change what its beginning is.

        Raises:
          UserError: a column is missing.
        """
        if file.kind == "parquet":  # a parquet file has a schema
            return self._rows(file, part)
        if self._by_bytes(file):
            batches = iter([self._lines(file, *self._bounds(file, part))])
            beginning = lambda: self._beginning(file)
        else:
            batches, beginning = _in_batches(self._stream(file), file), None
        if part:
            return batches
        return _check_beginning(
            self.fields if required is None else required, batches, file, beginning
        )

    def _lines(self, file: CorpusFile, start: int, stop: int) -> list:
        contents_of_lines = lines.read_between(file, start, stop, self.longest)
        if file.kind == "jsonl":
            return list(values.json_records(contents_of_lines))
        return [self._columns(values.text_record(line)) for line in contents_of_lines]

    def _columns(self, record: Any) -> Any:
        """Return a line of plain text as a record of the columns that are numbers, or as text."""
        return values.columns_of(record, self._numbers)

    @functools.cached_property
    def _numbers(self) -> tuple[str, ...]:
        return tuple(filter(str.isdecimal, self.fields))

    def _beginning(self, file: CorpusFile) -> list:
        """Return the records of a part of the usual size."""
        usual = dataclasses.replace(self, part_bytes=None)
        return self._lines(file, *usual._bounds(file, 0))

    def _by_bytes(self, file: CorpusFile) -> bool:
        is_lines = file.kind == "jsonl" or (file.kind == "text" and self.documents == "lines")
        return (
            is_lines
            and not file.compression
            and files.has_ranges(file)
            and contents_of(file) == Contents(file.kind, "utf-8")
        )

    def _rows(self, file: CorpusFile, part: int) -> Iterator[list]:
        check_columns(file, self.fields)
        for batch in parquet.batches(file, part, self.fields, self.batch_rows, MOST_BYTES):
            yield _rows_of(batch)

    def _stream(self, file: CorpusFile) -> Iterator:
        if file.kind == PARALLEL:
            yield from _parallel_lines(file, self.longest)
            return
        with files.open_stream(file) as raw:
            if file.kind == "tar":
                for member, stream in archives.members(raw, file):
                    yield from self._records(stream, member)
            else:
                yield from self._records(raw, file)

    def _records(self, raw: BinaryIO, file: CorpusFile) -> Iterator:
        """Yield the records of a stream of a file, or of a member of an archive."""
        if file.kind in ("parquet", "tar"):
            raise UserError(str(file), why="cannot be read in an archive", to_set="unpack it")
        try:
            described, stream = contents.with_contents(raw, file)
            if described.kind in ("csv", "tsv"):
                text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
                yield from csv_rows.read_rows(text, file, self.fields, self.longest)
            elif described.kind == "json":
                yield from values.json_text_records(stream, self.longest)
            elif described.kind == "jsonl":
                yield from values.json_records(lines.read_lines(stream, self.longest))
            else:
                texts: Iterator = map(values.text_record, lines.read_lines(stream, self.longest))
                yield from self._documents(texts)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise files.damaged(file, error) from error

    def _documents(self, texts: Iterator) -> Iterator:
        """Yield the documents that lines of plain text are."""
        if self.documents == "lines":
            yield from map(self._columns, texts)
        elif self.documents == "files":
            yield self._joined(texts, "\n")
        else:
            separator = "" if self.documents == "paragraphs" else self.documents
            is_text = lambda line: line in UNUSABLE or line["text"].strip() != separator
            for is_document, group in itertools.groupby(texts, is_text):
                if is_document:
                    yield self._joined(group, "\n" if separator else " ")

    def _joined(self, lines_of_document: Iterator, between: str) -> Any:
        """Return the record of a document's lines, whose columns are joined one by one."""
        unreadable = dict.fromkeys(self._numbers or ("text",), UNREADABLE)
        columns = defaultdict[str, list[str]](list)
        length = 0
        for line in lines_of_document:
            size = len(line["text"].strip()) if isinstance(line, dict) else len(UNREADABLE)
            length += self.longest + 1 if line is TOO_LONG else size
            if length <= self.longest:
                record = self._columns(line) if isinstance(line, dict) else unreadable
                for name, text in record.items():
                    columns[name].append(text.strip())
        if length > self.longest:
            return TOO_LONG
        return {name: between.join(texts) for name, texts in columns.items()}


@functools.lru_cache(maxsize=100_000)
def contents_of(file: CorpusFile) -> Contents:
    """Return what a file is by its first bytes, by one small read; a parquet file is not read.

    Raises:
      UserError: it is not what its name says.
    """
    if file.kind in ("parquet", "tar", PARALLEL):
        return Contents(file.kind, "utf-8")
    if not file.compression and files.has_ranges(file):
        length = files.known_size(file)
        return contents.check_head(files.read_range(file, 0, min(HEAD_BYTES, length)), file)
    with files.open_stream(file) as stream:
        return contents.check_head(stream.read(HEAD_BYTES), file)


def _in_batches(records: Iterator, file: CorpusFile) -> Iterator[list]:
    """Yield lists of BATCH_RECORDS records, the last one shorter.

    Raises:
      UserError: those of a list have more than MOST_BYTES characters together.
    """
    batch: list = []
    size = 0
    for record in records:
        batch.append(record)
        if isinstance(record, dict):
            size += sum(len(text) for text in record.values() if isinstance(text, str))
        if size > MOST_BYTES:
            raise parquet.too_large(file, BATCH_RECORDS, MOST_BYTES)
        if len(batch) == BATCH_RECORDS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _rows_of(batch) -> list:
    """Return the rows of an Arrow batch, NOT_UTF8 for those that cannot be decoded."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            return [NOT_UTF8]
        return [row for i in range(batch.num_rows) for row in _rows_of(batch.slice(i, 1))]


def _parallel_lines(file: CorpusFile, longest: int) -> Iterator:
    """Yield {"source", "target"} of two files, line by line."""
    with contextlib.ExitStack() as stack:
        opened = [(stack.enter_context(files.open_stream(side)), side) for side in file.sides]
        streams = [contents.with_contents(*side_stream)[1] for side_stream in opened]
        for pair in itertools.zip_longest(
            *(lines.read_lines(side_stream, longest) for side_stream in streams)
        ):
            if None in pair:
                raise UserError(str(file), why="have different numbers of lines")
            rows = [values.text_record(line) for line in pair]
            texts = zip(PARALLEL_COLUMNS, rows, strict=True)
            bad = [row for row in rows if row in UNUSABLE]
            yield bad[0] if bad else {k: row["text"] for k, row in texts}


def check_documents(documents: str) -> None:
    """Raise UserError unless `documents` is one of DOCUMENTS or a line that divides documents."""
    is_line = bool(documents) and not documents.isalpha() and documents == documents.strip()
    if documents not in DOCUMENTS and not is_line:
        raise UserError(
            "documents",
            documents,
            f"but must be {', '.join(DOCUMENTS)} or the line between documents, such as '%'",
        )


def _missing_column(column: str, names: Iterable[str], file: CorpusFile) -> UserError:
    columns = ", ".join(sorted(set(names))) or "text without tabs"
    return UserError(
        str(file),
        why=f"has no column {column!r}, only {columns}",
        to_set="write one of them in its place",
    )


def columns_missing(
    files: Iterable[CorpusFile], fields: Sequence[str], seconds: float
) -> list[UserError]:
    """Return the errors of `check_columns` for parquet files whose footers are read in that time.

    They are read in random order, some at a time.
    """
    with_footers = [file for file in files if file.kind == "parquet"]
    random.Random(0).shuffle(with_footers)
    end = time.monotonic() + seconds

    def check(file: CorpusFile) -> UserError | None:
        try:
            if time.monotonic() < end:
                check_columns(file, fields)
        except UserError as error:
            return error
        return None

    with futures.ThreadPoolExecutor(_FOOTERS) as pool:
        return [error for error in pool.map(check, with_footers) if error]


def check_columns(file: CorpusFile, fields: Sequence[str]) -> None:
    """Raise UserError for a column that a parquet file lacks, by its footer."""
    if file.kind == "parquet":
        columns = parquet.column_names(file)
        for missing in (field for field in fields if field not in columns):
            raise _missing_column(missing, columns, file)


def _check_beginning(
    required: Sequence[str],
    batches: Iterator[list],
    file: CorpusFile,
    beginning: Callable[[], list] | None = None,
) -> Iterator[list]:
    """Yield the batches of records that a file begins with; some record must have each column.

    A column that the first batch lacks may be in what `beginning` returns.

    Raises:
      UserError: names the missing column and those that exist.
    """
    for i, batch in enumerate(batches):
        if i == 0 and _lacking(batch, required):
            rows = _readable(beginning() if beginning else batch)
            for column in _lacking(rows, required):
                raise _missing_column(
                    column, (name for r in rows for name in values.paths(r)), file
                )
        yield batch


def _lacking(records: list, required: Sequence[str]) -> list[str]:
    """Return the columns that no record has, where some record can be read."""
    rows = _readable(records)
    has = lambda row, field: field in row or field in values.paths(row)
    return [field for field in required if rows and not any(has(row, field) for row in rows)]


def _readable(records: list) -> list[dict]:
    return [record for record in records if record not in UNUSABLE]
