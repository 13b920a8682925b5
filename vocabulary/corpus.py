"""The text of a vocabulary: files or a hub corpus, streamed as short lines.

SentencePiece silently drops every line above 4,192 bytes, so documents are split at line ends and
long lines at spaces.
"""

import contextlib
import dataclasses
import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any

from tasks.text.normalize import normalize

MAX_LINE_BYTES = 4_000
_BUILDERS = {".jsonl": "json", ".json": "json", ".txt": "text", ".parquet": "parquet"}
_BUILDERS |= {".csv": "csv", ".tsv": "csv"}


@dataclasses.dataclass
class TextCounts:
    """What has been read so far; `skipped` documents were empty, null or not text."""

    documents: int = 0
    skipped: int = 0
    lines: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        megabytes = f"{self.bytes / 1e6:,.1f} MB"
        return f"read {self.documents:,} documents, {self.lines:,} lines, {megabytes}"


def read_documents(
    corpus: str,
    *,
    column: str = "text",
    config: str | None = None,
    split: str = "train",
    max_documents: int | None = None,
) -> Iterator[Any]:
    """Stream one column of `corpus`: a glob of files, an `http(s)://` file or a hub name.

    Files are jsonl, txt (one document a line), csv, tsv or parquet, also compressed (.gz, .zst).
    Nothing is downloaded ahead. Raises ValueError for a corpus, configuration, split or column
    that does not exist.
    """
    import datasets

    builder = _builder(corpus)
    source = f"{corpus} (config {config}, split {split})"
    options: dict[str, Any] = {"name": config, "split": split}
    if builder:
        source, options = corpus, {"data_files": _files(corpus), "split": "train"}
        if builder == "csv" and ".tsv" in corpus:
            options["delimiter"] = "\t"
    with _read_errors(source, hub=not builder):
        rows = datasets.load_dataset(builder or corpus, streaming=True, **options)
        names = rows.column_names or list(next(iter(rows), {}))
    if not names:
        raise ValueError(f"the corpus {corpus} holds no document")
    if column not in names:
        raise ValueError(
            f"the corpus {corpus} has no column {column!r}: set --column to one of {names}"
        )
    if max_documents is not None:
        rows = rows.take(max_documents)

    def values():
        with _read_errors(source, hub=not builder):
            for row in rows.select_columns([column]):
                yield row[column]

    return values()


def read_lines(
    documents: Iterable[Any], counts: TextCounts, *, cedilla: bool = True
) -> Iterator[str]:
    """Yield normalized lines of at most `MAX_LINE_BYTES` bytes, with `cedilla` ș for ş."""
    for document in documents:
        text = normalize(document, cedilla=cedilla) if isinstance(document, str) else ""
        if not text.strip():
            counts.skipped += 1
            continue
        counts.documents += 1
        for line in text.splitlines():
            for part in split_line(line):
                counts.lines += 1
                counts.bytes += len(part.encode())
                yield part


def split_line(line: str, limit: int = MAX_LINE_BYTES) -> Iterator[str]:
    """Split a line at spaces into parts of at most `limit` bytes; drop longer words."""
    if len(line.encode()) <= limit:
        if line.strip():
            yield line
        return
    part: list[str] = []
    size = 0
    for word in line.split():
        length = len(word.encode()) + 1
        if part and size + length > limit:
            yield " ".join(part)
            part, size = [], 0
        if length <= limit:
            part.append(word)
            size += length
    if part:
        yield " ".join(part)


@contextlib.contextmanager
def _read_errors(source: str, hub: bool) -> Iterator[None]:
    """Turn errors of the datasets library into one sentence that names the corpus."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        if hub:
            reason += "; a private corpus needs HF_TOKEN or a saved login"
        raise ValueError(f"the corpus {source} cannot be read: {reason}") from error


def _builder(corpus: str) -> str | None:
    """Return the reader for a file's suffix, or None for a hub name."""
    stem, suffix = os.path.splitext(corpus)
    if suffix in (".gz", ".zst", ".xz", ".bz2"):
        suffix = os.path.splitext(stem)[1]
    if suffix in _BUILDERS:
        return _BUILDERS[suffix]
    if os.path.exists(corpus) or "*" in corpus or corpus.startswith(("/", ".", "~")):
        raise ValueError(
            f"the corpus {corpus} ends in none of {sorted(_BUILDERS)}: name files, not a folder"
        )
    return None


def _files(corpus: str) -> list[str]:
    if "://" in corpus:
        return [corpus]
    found = sorted(glob.glob(os.path.expanduser(corpus), recursive=True))
    if not found:
        raise ValueError(f"no file matches the corpus {corpus} from {os.getcwd()}")
    return found
