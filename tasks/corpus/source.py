"""Corpora as seqio data sources: streamed, reshuffled every epoch, resumed exactly.

    source = CorpusSource("dumitrescustefan/rlm", held_out={"validation": 0.01})   # the hub
    source = CorpusSource("/data/ro", column="body")                   # a folder; "/data/ro/*.txt"
    source = CorpusSource(files={"train": "https://example.org/ro.jsonl.zst"})
    source = CorpusSource(files={"train": "@https://example.org/ro.map"})  # a list of addresses
    source.peek("train", 2)                                            # the first two texts

A split goes one way: its files are listed once (`listing`), dealt to shards and read part by part
(`reader`, `formats`), and their records become documents or are skipped and counted (`documents`,
`counts`). Shares of 'train' may be held out as other splits (`held_out`).

The order of an epoch follows from (seed, epoch); 0 is a valid seed. There are three orders:

- RECORDS, of a split up to `full_shuffle` gigabytes: a permutation of all records. They are read
  once and kept in a temporary file (`shuffle`).
- EPOCHS, of such a split of pairs: the same, dealt to the shards in turn, and nothing after it
  mixes one epoch with the next.
- PARTS, of a larger one: files, parts of files and the records within a batch are permuted
  (`reader`). `mixing` says how far this mixes.

The records at a position of an order are a function of the position, so tf.data's own iterator
state (a few kilobytes) is the data position: `tf.train.Checkpoint(iterator)` restores it exactly.
Resuming reads the records once again, or of PARTS at most one part (of a compressed or CSV file:
one file).
"""

import collections
import copy
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import seqio
import tensorflow as tf

import gin
from common.errors import UserError
from common.source import EPOCHS, PARTS, RECORDS, Reading, Source
from common.waiting import waiting
from tasks.corpus import beginning, held_out, slices, tf_callbacks
from tasks.corpus.catalog import Catalog, Files, call_with_retries
from tasks.corpus.listing import Listing
from tasks.corpus.reader import ShardReader, assign
from tasks.corpus.records.counts import CODED, RecordCounter
from tasks.corpus.records.documents import Column, Columns, Document
from tasks.corpus.records.formats import DOCUMENTS, PartLayout, check_documents
from tasks.corpus.records.lines import LONGEST_LINE
from tasks.corpus.shuffle import PermutedReader, RecordStore
from tasks.corpus.slices import SplitPart, Splits
from tasks.corpus.split import WAITING_S, CorpusSplit
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.retry import RetryPolicy

T = TypeVar("T")
PEEK_S = 30.0  # time limit for the first documents, which are read before a run
MIXED = 10_000  # documents of a slice that are shuffled together


@gin.configurable
def full_shuffle(gigabytes: float = 2.0) -> float:
    """Return the limit, in gigabytes of text, up to which all records of a split are permuted.

    Every host reads such a split once when it starts, and keeps its text in the folder for
    temporary files. 0 streams every split. A run that resumes keeps its order.

    Raises:
      UserError: it is negative.
    """
    if not gigabytes >= 0:
        raise UserError(
            "tasks.corpus.source.full_shuffle.gigabytes",
            gigabytes,
            "but must not be negative",
            "set it to 0 to stream every corpus, or above",
        )
    return gigabytes


@gin.configurable
def bad_files(skip: bool = False) -> bool:
    """Return whether files that cannot be read are skipped and counted; else they end the run.

    They have changed after they were listed, are damaged, or lack a column.
    """
    return skip


