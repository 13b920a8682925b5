"""The first documents of a split.

    beginning = read_beginning(corpus_split, 2)
    beginning.documents                      # [(b"un text",), (b"altul",)]
    first_documents(corpus_split, 2)         # the same, or UserError
    check_columns(corpus_split)              # UserError if a parquet file lacks a column

The checks before a run use them, so little is read.
"""

from typing import NamedTuple

from absl import logging

from common.errors import UserError
from common.tables import counted
from tasks.corpus import held_out
from tasks.corpus.records import encodings
from tasks.corpus.records.counts import RecordCounter, count_codes
from tasks.corpus.records.documents import Column, Document
from tasks.corpus.records.formats import columns_missing
from tasks.corpus.split import CorpusSplit

MOST_UNUSABLE = 1_000_000  # records without usable text before the first that has some
MOST_LABELS = 3  # unknown ones that a message shows
FOOTERS_S = 10.0  # time limit for the footers of all parquet files, before a run


class Beginning(NamedTuple):
    """The first documents of a split, counts of the records read, and unknown labels."""

    documents: list[Document]
    counter: RecordCounter
    labels: list[str]

    def advice(self, column: Column) -> str:
        """Return what to do about a file without usable text, "" if that is not known."""
        quoted = lambda labels: ", ".join(map(repr, labels))
        counts = self.counter.counts()
        if labels := list(dict.fromkeys(self.labels))[:MOST_LABELS]:
            return (
                f"list {quoted(labels)} in the task's labels, which are now "
                f"{quoted(column.known_labels)}"
            )
        if counts["skipped_malformed"]:
            return "if it is plain text, end its name in .txt"
        if counts["skipped_not_text"]:
            return "make one text of the texts of a list by Column(…, joined='\\n')"
        return "" if counts["read"] else "give a file that has records, or leave it out"


def read_beginning(split: CorpusSplit, n: int, one_file: bool = False) -> Beginning:
    """Return the documents of the first files, at least `n` if there are so many.

    With `one_file` it stops after the first file that has a document, and after MOST_UNUSABLE
    records without one. Files are read in small parts, so that no more than necessary is read.
    """
    split, has_others = split.in_small_parts(), False
    beginning = Beginning([], RecordCounter(split.corpus), [])
    for file in split.files:
        for screened in split.screened(file):
            documents = held_out.in_buckets(screened.usable, split.buckets, split.column)
            has_others |= len(documents) < len(screened.usable)
            beginning.counter.add(count_codes(screened.codes))
            beginning.documents.extend(documents)
            beginning.labels.extend(screened.labels)
            counts = beginning.counter.counts()
            is_hopeless = not (has_others or beginning.documents) and counts["read"] > MOST_UNUSABLE
            if len(beginning.documents) >= n or is_hopeless:
                return beginning
        is_enough = bool(beginning.documents) or not has_others
        if one_file and is_enough and beginning.counter.counts()["read"]:
            break
    return beginning


def first_documents(split: CorpusSplit, n: int) -> list[Document]:
    """Return the first `n` documents of a split, of its first file alone.

    Raises:
      UserError: a column is missing, most of the beginning is not UTF-8, or none of it is usable.
    """
    beginning = read_beginning(split, n, one_file=True)
    check_columns(split)
    counts = beginning.counter.counts()
    bad, filled = counts["skipped_not_UTF-8"], counts["read"] - counts["skipped_empty"]
    if bad > encodings.MOST_BAD * filled:
        raise encodings.error(split.files[0], bad, filled)
    if beginning.documents:
        return beginning.documents[:n]
    if split.buckets and counts["read"]:
        raise _nothing_held_out(split)
    count = counted(counts["read"], "record")
    raise UserError(
        str(split.files[0]),
        why=f"has no usable text in column {split.column.name!r}: of {count} read, skipped "
        f"{beginning.counter.skipped()}",
        to_set=beginning.advice(split.column),
    )


def _nothing_held_out(split: CorpusSplit) -> UserError:
    least = held_out.least_share(split.documents(), split.column)
    to_set = f"write held_out={{{split.name!r}: {least:g}}} in its source, or more"
    return UserError(
        f"split {split.name!r} of corpus {split.corpus!r}",
        why="has no document: its share of 'train' is too small for so few",
        to_set=to_set if least else "add documents",
    )


def check_columns(split: CorpusSplit) -> None:
    """Raise UserError if a parquet file lacks a column, by all footers read in FOOTERS_S."""
    errors = columns_missing(split.files, split.column.fields, FOOTERS_S)
    if not errors:
        return
    first, *others = errors
    more = f" ({counted(len(others), 'more file')} too)" if others else ""
    why = f"{first.why}{more}"
    if not split.skips_bad_files:
        raise UserError(first.setting, why=why, to_set=first.to_set) from first
    logging.warning("%s %s: skipped", first.setting, why)


def check_shards(split: CorpusSplit, num_shards: int) -> None:
    """Raise UserError if a split has fewer usable texts than shards, which need one each."""
    number = len(read_beginning(split, num_shards).documents)
    if number < num_shards:
        raise UserError(
            f"split {split.name!r} of corpus {split.corpus!r}",
            why=f"has {counted(number, 'usable text')}, but its {num_shards} shards need one each",
            to_set="add texts, or set BATCH_SIZE to an odd number, which makes one shard a process",
        )
