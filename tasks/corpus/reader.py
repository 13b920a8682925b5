"""One shard of a split as a tf.data pipeline whose iterator state is the data position.

    share = assign(corpus_split, index=3, num_shards=16)
    dataset = ShardReader(share, shuffle=True, counter=counter).dataset(seed=0)

A shard has its own files; if there are fewer files than shards, its own parts of all files; if
these cannot be cut, it reads all records and keeps its own. Its dataset is five nested ranges, each
a function of those to its left:

    epoch (a random number, redrawn by every repetition) -> file -> part -> batch -> record

Python only answers "which files", "which parts", "has the part another batch" and "its texts". It
keeps the open file and the last batch for speed, but answers for any position at any time: a
restored iterator asks for its current batch, and reading continues there.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from common.errors import UserError
from common.tables import counted
from tasks.corpus import held_out
from tasks.corpus.records import formats
from tasks.corpus.records.counts import RecordCounter, of_codes
from tasks.corpus.records.documents import Column, Screened, screen
from tasks.corpus.records.formats import PartLayout
from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.retry import RetryPolicy, retry
from tasks.corpus.tf_callbacks import call

T = TypeVar("T")
MOST_LABELS = 3  # unknown ones that a message shows
NUMBERS = tf.TensorSpec([None], tf.int64)
TEXTS = tf.TensorSpec([None], tf.string)
_IS_TRUE = tf.TensorSpec([], tf.bool)
PEEK_BYTES = 1 << 16
_END = -1  # follows an epoch's last file
PartKey = tuple[int, int, int]  # epoch, file, part


@dataclasses.dataclass(frozen=True)
class CorpusSplit:
    """The files of one split of a corpus, and how they are read.

    A source makes it; it holds data only, so that readers depend on no source.

    `max_chars`: longer documents are skipped. `skips_bad_files`: whether a file that cannot be read
    is skipped.
    """

    corpus: str
    name: str
    files: tuple[CorpusFile, ...]
    layout: PartLayout
    column: Column
    max_chars: int
    retry_policy: RetryPolicy
    skips_bad_files: bool = False

    def batches(self, file: CorpusFile, part: int) -> Iterator[list]:
        """Yield the records of one part of `file` in batches.

        Raises:
          UserError: no record at the beginning of the file has a column of the text, or none at
            the beginning of the first file a column of a filter.
        """
        required = self.column.fields if file == self.files[0] else self.column.text_fields
        return self.layout.batches(file, part, required)

    def screen(self, file: CorpusFile, records: list) -> Screened:
        """Return the texts of some records of `file`, or why they are skipped."""
        return screen(records, self.column.of_file(file.url), self.max_chars)

    def in_small_parts(self) -> "CorpusSplit":
        """Return the split in parts of which little has to be read to see its beginning."""
        layout = dataclasses.replace(self.layout, part_bytes=PEEK_BYTES)
        return dataclasses.replace(self, layout=layout)

    def screened(self, file: CorpusFile) -> Iterator[Screened]:
        """Yield what becomes of the records of `file`, in their order, batch by batch."""
        for part in range(self.layout.count(file)):
            for batch in self.batches(file, part):
                yield self.screen(file, batch)

    def retry(self, fn: Callable, file: CorpusFile):
        """Call `fn`, which reads `file`, until it succeeds."""
        return retry(fn, f"reading {file}", self.retry_policy)


class Beginning(NamedTuple):
    """The texts at the beginning of a split, counts of the records read, and unknown labels."""

    texts: list[bytes]
    counter: RecordCounter
    labels: list[str]

    def remedy(self, column: Column) -> str:
        """Return advice about a file without usable text, as the end of a sentence."""
        quoted = lambda labels: ", ".join(map(repr, labels))
        counts = self.counter.counts()
        if labels := list(dict.fromkeys(self.labels))[:MOST_LABELS]:
            found = f"found {quoted(labels)}; known are {quoted(column.known_labels)}"
            return f" ({found}): list them in the task's labels"
        if counts["skipped_not_UTF-8"]:
            return ": convert the file to UTF-8, for example with iconv"
        if counts["skipped_malformed"]:
            return ": if it is plain text, end its name in .txt"
        if counts["skipped_not_text"]:
            return ": the texts of a list become one by Column(…, joined='\\n')"
        return "" if counts["read"] else ": give a file that has records, or leave it out"


def read_beginning(
    split: CorpusSplit, n: int, one_file: bool = False, buckets: held_out.Range | None = None
) -> Beginning:
    """Return the texts of the first files, or of the first with a record alone, at least `n`.

    They are read in small parts, so that little is read. With `buckets` only texts of these count,
    and of a file that has only others the next one is read.
    """
    split, others = split.in_small_parts(), False
    beginning = Beginning([], RecordCounter(split.corpus), [])
    for file in split.files:
        for found in split.screened(file):
            texts = held_out.among(found.usable, buckets)
            others |= len(texts) < len(found.usable)
            beginning.counter.add(of_codes(found.codes))
            beginning.texts.extend(texts)
            beginning.labels.extend(found.labels)
            if len(beginning.texts) >= n:
                return beginning
        is_enough = bool(beginning.texts) or not others
        if one_file and is_enough and beginning.counter.counts()["read"]:
            break
    return beginning


@dataclasses.dataclass(frozen=True)
class Share:
    """What one shard reads of a split.

    `files`: numbers in `split.files`. `by_records`: the shard keeps only its own records.
    `parts_before`: for each file, the number of parts in the files before it, if parts are shared.
    """

    split: CorpusSplit
    index: int
    num_shards: int
    files: tuple[int, ...]
    by_records: bool = False
    parts_before: tuple[int, ...] | None = None

    def parts(self, number: int) -> list[int]:
        """Return the parts of a file, by its number, that are this shard's."""
        parts = range(self.split.layout.count(self.split.files[number]))
        if self.parts_before is None:
            return list(parts)
        before = self.parts_before[number]
        return [p for p in parts if (before + p) % self.num_shards == self.index]

    def reach(self) -> str:
        """Return how far a shuffled epoch mixes the records, as the beginning of a sentence."""
        first, layout = self.split.files[0], self.split.layout
        divisible = lambda: layout.divisible(first)
        in_parts = not self.by_records and self.split.retry(divisible, first)
        within = f"{formats.BATCH_RECORDS} consecutive records"
        if in_parts and first.kind != "parquet":
            within = f"{layout.bytes_per_part(first) / 2**20:.2g} MiB of records"
        return (
            f"{'files and their parts' if in_parts else 'files'} are read in random order, by "
            f"{self.num_shards} shards at the same time, and records are mixed within {within}"
        )


