"""Reads the text for a vocabulary: a corpus as tasks read it, streamed as short lines.

SentencePiece silently drops every line above 4,192 bytes, so documents are split at line ends and
long lines at spaces, or between characters where there are none.
"""

import argparse
import itertools
import logging
import random
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from common import arguments
from common.errors import UserError, say
from common.secrets import public
from common.waiting import waiting
from tasks.text.normalize import normalize

MODEL_HELP = "SentencePiece file, run or converted folder, or Hugging Face hub name"
MAX_LINE_BYTES = 4_000
_FLAGS = ("corpus", "column", "documents", "config", "split", "max_documents")
_RETRY_SECONDS = 60.0  # limit of a failing network: someone waits at the terminal
_REPORT_SECONDS = 10


def add_arguments(
    parser: argparse.ArgumentParser, required: bool, max_documents: int | None = None
) -> None:
    """Add --corpus, and the flags that choose what is read from it."""
    add, number = parser.add_argument, arguments.integer(1)
    about = (
        "folder or bucket, file or pattern of files, http(s) address, @ and the address of a list "
        "of files, or Hugging Face hub name"
    )
    which = parser.add_mutually_exclusive_group(required=required)
    which.add_argument("--corpus", type=arguments.text, help=about)
    about = "registered tasks instead, whose corpora are read as they read them"
    which.add_argument("--task", nargs="+", default=(), type=arguments.text, help=about)
    add("--module", type=arguments.text, help="of --task: tasks.my_language registers them")
    about = "column of the text, or a template of several, '{title} {body}'"
    add("--column", type=arguments.text, default="text", help=about)
    about = "of plain text: lines (the default), paragraphs, files, or the line between documents"
    add("--documents", type=arguments.text, help=about)
    add("--config", help="configuration of a hub corpus")
    add("--split", type=arguments.text, default="train", help="the split to read")
    about = "read at most this many documents, drawn from all of it"
    add("--max_documents", type=number, default=max_documents, help=about)
    about = "write Romanian ş ţ as ș ț, as tasks with cedilla=True do"
    add("--cedilla", action="store_true", help=about)


def _documents(args: argparse.Namespace) -> dict[str, Iterator[str]]:
    """Return the documents that the corpus flags name, by --corpus or task."""
    if args.task:
        return {name: _task_texts(name, args) for name in args.task}
    return {public(args.corpus): read_documents(**{name: getattr(args, name) for name in _FLAGS})}


def _task_texts(name: str, args: argparse.Namespace) -> Iterator[str]:
    from tasks import registered  # with TensorFlow
    from tasks.look import sampling

    modules = (args.module,) if args.module else registered.every_module()
    task = registered.find(name, "--task", modules)
    texts = _texts(task.source, args.split, args.max_documents is not None)
    return itertools.islice((sampling.normalized(task, text) for text in texts), args.max_documents)


def read_texts(args: argparse.Namespace) -> list[str]:
    """Return the documents that the corpus flags select; only --cedilla changes them."""
    texts = itertools.chain.from_iterable(_documents(args).values())
    if not args.cedilla:
        return list(texts)
    return [normalize(text, cedilla=True, nfc=False, whitespace=False) for text in texts]


