"""The text of a vocabulary: a corpus as tasks read it, streamed as short lines.

SentencePiece silently drops every line above 4,192 bytes, so documents are split at line ends and
long lines at spaces, or between characters where there are none.
"""

import dataclasses
import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

from tasks.text.normalize import normalize

MAX_LINE_BYTES = 4_000
_RETRY_SECONDS = 60.0  # of a failing network: someone waits at the terminal


@dataclasses.dataclass
class TextCounts:
    """What has been read so far."""

    documents: int = 0
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
) -> Iterator[str]:
    """Stream the texts of `corpus`, as a task of it reads them, in their order.

    With `max_documents` they are spread over the corpus: files, and parts of large files, are drawn
    at random and read alternately. The same ones are drawn every time.

    A folder or bucket of files named <split>*, a pattern of files, an `http(s)://` file, "@" and a
    list of files, or a hub name; see `tasks.corpus.source.CorpusSource`. Nothing is downloaded
    ahead.

    Raises:
      ValueError: the corpus, configuration, split or column does not exist, or cannot be read.
    """
    from tasks.corpus import (
        files,  # with TensorFlow, which takes seconds
        slices,
    )
    from tasks.corpus.retry import RetryPolicy
    from tasks.corpus.source import CorpusSource

    options: dict[str, Any] = {"column": column, "retry_policy": RetryPolicy(_RETRY_SECONDS)}
    path, splits = os.path.expanduser(corpus), (slices.full(split),)
    if os.path.isdir(path):  # even if its name ends in .jsonl
        source = CorpusSource(os.path.abspath(path), config, splits=splits, **options)
    elif corpus.startswith(files.LIST) or "*" in corpus or files.classify(corpus):
        source = CorpusSource(files={slices.full(split): path}, **options)
    else:
        source = CorpusSource(corpus, config, splits=splits, **options)
    source.peek(split)  # raises the mistakes in one sentence
    return itertools.islice(_texts(source, split, max_documents is not None), max_documents)


def _texts(source: Any, split: str, spread: bool) -> Iterator[str]:
    """Yield the usable texts of a split; then warn of the records that were skipped."""
    from tasks.look import sampling

    yield from (row["text"] for row in sampling.documents(source, split, shuffle=spread))
    if source.counter.skipped() != "none":
        logging.warning("%s", source.counter.sentence(split))


def read_lines(
    documents: Iterable[str], counts: TextCounts, *, cedilla: bool = False
) -> Iterator[str]:
    """Yield normalized lines of at most `MAX_LINE_BYTES` bytes, with `cedilla` ș for ş."""
    for document in documents:
        counts.documents += 1
        for line in normalize(document, cedilla=cedilla).splitlines():
            for part in split_line(line):
                counts.lines += 1
                counts.bytes += len(part.encode())
                yield part


def split_line(line: str, limit: int = MAX_LINE_BYTES) -> Iterator[str]:
    """Split a line at spaces into parts of at most `limit` bytes.

    Longer words are cut, since Chinese, Japanese, Thai and Khmer have no spaces. Those of ASCII
    alone are dropped: they are no text.
    """
    if len(line.encode()) <= limit:
        if line.strip():
            yield line
        return
    part: list[str] = []
    size = 0
    for word in itertools.chain.from_iterable(_cut(word, limit - 1) for word in line.split()):
        length = len(word.encode()) + 1
        if part and size + length > limit:
            yield " ".join(part)
            part, size = [], 0
        part.append(word)
        size += length
    if part:
        yield " ".join(part)


def _cut(word: str, limit: int) -> Iterator[str]:
    """Yield a word in parts of at most `limit` bytes, or nothing for a long one of ASCII."""
    rest = word.encode()
    if word.isascii() and len(rest) > limit:
        return
    while rest:
        part = rest[:limit].decode(errors="ignore")  # ends before a character that is cut
        yield part
        rest = rest[len(part.encode()) :]
