"""From files to records: formats, and the parts into which a file can be cut.

A *part* is what can be read without reading what stands before it: a byte range of an uncompressed
JSONL or text file (the lines that begin in it), a row group of a parquet file, or a whole file of
any other kind. A part is read in *batches* of records; a record is a dict, or MALFORMED,
or NOT_UTF8.

    layout = Layout(column.fields, documents="lines", part_bytes=1 << 20)
    for part in range(layout.parts(file)):
        for records in layout.batches(file, part): ...
"""

import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import json
from collections.abc import Iterator

from tasks.io import files
from tasks.io.files import File

MALFORMED, NOT_UTF8 = object(), object()
BATCH_RECORDS = 512
PAIR = ("source", "target")  # the columns of two files side by side

csv.field_size_limit(1 << 30)


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the files of a corpus are cut and read.

    `fields`: the columns wanted. `documents`: what a document is in plain text, "lines" or
    "paragraphs" (lines up to an empty one, joined by spaces). `part_bytes`: size of a byte range.
    """

    fields: tuple[str, ...] = ("text",)
    documents: str = "lines"
    part_bytes: int = 1 << 20

    def divisible(self, file: File) -> bool:
        """Says whether `file` may have more than one part."""
        return file.kind == "parquet" or self._by_bytes(file)

    def parts(self, file: File) -> int:
        """Returns the number of parts of `file`, at least 1; costs at most one small read."""
        if file.kind == "parquet":
            return max(_footer(file).num_row_groups, 1)
        if self._by_bytes(file):
            return max(-(-files.size(file) // self.part_bytes), 1)
        return 1

    def length(self, file: File, part: int) -> int:
        """Returns how many bytes one part is read from, those of a neighbour left out."""
        if file.kind == "parquet":
            return sum(stop - start for start, stop in _columns(file, part, self.fields))
        if self._by_bytes(file):
            start, stop = self._bounds(file, part)
            return stop - start
        return files.size(file) or 0

    def fetch(self, file: File, part: int) -> None:
        """Asks for the bytes of one part, so that a spool has them."""
        if file.kind == "parquet":
            for start, stop in _columns(file, part, self.fields):
                files.read_range(file, start, stop)
        elif self._by_bytes(file):
            lines_between(file, *self._bounds(file, part))
        elif files.fits_spool(file):
            files.spooled(file)

    def _bounds(self, file: File, part: int) -> tuple[int, int]:
        start = part * self.part_bytes
        return start, min(start + self.part_bytes, files.size(file))

    def batches(self, file: File, part: int) -> Iterator[list]:
        """Yields the records of one part in batches, always in the same order."""
        if file.kind == "parquet":
            return self._row_group(file, part)
        if self._by_bytes(file):
            start, stop = self._bounds(file, part)
            parse = _parse_json if file.kind == "jsonl" else _parse_line
            return iter([[parse(line) for line in lines_between(file, start, stop)]])
        return in_batches(self._stream(file))

    def _by_bytes(self, file: File) -> bool:
        whole_lines = file.kind == "jsonl" or (file.kind == "text" and self.documents == "lines")
        return whole_lines and not file.packing and files.has_ranges(file)

    def _row_group(self, file: File, part: int) -> Iterator[list]:
        import pyarrow.parquet as pq

        # pyarrow would coalesce what it reads; asked for so, it is the same pieces every time.
        with files.open_random(file, _columns(file, part, self.fields)) as f:
            table = pq.ParquetFile(f, metadata=_footer(file), pre_buffer=not file.remote)
            missing = [c for c in self.fields if c not in table.schema_arrow.names]
            if missing:
                raise _missing_column(missing[0], table.schema_arrow.names, file)
            if table.num_row_groups:
                wanted = list(self.fields)
                for batch in table.iter_batches(BATCH_RECORDS, [part], columns=wanted):
                    yield batch.to_pylist()

    def _stream(self, file: File) -> Iterator:
        if file.kind == files.PARALLEL:
            yield from _line_pairs(file)
            return
        with files.open_stream(file) as raw:
            if file.kind in ("csv", "tsv"):
                text = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="")
                rows = csv.DictReader(text, delimiter="\t" if file.kind == "tsv" else ",")
                yield from (_whole_row(row) for row in rows)
            elif file.kind == "text":
                lines = (_parse_line(line) for line in raw)
                yield from _paragraphs(lines) if self.documents == "paragraphs" else lines
            else:
                yield from _json_stream(raw)


@functools.lru_cache(maxsize=256)
def _footer(file: File):
    import pyarrow.parquet as pq

    with files.open_random(file) as f:
        return pq.ParquetFile(f).metadata


def _columns(file: File, part: int, fields: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where the wanted columns of a row group lie, those side by side as one."""
    found = []
    if part < _footer(file).num_row_groups:
        group = _footer(file).row_group(part)
        for i in range(group.num_columns):
            column = group.column(i)
            if column.path_in_schema.split(".")[0] in fields:
                start = column.data_page_offset
                if column.has_dictionary_page:
                    start = min(start, column.dictionary_page_offset)
                found.append((start, start + column.total_compressed_size))
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _json_stream(raw) -> Iterator:
    """Records of a JSON file that holds one array, or one record a line."""
    first = raw.readline()
    while first and not first.strip():
        first = raw.readline()
    if first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        for record in json.loads((first + raw.read()).decode("utf-8-sig")):
            yield record if isinstance(record, dict) else MALFORMED
    else:
        for line in itertools.chain([first] if first else [], raw):
            if line.strip():
                yield _parse_json(line)


