"""What was understood of a corpus, in a sentence, before anything is made of it.

    found = overview(source, "train")
    print(found)      # 200 files, 7,094 documents, a document a line; 71 held out as 'validation'
    found.looks_like  # "" or why a line seems to be no document
    found.documents_are  # what then to set, ("%",)

The documents of a small corpus on this machine are counted, which takes a few seconds at most.
"""

import collections
import contextlib
import dataclasses
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence

import numpy as np

from common.errors import UserError
from common.tables import counted
from tasks.corpus import held_out, slices
from tasks.corpus.records import contents
from tasks.corpus.records.formats import DOCUMENTS
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage import files, names
from tasks.corpus.storage.files import CorpusFile

# Up to so many bytes of text, in so many files, documents are counted.
COUNTED_BYTES, COUNTED_FILES = 16e6, 2_000
_HEAD, _HEADS = 64 << 10, 16  # bytes of a file, and files, whose lines are looked at
_LINES_OF_A_PARAGRAPH = (1.5, 40.0)  # on average
# Files that seem to be a document each are many and small, and their lines are short.
_SHOWN = 3  # files of another split
_MANY_FILES, _SMALL_BYTES, _SHORT_LINE = 20, 64 << 10, 120
# A line between documents: one sign, also several times, that ends no sentence, or a tag.
_SEPARATOR = re.compile(r"([^\w\s.,!?…])(\s*\1)*|<\W?\w+\W?>")
_OFTEN, _OFTENER = 5, 4  # such lines at least, and times as many as of any other line


@dataclasses.dataclass(frozen=True)
class Overview:
    """The files of a split, and what its documents are.

    `documents` in these files, None if they are not counted. `unit`: what a document is, "a line",
    "a paragraph", "a file", "a record", "up to each line '%'". `held_out`: by split, the documents,
    or their share where they are not counted. `others`: of 'train' on this machine, the files of
    the other splits. `looks_like`: why lines seem to be no documents, "" if they do not.
    `documents_are`: what `documents` of the source may then be.
    """

    split: str
    files: int
    unit: str
    documents: int | None
    held_out: dict[str, float]
    others: dict[str, Sequence[CorpusFile]]
    looks_like: str
    documents_are: tuple[str, ...]

    def __str__(self) -> str:
        return f"{counted(self.files, 'file')}{self.of_documents()}"

    @property
    def to_set(self) -> str:
        """What to set if `looks_like` is right, or is not."""
        may_be = " or ".join(map(repr, self.documents_are))
        return f"documents of the source to {may_be}, or to 'lines' if that is right"

    @property
    def flags(self) -> str:
        """What to give on a command line, after `looks_like`."""
        may_be = " or ".join(f"--documents={shlex.quote(each)}" for each in self.documents_are)
        return f"{self.looks_like}: give {may_be}, or --documents=lines if each line is a document"

    def of_documents(self, about: float | None = None) -> str:
        """Return what follows the number of files; `about` is of documents that are not counted."""
        said = "" if self.documents is None else f", {counted(self.documents, 'document')}"
        if self.documents is None and about:
            digits = max(len(str(int(about))) - 2, 0)
            said = f", about {int(round(about, -digits)):,} documents"
        said += f", a document {self.unit}"
        held = {name: self._amount(n) for name, n in self.held_out.items()}
        if self.split in held:
            return f"{said}; {held[self.split]} of them are split {self.split!r}"
        said += "".join(f"; {n} held out as {name!r}" for name, n in held.items())
        return said + "".join(f"; {name!r} is {_few(files)}" for name, files in self.others.items())

    def _amount(self, n: float) -> str:
        return f"{n:.2g}%" if self.documents is None else f"{int(n):,}"


def _few(files: Sequence[CorpusFile]) -> str:
    shown = ", ".join(names.name_of(str(file)) for file in files[:_SHOWN])
    return shown if len(files) <= _SHOWN else counted(len(files), "file")


def overview(source: CorpusSource, split: str) -> Overview:
    """Return what is understood of a split.

    Raises:
      UserError: see `CorpusSource.peek`.
    """
    split = slices.full(split)
    found, shares = source.list_files(split), source.shares(split)
    documents, held = None, {name: 100 * share for name, share in shares.items()}
    if is_small(source, split):
        texts = [text for batch in source.texts(split) for text in batch]
        documents = len(texts)
        held = {
            name: len(held_out.among(texts, held_out.of_split(shares, name))) for name in shares
        }
    unit = "a record"
    if found[0].kind in ("text", "tar"):
        is_named = source.documents in DOCUMENTS
        unit = f"a {source.documents[:-1]}" if is_named else f"up to each line {source.documents!r}"
    others = dict[str, Sequence[CorpusFile]]()
    if split == "train" and source.is_local:
        for name in (name for name in source.splits if name not in (split, *shares)):
            with contextlib.suppress(UserError):  # the corpus lacks it
                if (own := source.list_files(name)) != found:
                    others[name] = own
    return Overview(split, len(found), unit, documents, held, others, *_looks_like(source, found))


def is_small(source: CorpusSource, split: str) -> bool:
    """Return whether a split is on this machine and is read in a few seconds at most."""
    few = source.is_local and len(source.list_files(split)) <= COUNTED_FILES
    return few and (source.text_bytes(split) or 0) <= COUNTED_BYTES


def _looks_like(source: CorpusSource, found: Sequence[CorpusFile]) -> tuple[str, tuple[str, ...]]:
    """Return why lines seem to be no documents, and what documents may be."""
    if not (source.is_local and source.asks_for_documents and found[0].kind == "text"):
        return "", ()
    some = found[:: -(-len(found) // _HEADS)]
    heads = [_lines(file) for file in some]
    counts = collections.Counter(line for lines in heads for line in lines if line)
    (line, n), (_, other) = [*counts.most_common(2), ("", 0), ("", 0)][:2]
    if n >= max(_OFTEN, _OFTENER * other) and _SEPARATOR.fullmatch(line):
        return f"The line {line!r} stands at least {n:,} times, as between documents", (line,)
    paragraphs = [group for lines in heads for group in _paragraphs(lines)]
    if not paragraphs:
        return "", ()
    mean = sum(paragraphs) / len(paragraphs)
    low, high = _LINES_OF_A_PARAGRAPH
    short = np.median([len(line) for lines in heads for line in lines if line])
    small = np.median([file.length or 0 for file in found]) <= _SMALL_BYTES
    if len(paragraphs) > 2 * len(some) and low <= mean <= high:
        why = f"Empty lines stand between paragraphs of {mean:.0f} lines"
        return why, ("paragraphs", "files")
    if len(found) >= _MANY_FILES and small and short < _SHORT_LINE and mean >= low:
        return f"Each of the {len(found):,} files may be one document", ("files", "paragraphs")
    return "", ()


def _lines(file: CorpusFile) -> list[str]:
    """Return the first lines of a text file, stripped."""
    with files.open_stream(file) as raw:
        stream = contents.with_contents(raw, file)[1]
        text = stream.read(_HEAD).decode("utf-8-sig", "replace")
    return [line.strip() for line in text.splitlines()]


def _paragraphs(lines: Sequence[str]) -> Iterator[int]:
    """Yield the number of lines of each paragraph."""
    for is_text, group in itertools.groupby(lines, bool):
        if is_text:
            yield sum(1 for _ in group)
