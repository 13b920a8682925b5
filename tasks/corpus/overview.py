"""What a corpus holds, in a sentence, before anything is made of it.

    view = overview(source, "train")
    print(view)         # 200 files, 7,094 documents, a document a line; 71 held out as 'validation'
    view.looks_like     # "" or why a line seems to be no document
    view.documents_are  # what `documents` of the source may be then, ("%",)

If the corpus is small and on this machine, `overview` counts its documents. This takes a few
seconds at most.
"""

import codecs
import collections
import contextlib
import dataclasses
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import seqio
from absl import logging

from common.errors import UserError
from common.tables import counted
from tasks.corpus import held_out, slices
from tasks.corpus.records import contents, encodings
from tasks.corpus.records.formats import DOCUMENTS
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage import files, names
from tasks.corpus.storage.files import CorpusFile

# Documents are counted in a corpus of at most so many bytes of text and so many files.
COUNTED_BYTES, COUNTED_FILES = 16e6, 2_000
_HEAD, _HEADS = 64 << 10, 16  # bytes of a file, and files, whose lines are looked at
_LINES_OF_A_PARAGRAPH = (1.5, 40.0)  # mean number of lines, least and most
# Files that seem to be a document each are many and small, and their lines are short.
_MANY_FILES, _SMALL_BYTES, _SHORT_LINE = 20, 64 << 10, 120
_NAMED_FILES = 3  # number of another split's files that are named
# A line between documents: one sign, also several times, that ends no sentence, or a tag.
_SEPARATOR = re.compile(r"([^\w\s.,!?…])(\s*\1)*|<\W?\w+\W?>")
_OFTEN, _OFTENER = 5, 4  # such lines at least, and times as many as of any other line