def in_batches(records: Iterator) -> Iterator[list]:
    """Yields lists of BATCH_RECORDS records, the last one shorter."""
    while batch := list(itertools.islice(records, BATCH_RECORDS)):
        yield batch


def _reach(file: File, start: int, stop: int) -> tuple[int, int]:
    """Which bytes to read for the lines that begin at `start`..`stop`-1.

    The last of them ends behind `stop`: mostly within some slack, read along.
    """
    slack = max((stop - start) // 64, 64)
    return max(start - 1, 0), min(stop + slack, files.size(file))


def lines_between(file: File, start: int, stop: int) -> list[bytes]:
    """Returns the non-empty lines that begin at bytes `start`..`stop`-1, each whole."""
    end = files.size(file)
    behind, reach = _reach(file, start, stop)
    slack = reach - stop
    data = files.read_range(file, behind, reach)
    while b"\n" not in data[max(stop - 1 - behind, 0) :] and reach < end:
        slack = max(4 * slack, 64)
        more = min(reach + slack, end)
        data += files.read_range(file, reach, more)
        reach = more
    first = 0 if start == 0 else data.find(b"\n") + 1
    if (start and not first) or behind + first >= stop:
        return []
    last = data.find(b"\n", max(stop - 1 - behind, 0))
    lines = data[first : len(data) if last < 0 else last].split(b"\n")
    return [line for line in lines if line.strip()]


def _parse_json(line: bytes):
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return NOT_UTF8
    except ValueError:
        return MALFORMED
    return record if isinstance(record, dict) else MALFORMED


def _parse_line(line: bytes):
    try:
        return {"text": line.rstrip(b"\r\n").decode("utf-8-sig")}
    except UnicodeDecodeError:
        return NOT_UTF8


def _whole_row(row: dict):
    """A row of a CSV file, unless it has more values than columns or bytes that are no UTF-8."""
    try:
        "".join(value for value in row.values() if value).encode()
    except UnicodeEncodeError:
        return NOT_UTF8
    except TypeError:  # further values are a list under None
        return MALFORMED
    return row


def _line_pairs(file: File) -> Iterator:
    """Records {"source", "target"} of two files, line by line."""
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(files.open_stream(side)) for side in files.sides_of(file)]
        try:
            for pair in zip(*sides, strict=True):
                both = [_parse_line(line) for line in pair]
                texts = dict(zip(PAIR, both, strict=True))
                bad = NOT_UTF8 in both
                yield NOT_UTF8 if bad else {name: side["text"] for name, side in texts.items()}
        except ValueError as error:
            told = " and ".join(side.url for side in files.sides_of(file))
            raise ValueError(f"{told} have different numbers of lines") from error


def _paragraphs(lines: Iterator) -> Iterator[dict]:
    """One document for the lines up to each empty one, joined by spaces."""
    texts = ("\ufffd" if line is NOT_UTF8 else line["text"].strip() for line in lines)
    for filled, group in itertools.groupby(texts, bool):
        if filled:
            yield {"text": " ".join(group)}


def _missing_column(column: str, names, file: File) -> ValueError:
    return ValueError(
        f"no column {column!r} in {file.url}: it has {', '.join(sorted(map(str, names)))}; set the "
        "task's column to one of them"
    )


def check_column(fields: tuple[str, ...], records: list, file: File) -> None:
    """Refuses a batch in which no record has one of the columns wanted.

    Raises:
      ValueError: names the column and those that exist.
    """
    rows = [r for r in records if r not in (MALFORMED, NOT_UTF8)]
    for field in fields:
        if rows and not any(field in row for row in rows):
            raise _missing_column(field, {name for row in rows for name in row}, file)
