"""What a corpus holds, in a sentence, before anything is made of it.

    view = overview(source, "train")
    print(view)         # 200 files, 7,094 documents, a document a line; 71 held out as 'validation'
    view.question       # None, or why a line seems to be no document, and the settings that suit

If the corpus is small and on this machine, `overview` counts its documents. This takes a few
seconds at most.
"""

import codecs
import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import seqio
from absl import logging

from common.errors import UserError
from common.tables import counted
from common.waiting import waiting
from tasks.corpus import held_out, questions, slices
from tasks.corpus.questions import Question
from tasks.corpus.records import archives, contents, encodings
from tasks.corpus.records.formats import DOCUMENTS
from tasks.corpus.source import CorpusSource
from tasks.corpus.split import WAITING_S
from tasks.corpus.storage import files, names
from tasks.corpus.storage.files import CorpusFile

# Documents are counted in a corpus of at most so many bytes of text, files and records.
COUNTED_BYTES, COUNTED_FILES, COUNTED_RECORDS = 16e6, 2_000, 1_000_000
_HEAD, _HEADS = 64 << 10, 16  # bytes of a file, and files, whose lines are looked at
_REMOTE_LINES = 100  # that are looked at
_NAMED_FILES = 3  # number of another split's files that are named


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
      question: why lines seem to be no documents, None if they do.
      not_utf8: the error of a file that has lines in another encoding, None if no file has.
    """

    split: str
    files: Sequence[CorpusFile]
    passed_over: Sequence[tuple[str, str]]
    unit: str
    documents: int | None
    held_out: dict[str, float]
    others: dict[str, Sequence[CorpusFile]]
    question: Question | None
    not_utf8: UserError | None

    def __str__(self) -> str:
        return f"{counted(len(self.files), 'file')}{self.details()}"

    @property
    def file_bytes(self) -> int | None:
        """The size of all files, None if it is not listed."""
        sizes = [file.length for file in self.files if file.length is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

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
    if (buckets := small_buckets(source, split)) is not None:
        documents = len(buckets)
        ranges = {name: cast(held_out.Range, held_out.range_of(shares, name)) for name in shares}
        parts = {
            name: int(np.sum((first <= buckets) & (buckets < end)))
            for name, (first, end) in ranges.items()
        }
    heads = _heads(source, split, listing)
    return Overview(
        split=split,
        files=listing,
        passed_over=source.passed_over(split),
        unit=_unit(source, listing),
        documents=documents,
        held_out=parts,
        others=_other_splits(source, split, listing),
        question=_question(source, listing, heads),
        not_utf8=_not_utf8(heads),
    )


def describe_corpus(task: seqio.Task, split: str) -> str:
    """Return the sentence on a split of a task's corpus, "" unless it is a `CorpusSource`.

    Warn if its lines seem to be no documents.
    """
    if not isinstance(task.source, CorpusSource):
        return ""
    view = overview(task.source, split)
    if view.question:
        logging.warning(
            "corpus %s: %s: %s", task.source.name, view.question.why, view.question.to_set
        )
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
    return small_buckets(source, split) is not None


@functools.lru_cache(maxsize=16)
def small_buckets(source: CorpusSource, split: str) -> np.ndarray | None:
    """Return the hash bucket of each document, int64 [k], None unless the split is small.

    Its files may hold far more than their sizes say, so reading ends after a number of records.
    """
    few = source.is_local and len(source.list_files(split)) <= COUNTED_FILES
    if not few or (source.text_bytes(split) or 0) > COUNTED_BYTES:
        return None
    buckets = [np.zeros(0, np.int64)]
    records = size = 0
    with waiting(f"counting the documents of {source.name}", WAITING_S):
        for screened in source.corpus_split(split).all_screened():
            if screened.usable:
                buckets.append(held_out.hashes(screened.usable, source.column))
            records += len(screened.codes)
            size += sum(len(text) for document in screened.usable for text in document)
            if records > COUNTED_RECORDS or size > 4 * COUNTED_BYTES:
                return None
    return np.concatenate(buckets)


def _heads(
    source: CorpusSource, split: str, listing: Sequence[CorpusFile]
) -> dict[CorpusFile, list[bytes]]:
    """Return the first lines of some files, stripped; of remote text those of the first file."""
    if not source.is_local and listing[0].kind == "text" and source.asks_for_documents:
        return {listing[0]: [text.strip().encode() for text in source.peek(split, _REMOTE_LINES)]}
    if not source.is_local or listing[0].kind in ("parquet", files.PARALLEL):
        return {}
    heads = {}
    for file in listing[:: -(-len(listing) // _HEADS)]:
        try:
            heads[file] = _lines(file)
        except UserError:
            if not source.corpus_split(split).skips_bad_files:
                raise
    return heads


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


def _question(
    source: CorpusSource, listing: Sequence[CorpusFile], heads: Mapping[CorpusFile, Sequence[bytes]]
) -> Question | None:
    """Return why lines of plain text seem to be no documents, None if the source says they are."""
    are_lines = source.documents == DOCUMENTS[0]
    if listing[0].kind not in ("text", "tar") or (are_lines and not source.asks_for_documents):
        return None
    texts = {file: [line.decode(errors="replace") for line in head] for file, head in heads.items()}
    has_columns = any(map(str.isdecimal, source.column.fields))
    question = None if has_columns else questions.about_tables(texts)
    if not question and source.asks_for_documents and source.is_local:
        question = questions.about_documents(texts, listing)
    return question


def _lines(file: CorpusFile) -> list[bytes]:
    """Return the first complete lines of a file, or of the first text of an archive, stripped."""
    with files.open_stream(file) as raw:
        if file.kind == "tar":
            file, raw = next(archives.members(raw, file))
            if file.kind != "text":
                return []
        stream = contents.with_contents(raw, file)[1]
        head = stream.read(_HEAD)
    lines = head.removeprefix(codecs.BOM_UTF8).splitlines()
    return [line.strip(b" \r") for line in (lines if len(head) < _HEAD else lines[:-1] or lines)]
