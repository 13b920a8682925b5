"""File formats: how a name shows the format, how files are cut into parts, the records of a part.

A *part* can be read independently: a byte range of an uncompressed JSONL or text file (the lines
that begin in it), a row group of a parquet file, or an entire file of any other kind. It is read
in *batches* of records; a record is a dict, or MALFORMED, or NOT_UTF8.

    file = recognize("/data/ro.jsonl.zst")      # CorpusFile("/data/ro.jsonl.zst", "jsonl", "zst")
    layout = PartLayout(column.fields, documents="lines")
    for part in range(layout.count(file)):
        for records in layout.batches(file, part): ...
"""

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TextIO

from common.errors import UserError
from tasks.corpus import files, parquet
from tasks.corpus.decompress import COMPRESSIONS
from tasks.corpus.files import CorpusFile

KINDS = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "json",
    "csv": "csv",
    "tsv": "tsv",
    "txt": "text",
    "text": "text",
    "parquet": "parquet",
}
PARALLEL = "parallel"  # the kind of several text files that are read line by line together
PARALLEL_COLUMNS = ("source", "target")
MALFORMED, NOT_UTF8 = object(), object()
UNREADABLE = "\udcff"  # in place of a line of a paragraph that is not UTF-8
BATCH_RECORDS = 512
LOCAL_PART_BYTES = 1 << 20
REMOTE_PART_BYTES = 8 << 20

csv.field_size_limit(1 << 30)
_NO_SEPARATOR = re.compile(r"[^\s,]")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def recognize(url: str, kind: str | None = None) -> CorpusFile | None:
    """Return the file that `url` names, by its suffixes; None if it is not a corpus file.

    With a `kind`, only the suffix of a compression is looked at.
    """
    path = url.split("?")[0] if "://" in url else url  # an address may have a query
    name = path.rsplit("/", 1)[-1].lower()
    stem, _, compression = name.rpartition(".")
    if compression in COMPRESSIONS:
        name = stem
    else:
        compression = ""
    _, dot, suffix = name.rpartition(".")  # "text" and "owner/text" have none
    kind = kind or (KINDS.get(suffix) if dot else None)
    return CorpusFile(url, kind, compression) if kind else None


@dataclasses.dataclass(frozen=True)
class PartLayout:
    """How the files of a corpus are cut into parts and read.

    `fields`: the columns to read. `documents`: what a document is in plain text, "lines" or
    "paragraphs" (lines up to an empty one, joined by spaces). `part_bytes`: size of a byte range;
    by default LOCAL_PART_BYTES or REMOTE_PART_BYTES.
    """

    fields: tuple[str, ...] = ("text",)
    documents: str = "lines"
    part_bytes: int | None = None

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
        if file.kind == "parquet":  # which has a schema
            return self._rows(file, part)
        if self._by_bytes(file):
            found = iter([self._lines(file, *self._bounds(file, part))])
            beginning = lambda: self._beginning(file)
        else:
            found, beginning = _in_batches(self._stream(file)), None
        if part:
            return found
        return _check_columns(self.fields if required is None else required, found, file, beginning)

    def _lines(self, file: CorpusFile, start: int, stop: int) -> list:
        parse = _parse_json if file.kind == "jsonl" else _parse_line
        return [parse(line) for line in lines_between(file, start, stop)]

    def _beginning(self, file: CorpusFile) -> list:
        """Return the records of a part of the usual size."""
        usual = dataclasses.replace(self, part_bytes=None)
        return self._lines(file, *usual._bounds(file, 0))

    def _by_bytes(self, file: CorpusFile) -> bool:
        is_lines = file.kind == "jsonl" or (file.kind == "text" and self.documents == "lines")
        return is_lines and not file.compression and files.has_ranges(file)

    def _rows(self, file: CorpusFile, part: int) -> Iterator[list]:
        names = parquet.column_names(file)
        for missing in (field for field in self.fields if field not in names):
            raise _missing_column(missing, names, file)
        for batch in parquet.batches(file, part, self.fields, BATCH_RECORDS):
            yield _rows_of(batch)

    def _stream(self, file: CorpusFile) -> Iterator:
        if file.kind == PARALLEL:
            yield from _parallel_lines(file)
            return
        with files.open_stream(file) as raw:
            if file.kind in ("csv", "tsv"):
                text = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="")
                yield from _csv_rows(text, file)
            elif file.kind == "text":
                lines = map(_parse_line, raw)
                yield from _paragraphs(lines) if self.documents == "paragraphs" else lines
            else:
                try:
                    yield from _json_records(raw)
                except (json.JSONDecodeError, UnicodeDecodeError) as error:
                    raise files.damaged(file, error) from error


def _json_records(raw: BinaryIO) -> Iterator:
    """Yield the records of a JSON file that holds one array, or one record a line."""
    first = raw.readline()
    while first and not first.strip():
        first = raw.readline()
    if first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        for record in _array_items((first + raw.read()).decode("utf-8-sig")):
            yield record if isinstance(record, dict) else MALFORMED
    else:
        for line in itertools.chain([first] if first else [], raw):
            if line.strip():
                yield _parse_json(line)


