"""Reads parquet files by row group.

    count_groups(file)
    for batch in batches(file, group=0, columns=("text",), records=512): ...   # of pyarrow

A remote file takes as few requests and bytes as its columns need.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from common.errors import UserError
from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile

_PIECE = 16  # rows that are decoded at a time


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


def too_large(file: CorpusFile, records: int, most_bytes: int) -> UserError:
    """Return the error of a file in which consecutive records are too large together."""
    why = f"has {records:,} consecutive records of more than {most_bytes / 1e9:.1f} GB of text"
    return UserError(str(file), why=why, to_set="divide its texts, or leave it out")


def batches(
    file: CorpusFile, group: int, columns: Sequence[str], records: int, most_bytes: int
) -> Iterator[Any]:
    """Yield the columns of a row group as record batches of at most so many records.

    A column may be a path into structs. Bytes are read as text, which may not be UTF-8. A small
    file may expand to any size, so a batch is read in pieces.

    Raises:
      UserError: a batch has more than so many bytes, or the group fewer rows than its footer says.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, footer = _stored(file, columns), footer_of(file)
    if not footer.num_row_groups:
        return
    row_group = footer.row_group(group)
    size = sum(chunk.total_uncompressed_size for chunk in _chunks(row_group, columns))
    if size * records > most_bytes * max(row_group.num_rows, records):
        raise too_large(file, records, most_bytes)
    # One request for each range; pyarrow alone would send several for each column.
    ranges = _column_ranges(row_group, columns)
    with _naming_damage(file), files.open_random(file, ranges) as opened:
        table = pq.ParquetFile(opened, metadata=footer, pre_buffer=not file.remote)
        pieces: list[Any] = []
        missing = row_group.num_rows
        for piece in table.iter_batches(min(records, _PIECE), [group], columns=columns):
            pieces.append(piece)
            missing -= piece.num_rows
            if sum(piece.nbytes for piece in pieces) > most_bytes:
                raise too_large(file, records, most_bytes)
            if sum(piece.num_rows for piece in pieces) >= records:
                yield _with_text(pa.concat_batches(pieces))
                pieces = []
        if missing:  # Arrow ends without an error where the pages of a column end
            raise pa.ArrowInvalid(f"row group {group} lacks {missing} of {row_group.num_rows} rows")
        if pieces:
            yield _with_text(pa.concat_batches(pieces))


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


def _chunks(row_group: Any, columns: Sequence[str]) -> list[Any]:
    """Return what a footer says of the wanted columns of a row group."""
    names = tuple(f"{column}." for column in columns)
    chunks = map(row_group.column, range(row_group.num_columns))
    return [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(names)]


def _column_ranges(row_group: Any, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Return the byte ranges of the wanted columns of a row group, adjacent ones merged."""
    ranges = []
    for chunk in _chunks(row_group, columns):
        start = chunk.data_page_offset
        if chunk.has_dictionary_page:
            start = min(start, chunk.dictionary_page_offset)
        ranges.append((start, start + chunk.total_compressed_size))
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