@dataclasses.dataclass(frozen=True)
class Overview:
    """The files of a split, and what its documents are.

    Attributes:
      passed_over: (address, reason) of files that are not read.
      unit: what a document is: "a line", "a paragraph", "a file", "a record", or for a separator
        "up to each line '%'".
      documents: their number, None if they are not counted.
      held_out: the documents that are held out, by split; percentages if they are not counted.
      others: the files of other splits, for 'train' of a corpus on this machine.
      looks_like: why lines seem to be no documents, "" if they do not.
      documents_are: what `documents` of the source may be then.
      not_utf8: the error of a file that has lines in another encoding, None if no file has.
    """

    split: str
    files: Sequence[CorpusFile]
    passed_over: Sequence[tuple[str, str]]
    unit: str
    documents: int | None
    held_out: dict[str, float]
    others: dict[str, Sequence[CorpusFile]]
    looks_like: str
    documents_are: tuple[str, ...]
    not_utf8: UserError | None

    def __str__(self) -> str:
        return f"{counted(len(self.files), 'file')}{self.details()}"

    @property
    def file_bytes(self) -> int | None:
        """The size of all files, None if it is not listed."""
        sizes = [file.length for file in self.files if file.length is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def to_set(self) -> str:
        """What the user should set `documents` to, whether `looks_like` is right or wrong."""
        choices = " or ".join(map(repr, self.documents_are))
        return f"set documents of the source to {choices}, or to 'lines' if that is right"

    @property
    def flags(self) -> str:
        """`looks_like`, and the flags of a command that answer it."""
        choices = " or ".join(f"--documents={shlex.quote(name)}" for name in self.documents_are)
        return f"{self.looks_like}: give {choices}, or --documents=lines if each line is a document"

    def details(self, estimate: float | None = None) -> str:
        """Return what follows the number of files in the sentence.

        `estimate` is roughly the number of documents, for a corpus that is not counted.
        """
        text = "" if self.documents is None else f", {counted(self.documents, 'document')}"
        if self.documents is None and estimate:
            digits = max(len(str(int(estimate))) - 2, 0)
            text = f", about {int(round(estimate, -digits)):,} documents"
        text += f", a document {self.unit}"
        text += f"; {self.not_utf8.fault}: {self.not_utf8.to_set}" if self.not_utf8 else ""
        amounts = {name: self._amount(n) for name, n in self.held_out.items()}
        if self.split in amounts:
            return f"{text}; {amounts[self.split]} of them are split {self.split!r}"
        text += "".join(f"; {amount} held out as {name!r}" for name, amount in amounts.items())
        return text + "".join(
            f"; {name!r} is {_named(files)}" for name, files in self.others.items()
        )

    def _amount(self, n: float) -> str:
        return f"{n:.2g}%" if self.documents is None else f"{int(n):,}"


def _named(files: Sequence[CorpusFile]) -> str:
    """Return the names of a few files, or their number."""
    if len(files) > _NAMED_FILES:
        return counted(len(files), "file")
    return ", ".join(names.name_of(str(file)) for file in files)


def overview(source: CorpusSource, split: str) -> Overview:
    """Return what a split holds.

    Raises:
      UserError: see `CorpusSource.peek`; or most of the text is not UTF-8.
    """
    split = slices.full(split)
    listing, shares = source.list_files(split), source.shares(split)
    documents, parts = None, {name: 100 * share for name, share in shares.items()}
    if is_small(source, split):
        texts = [text for batch in source.texts(split) for text in batch]
        documents = len(texts)
        parts = {
            name: len(held_out.in_buckets(texts, held_out.range_of(shares, name)))
            for name in shares
        }
    heads = _heads(source, listing)
    looks_like, documents_are = _looks_like(source, listing, heads)
    return Overview(
        split=split,
        files=listing,
        passed_over=source.passed_over(split),
        unit=_unit(source, listing),
        documents=documents,
        held_out=parts,
        others=_other_splits(source, split, listing),
        looks_like=looks_like,
        documents_are=documents_are,
        not_utf8=_not_utf8(heads),
    )


def describe_corpus(task: seqio.Task, split: str) -> str:
    """Return the sentence on a split of a task's corpus, "" unless it is a `CorpusSource`.

    Warn if its lines seem to be no documents.
    """
    if not isinstance(task.source, CorpusSource):
        return ""
    view = overview(task.source, split)
    if view.looks_like:
        logging.warning("corpus %s: %s: %s", task.source.name, view.looks_like, view.to_set)
    return str(view)


def _unit(source: CorpusSource, listing: Sequence[CorpusFile]) -> str:
    if listing[0].kind not in ("text", "tar"):
        return "a record"
    is_named = source.documents in DOCUMENTS
    return f"a {source.documents[:-1]}" if is_named else f"up to each line {source.documents!r}"


def _other_splits(
    source: CorpusSource, split: str, listing: Sequence[CorpusFile]
) -> dict[str, Sequence[CorpusFile]]:
    """Return the files of other splits that have files of their own."""
    if split != "train" or not source.is_local:
        return {}
    others = dict[str, Sequence[CorpusFile]]()
    for name in (name for name in source.splits if name not in (split, *source.shares(split))):
        with contextlib.suppress(UserError):  # the corpus lacks it
            if (other := source.list_files(name)) != listing:
                others[name] = other
    return others


def is_small(source: CorpusSource, split: str) -> bool:
    """Return whether a split is on this machine and is read in a few seconds at most."""
    few = source.is_local and len(source.list_files(split)) <= COUNTED_FILES
    return few and (source.text_bytes(split) or 0) <= COUNTED_BYTES


def _heads(source: CorpusSource, listing: Sequence[CorpusFile]) -> dict[CorpusFile, list[bytes]]:
    """Return the first lines of some files on this machine, stripped."""
    if not source.is_local or listing[0].kind in ("parquet", "tar", files.PARALLEL):
        return {}
    return {file: _lines(file) for file in listing[:: -(-len(listing) // _HEADS)]}


def _not_utf8(heads: Mapping[CorpusFile, Sequence[bytes]]) -> UserError | None:
    """Return the error of the file with most lines in another encoding; raise it if most have."""
    read = {file: sum(map(bool, lines)) for file, lines in heads.items()}
    bad = {file: len(encodings.not_utf8(lines)) for file, lines in heads.items()}
    if not any(bad.values()):
        return None
    worst = max(bad, key=bad.__getitem__)
    error = encodings.error(worst, bad[worst], read[worst])
    if sum(bad.values()) > encodings.MOST_BAD * sum(read.values()):
        raise error
    return error


def _looks_like(
    source: CorpusSource,
    listing: Sequence[CorpusFile],
    lines_by_file: Mapping[CorpusFile, Sequence[bytes]],
) -> tuple[str, tuple[str, ...]]:
    """Return why a line seems not to be a document, and what `documents` may be instead."""
    if not (lines_by_file and source.asks_for_documents and listing[0].kind == "text"):
        return "", ()
    heads = [[line.decode(errors="replace") for line in lines] for lines in lines_by_file.values()]
    counts = collections.Counter(line for lines in heads for line in lines if line)
    (line, n), (_, other) = [*counts.most_common(2), ("", 0), ("", 0)][:2]
    if n >= max(_OFTEN, _OFTENER * other) and _SEPARATOR.fullmatch(line):
        return f"The line {line!r} stands at least {n:,} times, as between documents", (line,)
    paragraphs = [length for lines in heads for length in _paragraphs(lines)]
    if not paragraphs:
        return "", ()
    mean = sum(paragraphs) / len(paragraphs)
    low, high = _LINES_OF_A_PARAGRAPH
    short = np.median([len(line) for lines in heads for line in lines if line])
    small = np.median([file.length or 0 for file in listing]) <= _SMALL_BYTES
    if len(paragraphs) > 2 * len(heads) and low <= mean <= high:
        why = f"Empty lines stand between paragraphs of {mean:.0f} lines"
        return why, ("paragraphs", "files")
    if len(listing) >= _MANY_FILES and small and short < _SHORT_LINE and mean >= low:
        return f"Each of the {len(listing):,} files may be one document", ("files", "paragraphs")
    return "", ()


def _lines(file: CorpusFile) -> list[bytes]:
    """Return the first complete lines of a file, stripped."""
    with files.open_stream(file) as raw:
        stream = contents.with_contents(raw, file)[1]
        head = stream.read(_HEAD)
    lines = head.removeprefix(codecs.BOM_UTF8).splitlines()
    return [line.strip() for line in (lines if len(head) < _HEAD else lines[:-1] or lines)]


def _paragraphs(lines: Sequence[str]) -> Iterator[int]:
    """Yield the number of lines of each paragraph."""
    for is_text, group in itertools.groupby(lines, bool):
        if is_text:
            yield sum(1 for _ in group)