class CorpusSource(Source):
    """Documents of a corpus as {"text": string scalar}.

    Args:
      corpus: "user/name" on the hub; or a folder (a path that begins with / . or ~, or the address
        of a bucket), see `folder`; or files, as in `files`; None if `files` is given.
      config: the hub data set's configuration.
      revision: the hub data set's branch, tag or commit.
      column: the column that holds the text, a template of several, "{title}\\n{body}", or a
        `documents.Column`, which filters too.
      files: file patterns by split, instead of `corpus`: local paths (** is allowed), gs://, and
        http(s) addresses, which cannot be patterns; or folders. "@" and the address of a text file
        stand for the addresses in it, one a line; "@list.txt#10_*|9_*" for those with such names,
        and "a.tar.gz#*.txt" for such members. The suffix names the format, see `names`. Or a
        function that returns this, called when reading begins; then `splits` names the splits.
      splits: the splits, or a mapping from ours to the corpus's, {"validation": "dev"}. By default
        those of `files`; else 'train' with those of `held_out`; else those that the file names of
        the folder, or the data set, name.
      held_out: shares of 'train', together below 1, that become splits of their own and are not
        trained on, {"validation": 0.01}. Only the text of a document decides its split.
      documents: what a document is in plain text: "lines" (the default), "paragraphs" (up to an
        empty line), "files", or the line that stands between documents, such as "%".
      max_chars: longer documents are skipped and counted.
      retry_policy: how long to retry a failing network; by default as gin sets it.
    """

    def __init__(
        self,
        corpus: str | None = None,
        config: str | None = None,
        revision: str | None = None,
        column: str | Column = "text",
        files: Files | None = None,
        splits: Sequence[str] | Mapping[str, str] | None = None,
        documents: str | None = None,
        max_chars: int = 10_000_000,
        retry_policy: RetryPolicy | None = None,
        held_out: Mapping[str, float] | None = None,
    ):
        check_documents(DOCUMENTS[0] if documents is None else documents)
        self.catalog = Catalog(corpus, config, revision, files, splits, held_out)
        self.config = config
        self.column = column if isinstance(column, Column) else Column(column)
        self.documents, self.asks_for_documents = documents or DOCUMENTS[0], documents is None
        self.max_chars = max_chars
        self._retry_policy = retry_policy
        self._begin()
        super().__init__(splits=(), caching_permitted=True)

    def _begin(self) -> None:
        self._orders: dict[str, str] = {}  # {split: order}, where a data position has decided it
        self._stores: dict[CorpusSplit, RecordStore] = {}
        self._sizes: dict[str, int] = {}  # documents, by split
        self.reset_counter()

    def with_column(self, column: Column) -> Self:
        """Return the same corpus with other documents, those of `column`."""
        other = copy.copy(self)
        other.column = column
        other._begin()
        return other

    @property
    def name(self) -> str:
        """The corpus, as messages name it, without what is secret."""
        return self.catalog.name

    @property
    def retry_policy(self) -> RetryPolicy:
        """How long to retry a failing network."""
        return self._retry_policy or RetryPolicy()

    @property
    def layout(self) -> PartLayout:
        """How the files are cut into parts."""
        longest = max(8 * self.max_chars, LONGEST_LINE)
        return PartLayout(self.column.fields, self.documents, longest=longest)

    @property
    def is_local(self) -> bool:
        """Whether reading it never crosses the network."""
        return self.catalog.is_local

    @property
    def lists(self) -> list[str]:
        """The paths of lists of files on this machine, which name what is read."""
        return self.catalog.lists

    @property
    def supports_arbitrary_sharding(self) -> bool:
        """Any number of shards is supported, regardless of the number of files."""
        return True

    # Which splits and files there are.

    @property
    def splits(self) -> Splits:
        """The names of all splits; a slice of one, such as "test[:500]", is among them."""
        return Splits(self.catalog.names(self.retry_policy))

    def use_splits(self, splits: Sequence[str]) -> None:
        """Use the names of the splits that another host has found."""
        self.catalog.use_names(splits)

    def list_files(self, split: str, retry_policy: RetryPolicy | None = None) -> list[CorpusFile]:
        """Return the split's files, sorted.

        Raises:
          UserError: the split does not exist, no file matches, or the corpus cannot be read; one
            sentence.
        """
        return list(self._listing(split, retry_policy).files)

    def passed_over(self, split: str) -> Sequence[tuple[str, str]]:
        """Return (address, reason) of the files beside a split's that are not read."""
        return self._listing(split).passed_over

    def list_shards(self, split: str) -> Sequence[str]:
        """Return the addresses of the split's files, without what is secret."""
        return [str(file) for file in self.list_files(split)]

    def listing(self, split: str) -> list:
        """Return a split's files as JSON, for `use_listing` on other hosts."""
        return self.catalog.as_json(split, self.retry_policy)

    def use_listing(self, split: str, listing: list) -> None:
        """Use the `listing` of another host, so that not every host queries the hub."""
        self.catalog.use(split, listing)

    def shares(self, split: str) -> Mapping[str, float]:
        """Return the shares of the documents in a split's files that are held out, by split."""
        return self.catalog.shares(split)

    def text_bytes(self, split: str) -> int | None:
        """Return roughly how many bytes of text a split has, None if it is unknown."""
        return call_with_retries(
            self.name, "measuring", self._listing(split).text_bytes, self.retry_policy
        )

    def _listing(self, split: str, retry_policy: RetryPolicy | None = None) -> Listing:
        return self.catalog.listing(split, retry_policy or self.retry_policy)

    # What a data position depends on.

    def identity(self, split: str) -> dict[str, Any]:
        """Return the state of the corpus: its files and their contents, and what changes an epoch.

        The contents are those of the files when they were listed; see `Listing.contents`.
        """
        part = slices.parse(split)
        copies: dict[str, Any] = dict(self.column.copies)
        if self.column.file_copies:
            copies["file"] = self.column.file_copies
        return {
            **self.catalog.identity(split, self.retry_policy, self.column.group),
            "copies": json.loads(json.dumps(copies)),
            "reads": {"documents": self.documents, **self.column.settings},
            **({"slice": f"{part.begin}:{part.end}"} if part else {}),
        }

    def check_saved(self, split: str, saved: Mapping[str, Any]) -> None:
        """Raise UserError if a saved `identity` is of other documents held out."""
        self.catalog.check_saved(split, saved, self.column.group)

    def pin_revision(self, revision: str) -> None:
        """Read the hub's data set at a commit, unless a revision is already set."""
        self.catalog.pin_revision(revision)

    def order(self, split: str) -> str:
        """Return the order of shuffled epochs, RECORDS, EPOCHS or PARTS.

        Raises:
          UserError: the split is a slice, whose shuffled documents would be part of the position.
        """
        if part := slices.parse(split):
            raise UserError(
                f"split {split!r} of corpus {self.name!r}",
                why="is a slice, which is evaluated and decoded but never trained on",
                to_set=f"train on {part.split!r}, or on files of its own",
            )
        if split in self._orders:
            return self._orders[split]
        if not self._is_small(split):
            return PARTS
        return EPOCHS if isinstance(self.column, Columns) else RECORDS

    def pin_order(self, split: str, order: str) -> None:
        """Keep the order of a saved data position."""
        self._orders[split] = order

    def mixing(self, split: str, num_shards: int) -> str:
        """Return how far a shuffled epoch mixes the records, as a predicate for the log."""
        if slices.parse(split):
            return f"every epoch mixes its documents within {MIXED:,} of them"
        if self.order(split) != PARTS:
            return "every epoch is a permutation of all records"
        size = self.text_bytes(split)
        if size is None:
            remedy = "shuffle its files beforehand, since their size is unknown"
        elif self._is_small(split):
            remedy = "this run keeps the order of its saved data position"
        else:
            limit = "tasks.corpus.source.full_shuffle.gigabytes"
            remedy = f"set {limit} above {size / 1e9:.3g} to permute it"
        reach = assign(self.corpus_split(split), 0, num_shards).reach()
        return f"{reach} (a sorted corpus no further: {remedy})"

    def _is_small(self, split: str) -> bool:
        """Return whether all records of a split are permuted."""
        size = self.text_bytes(split)
        return size is not None and size <= full_shuffle() * 1e9

    # The documents.

    def corpus_split(self, split: str, retry_policy: RetryPolicy | None = None) -> CorpusSplit:
        """Return the files of a split and how to read them."""
        return CorpusSplit(
            self.name,
            split,
            self._listing(split, retry_policy).files,
            self.layout,
            self.column,
            self.max_chars,
            retry_policy or self.retry_policy,
            bad_files(),
            self.catalog.buckets(split),
        )

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        *,
        sequence_length=None,
        use_cached: bool = False,
        num_epochs: int | None = 1,
        order: str | None = None,
    ) -> tf.data.Dataset:
        """Return one epoch of documents; each repetition of it (`.repeat()`) has a new order.

        Without `shuffle` it is the order of the files. A `seed` decides the orders of all epochs;
        None draws one. `order` is what is permuted, by default as the method `order` says.
        `sequence_length`, `use_cached` and `num_epochs` are unused.
        """
        shard = shard_info or seqio.ShardInfo(0, 1)
        reading = Reading(
            split, shuffle, seed, shard.index, shard.num_shards, order=order, counter=self.counter
        )
        return self.open(split, reading)

    def open(self, split: str, reading: Reading) -> tf.data.Dataset:
        """Return a dataset of documents, texts by feature; see `Reading`.

        One of RECORDS or EPOCHS repeats itself for `reading.epochs`; others have one epoch.
        """
        if part := slices.parse(split):
            return self._open_part(part, reading)
        seed = reading.seed if reading.seed is None else zlib.crc32(str(reading.seed).encode())
        counter = reading.counter or RecordCounter(self.name)
        # The files are listed here, so that a missing corpus fails before the first step.
        corpus = self.corpus_split(split)
        order = (reading.order or self.order(split)) if reading.shuffle else PARTS
        if order == PARTS:
            share = assign(corpus, reading.shard, reading.shards)
            dataset = ShardReader(share, reading.shuffle, counter).dataset(seed)
        else:
            store = self._stores.setdefault(corpus, RecordStore(corpus, counter))
            shard = (reading.shard, reading.shards)
            in_turn = order == EPOCHS and reading.epochs != 1
            reader = PermutedReader(store, split, shard, counter, seed, reading.epochs, in_turn)
            dataset = reader.dataset()
        return held_out.keep(dataset, corpus.buckets, self.column)

    def _open_part(self, part: SplitPart, reading: Reading) -> tf.data.Dataset:
        """Return a shard of one epoch of a slice; each shard reads the split up to its end."""
        # All shards read the same records, which the first one counts.
        counter = reading.counter if reading.shard == 0 else None
        dataset = self.open(part.split, Reading(shuffle=False, counter=counter))
        begin, end = part.bounds(lambda: self._count(part))
        dataset = dataset.skip(begin).take(-1 if end is None else end - begin)
        dataset = dataset.shard(reading.shards, reading.shard)
        return dataset.shuffle(MIXED, reading.seed) if reading.shuffle else dataset

    def _count(self, part: SplitPart) -> int:
        """Return the number of a split's documents, which are read once for it."""
        if not self._is_small(part.split):
            raise UserError(
                f"{part.split}[{part.begin}:{part.end}]",
                why="cannot be counted from the end or in percent, because split "
                f"{part.split!r} of corpus {self.name!r} is a stream of unknown length",
                to_set=f"give numbers from its beginning, such as {part.split}[:500]",
            )
        if part.split not in self._sizes:
            documents = self.open(part.split, Reading(shuffle=False))
            self._sizes[part.split] = int(documents.reduce(np.int64(0), lambda n, _: n + 1))
        return self._sizes[part.split]

    def texts(self, split: str) -> Iterator[list[Document]]:
        """Yield the usable documents in a split's files, with those held out, batch by batch."""
        return self.corpus_split(split).documents()

    # The first documents, before a run.

    def peek(self, split: str = "train", n: int = 1, limit_s: float = PEEK_S) -> list[str]:
        """Return the first `n` texts of a split, reading little: the check before a run.

        Raises:
          UserError: one sentence: the split, column, file or token is missing, the corpus is
            unreachable, or has no usable text at its beginning.
        """
        documents = self._peek(split, n, limit_s)
        return [b"\n".join(document).decode() for document in documents]

    def _peek(self, split: str, n: int, limit_s: float = PEEK_S) -> list[Document]:
        return self._read_beginning(split, beginning.first_documents, n, limit_s)

    def unknown_labels(self, split: str, n: int) -> collections.Counter[str]:
        """Return how often each label that is no class is in the records of the first `n` texts."""
        return collections.Counter(self._read_beginning(split, beginning.read_beginning, n).labels)

    def check_shards(self, split: str, num_shards: int) -> None:
        """Raise UserError if a split has fewer usable texts than shards, which need one each."""
        num_shards = 1 if self.order(split) == EPOCHS else num_shards
        self._read_beginning(split, beginning.check_shards, num_shards)

    def _read_beginning(
        self, split: str, read: Callable[[CorpusSplit, int], T], n: int, limit_s: float = PEEK_S
    ) -> T:
        policy = RetryPolicy(limit_s=limit_s)
        corpus = self.corpus_split(split, policy)
        action = "reading the beginning of"
        with waiting(f"{action} {self.name}", WAITING_S):
            return call_with_retries(self.name, action, lambda: read(corpus, n), policy)

    # The records that were read.

    def reset_counter(self) -> None:
        """Count the records of this source from zero."""
        self.counter = RecordCounter(self.name)
        tf_callbacks.report_at_exit(self.counter)

    def record_counts(self, split: str | None = None) -> dict[str, int]:
        """Return this process's record counts of a split; see `RecordCounter.counts`.

        A split held out has only its examples: it is chosen after the entire file was read, and a
        skipped record has no text to choose it by, so that 'train' counts all records.
        """
        counts = self.counter.counts(split and slices.full(split))
        if split and self.catalog.is_held_out(split):
            counts |= dict.fromkeys(("read", *CODED), 0)
        return counts