def read_lines(args: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the corpora that the flags name, and report progress on stderr."""
    return itertools.chain.from_iterable(lines_by_name(args).values())


def lines_by_name(args: argparse.Namespace) -> dict[str, Iterator[str]]:
    """Return the lines by corpus or task; each may be read once, in this order."""
    return {name: _lines(name, texts, args) for name, texts in _documents(args).items()}


def _lines(name: str, documents: Iterator[str], args: argparse.Namespace) -> Iterator[str]:
    start = time.monotonic()
    number = count = size = 0

    def report() -> None:
        read = f"read {number:,} documents, {count:,} lines, {size / 1e6:,.1f} MB"
        print(f"{read} in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)

    # Also while no document comes, of a file that hardly has any.
    with waiting(f"reading {name}", _REPORT_SECONDS, lambda _: report()):
        for number, document in enumerate(documents, 1):  # noqa: B007
            for line in lines_of(document, cedilla=args.cedilla):
                count, size = count + 1, size + len(line.encode())
                yield line
    report()
    if not count:
        raise no_text(name)


def no_text(name: str) -> UserError:
    """Return the error of a corpus whose documents are all empty."""
    return UserError(name, why="holds no text: every document is empty, null or not a string")


def read_documents(
    corpus: str,
    *,
    column: str = "text",
    documents: str | None = None,
    config: str | None = None,
    split: str = "train",
    max_documents: int | None = None,
) -> Iterator[str]:
    """Stream the texts of a corpus in their order, as a task would read them.

    `corpus` is a folder or bucket, a file or pattern of files, an `http(s)://` address, "@" and a
    list of files, or a hub name; see `tasks.corpus.source.CorpusSource`. Nothing is held out, and
    nothing is downloaded ahead. With `max_documents`, files and parts of large files are drawn at
    random, always the same ones, and read alternately.

    Raises:
      UserError: the corpus, configuration, split or column does not exist, or cannot be read; or it
        is a table, and nothing says which column is text.
    """
    # TensorFlow comes with them, which takes seconds.
    from tasks.corpus import slices
    from tasks.corpus.overview import overview
    from tasks.corpus.source import CorpusSource
    from tasks.corpus.storage import names
    from tasks.corpus.storage.retry import RetryPolicy

    source = CorpusSource(
        *(names.absolute_path(corpus), config),
        column=column,
        documents=documents,
        splits=(slices.full(split),),
        retry_policy=RetryPolicy(_RETRY_SECONDS),
    )
    source.peek(split)  # raises the mistakes in one sentence
    listing = overview(source, split)
    say(f"{public(corpus)}: {listing}")
    if question := listing.question:
        if not question.are_text:
            raise UserError(public(corpus), why=f": {question.why}", to_set=question.flags)
        say(f"{question.why}: {question.flags}")
    return itertools.islice(_texts(source, split, max_documents is not None), max_documents)


def _texts(source: Any, split: str, spread: bool) -> Iterator[str]:
    """Yield the usable texts of a split; then warn of the records that were skipped."""
    from tasks.corpus import excerpt

    yield from (row["text"] for row in excerpt.documents(source, split, shuffle=spread))
    if source.counter.skipped() != "none":
        logging.warning("%s", source.counter.sentence(split))


def lines_of(document: str, *, cedilla: bool = False) -> Iterator[str]:
    """Yield normalized lines of at most `MAX_LINE_BYTES` bytes, with `cedilla` ș for ş."""
    for line in normalize(document, cedilla=cedilla).splitlines():
        yield from split_line(line)


def sample_lines(lines: Iterable[str], most: int, seed: int = 0) -> list[str]:
    """Return a uniform sample of `most` lines, in no order, or all if there are fewer."""
    generator = random.Random(seed)
    sample: list[str] = []
    for number, line in enumerate(lines):
        if number < most:
            sample.append(line)
        elif (place := generator.randrange(number + 1)) < most:
            sample[place] = line
    return sample


def sample_characters(lines: list[str], most: int, seed: int = 0) -> list[str]:
    """Return all lines if they have at most `most` characters together, else a sample that has.

    The sample is uniform and in no order. The end of a line counts as a character.
    """
    if sum(map(len, lines)) + len(lines) <= most:
        return lines
    drawn = random.Random(seed).sample(lines, len(lines))
    ends = itertools.accumulate(len(line) + 1 for line in drawn)
    return [line for line, end in zip(drawn, ends, strict=True) if end <= most]


def split_line(line: str, limit: int = MAX_LINE_BYTES) -> Iterator[str]:
    """Split a line at spaces into parts of at most `limit` bytes.

    Longer words are cut, since Chinese, Japanese, Thai and Khmer have no spaces. Longer words of
    ASCII alone are dropped, since they are not text.
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