def assign(split: CorpusSplit, index: int, num_shards: int) -> Share:
    """Return the share of shard `index`."""
    n = len(split.files)
    if n >= num_shards:
        return Share(split, index, num_shards, tuple(range(index, n, num_shards)))
    cut = lambda: _share_parts(split, index, num_shards)
    share = retry(cut, f"cutting {split.corpus}", split.retry_policy)
    if share.by_records:
        _warn_uncut(split.corpus, split.name, n, num_shards)
    return share


def _share_parts(split: CorpusSplit, index: int, num_shards: int) -> Share:
    every = tuple(range(len(split.files)))
    if all(split.layout.divisible(file) for file in split.files):
        # Byte ranges so small that every shard has several.
        total = sum(files.size(f) or 0 for f in split.files if f.kind != "parquet")
        usual = min(split.layout.bytes_per_part(f) for f in split.files)
        part_bytes = max(min(usual, total // (4 * num_shards)), 1 << 10)
        layout = dataclasses.replace(split.layout, part_bytes=part_bytes)
        split = dataclasses.replace(split, layout=layout)
        counts = [layout.count(file) for file in split.files]
        if sum(counts) >= num_shards:
            before = tuple(sum(counts[:i]) for i in every)
            return Share(split, index, num_shards, every, parts_before=before)
    return Share(split, index, num_shards, every, by_records=True)


@functools.cache  # every shard finds the same
def _warn_uncut(corpus: str, split: str, n_files: int, num_shards: int) -> None:
    logging.warning(
        "corpus %s has %s in split %r, which cannot be cut into %d shards: each shard reads "
        "all records and keeps every %dth, so the corpus is fetched and parsed %d times; cut it "
        "into %d files or more, or write it as parquet or uncompressed JSONL",
        *(corpus, counted(n_files, "file"), split, *[num_shards] * 4),
    )


def random_epoch(seed: int | None) -> tf.data.Dataset:
    """Return one random number, int64 [], that every repetition of the dataset draws again."""
    return tf.data.Dataset.random(seed, rerandomize_each_iteration=True).take(1)


@dataclasses.dataclass
class _Cursor:
    """A position within one part: its current batch, None after the last."""

    key: PartKey
    batches: Iterator[list]
    step: int = -1
    batch: list | None = dataclasses.field(default_factory=list)

    def advance(self) -> None:
        """Move to the next batch."""
        self.batch = next(self.batches, None)
        self.step += 1


class ShardReader:
    """Reads one shard of a split, with files, parts and records permuted if `shuffle` is set."""

    def __init__(self, share: Share, shuffle: bool, counter: RecordCounter):
        self._share, self._split = share, share.split
        self._shuffle, self._counter = shuffle, counter
        self._shard = (share.index, share.num_shards)
        self._epochs_read = 0
        self._lock = threading.RLock()
        self._cursor: _Cursor | None = None
        self._bad_files: set[CorpusFile] = set()
        counter.start_shard(self._split.name, self._shard)

    # The functions below are graphs already; converting them takes autograph seconds per shard.
    @tf.autograph.experimental.do_not_convert
    def dataset(self, seed: int | None) -> tf.data.Dataset:
        """Return one epoch of the shard as {"text": string scalar}.

        `seed` is of the random numbers of shuffled epochs; None draws one.
        """

        def each(items: tf.Tensor, *key: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.from_tensor_slices(items).map(lambda item: (*key, item))

        def of_part(*key):
            has = lambda step: call(self._has, _IS_TRUE, *key, step)
            return tf.data.Dataset.range(1 << 60).take_while(has).map(lambda step: (*key, step))

        def of_batch(*key):
            return tf.data.Dataset.from_tensor_slices({"text": call(self._texts, TEXTS, *key)})

        zero = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
        epochs = random_epoch(seed) if self._shuffle else zero
        in_files = epochs.flat_map(lambda epoch: each(call(self._files, NUMBERS, epoch), epoch))
        in_parts = in_files.flat_map(lambda *key: each(call(self._parts, NUMBERS, *key), *key))
        return in_parts.flat_map(of_part).flat_map(of_batch)

    def _permute(self, items: np.ndarray, *key) -> np.ndarray:
        if not self._shuffle:
            return items
        return np.random.default_rng([int(k) for k in key]).permutation(items)

    def _files(self, epoch) -> np.ndarray:
        return np.append(self._permute(np.array(self._share.files, np.int64), epoch), _END)

    def _parts(self, epoch, file) -> np.ndarray:
        if file == _END:
            with self._lock:
                self._epochs_read += 1
            self._counter.end_epoch(self._split.name, self._shard, self._epochs_read)
            return np.zeros([0], np.int64)
        stored = self._split.files[file]
        read = lambda: self._split.retry(lambda: self._share.parts(file), stored)
        parts = self._or_skipped(read, stored) or []
        return self._permute(np.array(parts, np.int64), epoch, file)

    def _has(self, epoch, file, part, step) -> np.bool_:
        return np.bool_(self._batch(int(epoch), int(file), int(part), int(step)) is not None)

    def _texts(self, *position) -> np.ndarray:
        _, file, part, step = position = tuple(map(int, position))
        batch = self._batch(*position) or []
        if self._share.by_records:
            batch = batch[self._share.index :: self._share.num_shards]
        found = self._split.screen(self._split.files[file], batch)
        place = (file, part, step)
        self._counter.add_batch(self._split.name, self._shard, place, found.codes)
        return self._permute(as_array(found.usable), *position)

    def _batch(self, epoch: int, file: int, part: int, step: int) -> list | None:
        """Return a batch of records, None behind the last of the part."""
        key, stored = (epoch, file, part), self._split.files[file]

        def move() -> _Cursor:
            cursor, self._cursor = self._cursor, None  # dropped if reading fails
            if cursor is None or cursor.key != key or cursor.step > step:
                cursor = _Cursor(key, self._split.batches(stored, part))
            while cursor.step < step and cursor.batch is not None:
                cursor.advance()
            self._cursor = cursor
            return cursor

        with self._lock:
            cursor = self._or_skipped(lambda: self._split.retry(move, stored), stored)
            return cursor and cursor.batch

    def _or_skipped(self, read: Callable[[], T], file: CorpusFile) -> T | None:
        """Return what `read` does; None if the file is bad and skipped, while others are left."""
        try:
            return read()
        except UserError as error:
            self._bad_files.add(file)
            if not self._split.skips_bad_files or len(self._bad_files) == len(self._share.files):
                raise
            self._counter.skip_file(self._split.name, file, error)
            return None


def as_array(texts: list[bytes]) -> np.ndarray:
    """Return texts as an array of objects, [k], which TensorFlow takes for strings."""
    out = np.empty([len(texts)], object)
    out[:] = texts
    return out
