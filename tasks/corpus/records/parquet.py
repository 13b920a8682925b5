"""Reads parquet files by row group.

    count_groups(file)
    for batch in batches(file, group=0, columns=("text",), records=512): ...   # of pyarrow

A remote file takes as few requests and bytes as its columns need.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile


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
        yield from (f"{field.name}.{path}" for child in inner for path in _paths(child))


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
    import pyarrow.parquet as pq

    columns, footer = _stored(file, columns), footer_of(file)
    if not footer.num_row_groups:
        return
    # One request for each range; pyarrow alone would send several for each column.
    ranges = _column_ranges(footer.row_group(group), columns)
    with _naming_damage(file), files.open_random(file, ranges) as opened:
        table = pq.ParquetFile(opened, metadata=footer, pre_buffer=not file.remote)
        yield from map(_with_text, table.iter_batches(records, [group], columns=columns))


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


# One of a thousand row groups and eleven columns takes 9 MB, and is fetched in two requests.
@functools.lru_cache(maxsize=64)
def footer_of(file: CorpusFile) -> Any:
    """Return the parsed footer of a file, which is fetched once while few files are read."""
    import pyarrow.parquet as pq

    with _naming_damage(file), files.open_random(file) as opened:
        return pq.read_metadata(opened)


@contextlib.contextmanager
def _naming_damage(file: CorpusFile) -> Iterator[None]:
    """Raise Arrow's complaint about a file as a UserError that names the file."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        plain = type(error) is OSError and error.errno is None  # Arrow raises such an error too
        if not plain and not isinstance(error, pa.ArrowInvalid):
            raise
        raise files.damaged(file, error) from error


def _column_ranges(row_group: Any, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Return the byte ranges of the wanted columns of a row group, adjacent ones merged."""
    ranges = []
    names = tuple(f"{column}." for column in columns)
    for i in range(row_group.num_columns):
        column = row_group.column(i)
        if f"{column.path_in_schema}.".startswith(names):
            start = column.data_page_offset
            if column.has_dictionary_page:
                start = min(start, column.dictionary_page_offset)
            ranges.append((start, start + column.total_compressed_size))
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