def _array_items(text: str) -> Iterator:
    """Yield the items of a JSON array, MALFORMED for each that is nested too deeply."""
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while (start := _beyond_separators(text, at)) is not None and text[start] != "]":
        try:
            item, at = decoder.raw_decode(text, start)
        except RecursionError:
            item, at = MALFORMED, _end_of_item(text, start)
        yield item
    if start is None:
        raise json.JSONDecodeError("the array does not end", text, at)
    if text[start + 1 :].strip():
        raise json.JSONDecodeError("the array ends before the file", text, start)


def _beyond_separators(text: str, at: int) -> int | None:
    found = _NO_SEPARATOR.search(text, at)
    return found.start() if found else None


def _end_of_item(text: str, start: int) -> int:
    """Return where the JSON array or object that begins at `start` ends."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if not depth:
            return token.end()
    raise json.JSONDecodeError("the array does not end", text, start)


def _in_batches(records: Iterator) -> Iterator[list]:
    """Yield lists of BATCH_RECORDS records, the last one shorter."""
    while batch := list(itertools.islice(records, BATCH_RECORDS)):
        yield batch


def lines_between(file: CorpusFile, start: int, stop: int) -> list[bytes]:
    """Return the non-empty lines that begin at bytes `start`..`stop`-1, each complete."""
    end = files.known_size(file)
    # The last line ends behind `stop`: mostly within some slack, which the same read covers.
    slack = max((stop - start) // 64, 64)
    first_byte, reach = max(start - 1, 0), min(stop + slack, end)
    slack = reach - stop
    data = files.read_range(file, first_byte, reach)
    while b"\n" not in data[max(stop - 1 - first_byte, 0) :] and reach < end:
        slack = max(4 * slack, 64)
        more = min(reach + slack, end)
        data += files.read_range(file, reach, more)
        reach = more
    first = 0 if start == 0 else data.find(b"\n") + 1
    if (start and not first) or first_byte + first >= stop:
        return []
    last = data.find(b"\n", max(stop - 1 - first_byte, 0))
    lines = data[first : len(data) if last < 0 else last].split(b"\n")
    return [line for line in lines if line.strip()]


def _parse_json(line: bytes):
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return NOT_UTF8
    except (ValueError, RecursionError):  # which deep nesting raises
        return MALFORMED
    return record if isinstance(record, dict) else MALFORMED


def _parse_line(line: bytes):
    try:
        return {"text": line.rstrip(b"\r\n").decode("utf-8-sig")}
    except UnicodeDecodeError:
        return NOT_UTF8


def _rows_of(batch) -> list:
    """Return the rows of an Arrow batch, NOT_UTF8 for those that cannot be decoded."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            return [NOT_UTF8]
        return [row for i in range(batch.num_rows) for row in _rows_of(batch.slice(i, 1))]


def _csv_rows(text: TextIO, file: CorpusFile) -> Iterator:
    """Yield the rows of a CSV or TSV file.

    Raises:
      UserError: a quoted field does not end, or another character than the delimiter follows its
        end; it would contain the rows up to the next quote.
    """
    rows = csv.DictReader(text, delimiter="\t" if file.kind == "tsv" else ",", strict=True)
    line = 1
    try:
        _ = rows.fieldnames  # reads the header
        line = rows.line_num + 1
        for row in rows:
            yield _check_row(row)
            line = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"the row of {file.url} that begins at line {line} has a quote that does not end, or "
            f"text behind one that does ({error}): quote the entire field and double each quote "
            f'in it, "He said ""yes""", or write the file as JSONL'
        ) from error


def _check_row(row: dict):
    """Return a CSV row; NOT_UTF8, or MALFORMED if it has more values than there are columns."""
    try:
        "".join(value for value in row.values() if value).encode()
    except UnicodeEncodeError:
        return NOT_UTF8
    except TypeError:  # csv puts the surplus values into a list under None
        return MALFORMED
    return row


def _parallel_lines(file: CorpusFile) -> Iterator:
    """Yield {"source", "target"} of two files, line by line."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(files.open_stream(side)) for side in file.sides]
        for lines in itertools.zip_longest(*streams):
            if None in lines:
                raise UserError(f"{file.url} have different numbers of lines")
            rows = [_parse_line(line) for line in lines]
            texts = zip(PARALLEL_COLUMNS, rows, strict=True)
            yield NOT_UTF8 if NOT_UTF8 in rows else {k: row["text"] for k, row in texts}


def _paragraphs(lines: Iterator) -> Iterator[dict]:
    """Yield one document for the lines up to each empty one, joined by spaces."""
    texts = (UNREADABLE if line is NOT_UTF8 else line["text"].strip() for line in lines)
    for is_text, group in itertools.groupby(texts, bool):
        if is_text:
            yield {"text": " ".join(group)}


def _missing_column(column: str, names: Iterable[Any], file: CorpusFile) -> UserError:
    return UserError(
        f"no column {column!r} in {file.url}: it has {', '.join(sorted(map(str, names)))}; set the "
        "task's column to one of them"
    )


def _check_columns(
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
            records = beginning() if beginning else batch
            for column in _lacking(records, required):
                raise _missing_column(column, {name for r in _rows(records) for name in r}, file)
        yield batch


def _lacking(records: list, required: Sequence[str]) -> list[str]:
    """Return the columns that no record has, where some record can be read."""
    rows = _rows(records)
    return [field for field in required if rows and not any(field in row for row in rows)]


def _rows(records: list) -> list[dict]:
    return [record for record in records if record not in (MALFORMED, NOT_UTF8)]
