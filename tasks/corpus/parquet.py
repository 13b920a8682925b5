"""Parquet files by row group, a remote one with as few requests and bytes as its columns need.

count_groups(file)
for batch in batches(file, group=0, columns=("text",), records=512): ...   # of pyarrow
"""

import contextlib
import functools
import io
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from tasks.corpus import files
from tasks.corpus.files import CorpusFile

_FOOTER_BYTES = 64 << 10  # of the end of a file, fetched first
_PARSED = 3  # bytes in memory of a byte of a footer
_parsing = threading.Lock()


def count_groups(file: CorpusFile) -> int:
    """Return the number of row groups of a file."""
    return footer_of(file).num_row_groups


def column_names(file: CorpusFile) -> list[str]:
    """Return the names of a file's columns, and the paths in those that hold structs."""
    return [path for field in footer_of(file).schema.to_arrow_schema() for path in _paths(field)]


def _paths(field: Any) -> Iterator[str]:
    import pyarrow as pa

    inner = field.type
    while pa.types.is_list(inner) or pa.types.is_large_list(inner):
        inner = inner.value_type
    yield field.name
    if pa.types.is_struct(inner):
        yield from (f"{field.name}.{path}" for each in inner for path in _paths(each))


def _as_text(kind: Any) -> Any:
    """Return an Arrow type with text in place of bytes, as some programs store it."""
    import pyarrow as pa

    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.large_string() if pa.types.is_large_binary(kind) else pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_text(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_as_text(kind.value_type)))
    return kind


def batches(file: CorpusFile, group: int, columns: Sequence[str], records: int) -> Iterator[Any]:
    """Yield the columns of a row group as record batches of at most so many records.

    A column may be a path into structs. Bytes are read as text, which may not be UTF-8.
    """
    columns = _stored(file, columns)
    # One request for each range; pyarrow alone would send several for each column.
    ranges = _column_ranges(file, group, columns)
    with _naming_damage(file), files.open_random(file, ranges) as opened:
        yield from _record_batches(opened, file, group, columns, records)


def _record_batches(
    opened: BinaryIO, file: CorpusFile, group: int, columns: Sequence[str], records: int
) -> Iterable:
    import pyarrow.parquet as pq

    footer = footer_of(file)
    if not footer.num_row_groups:
        return ()
    table = pq.ParquetFile(opened, metadata=footer, pre_buffer=not file.remote)
    found = map(_with_text, table.iter_batches(records, [group], columns=list(columns)))
    # They hold the parsed footer while they are read, which may be larger than the texts.
    small = footer.row_group(group).total_byte_size < _PARSED * footer.serialized_size
    return list(found) if small else found


def _with_text(batch: Any) -> Any:
    """Return a batch of records with text in place of bytes, unchecked."""
    import pyarrow as pa

    text = pa.schema([field.with_type(_as_text(field.type)) for field in batch.schema])
    return batch if text == batch.schema else batch.cast(text, safe=False)


def _stored(file: CorpusFile, columns: Sequence[str]) -> list[str]:
    """Return the columns, each as far as the names of what is stored follow its path."""
    footer = footer_of(file)
    paths = [f"{footer.schema.column(i).path}." for i in range(len(footer.schema))]
    is_stored = lambda column: any(path.startswith(f"{column}.") for path in paths)
    return [column if is_stored(column) else column.split(".")[0] for column in columns]


# A footer of a thousand row groups and eleven columns takes 9 MB parsed, 2.6 MB as it is stored and
# 0.1 MB compressed, and is parsed in 15 ms. A host that reads many files alternately keeps them all
# compressed, so that none is fetched twice, and parses one at a time.
@functools.lru_cache(maxsize=4)
def footer_of(file: CorpusFile) -> Any:
    """Return the parsed footer of a file."""
    import pyarrow.parquet as pq

    with _naming_damage(file):
        if not (file.remote and files.has_ranges(file)):
            with files.open_random(file) as opened:
                return pq.read_metadata(opened)
        compressed = stored_footer(file)
        with _parsing:
            return pq.read_metadata(io.BytesIO(zlib.decompress(compressed)))


@functools.lru_cache(maxsize=1024)
def stored_footer(file: CorpusFile) -> bytes:
    """Return the end of a remote file, from its footer on, compressed."""
    size = files.known_size(file)
    start = max(size - _FOOTER_BYTES, 0)
    data = files.read_range(file, start, size)
    # The last eight bytes are the footer's length and a mark; without the mark pyarrow refuses it.
    length = int.from_bytes(data[-8:-4], "little") + 8 if data[-4:] == b"PAR1" else 0
    needed = size - min(length, size)
    if needed < start:
        data = files.read_range(file, needed, start) + data
    return zlib.compress(data[max(needed - start, 0) :], 1)


@contextlib.contextmanager
def _naming_damage(file: CorpusFile) -> Iterator[None]:
    """Raise Arrow's complaint about a file as a UserError that names the file."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        plain = type(error) is OSError and error.errno is None  # which Arrow raises too
        if not plain and not isinstance(error, pa.ArrowInvalid):
            raise
        raise files.damaged(file, error) from error


def _column_ranges(file: CorpusFile, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Return the byte ranges of the wanted columns of a row group, adjacent ones merged."""
    footer = footer_of(file)
    if not footer.num_row_groups:
        return []
    row_group, found = footer.row_group(group), []
    names = tuple(f"{column}." for column in columns)
    for i in range(row_group.num_columns):
        column = row_group.column(i)
        if f"{column.path_in_schema}.".startswith(names):
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
