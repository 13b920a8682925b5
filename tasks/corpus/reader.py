"""One shard of a split as a tf.data pipeline whose iterator state is the data position.

    share = assign(corpus_split, index=3, num_shards=16)
    dataset = ShardReader(share, shuffle=True, counter=counter).dataset(seed=0)

A shard has its own files; if there are fewer files than shards, its own parts of all files; if
these cannot be cut, it reads all records and keeps its own. Its dataset is five nested ranges, each
a function of those to its left:

    epoch (a random number, redrawn by every repetition) -> file -> part -> batch -> record

Python only returns "which files", "which parts", "has the part another batch" and "its texts". It
keeps the open file and the last batch for speed, but answers for any position at any time: a
restored iterator asks for its current batch, and reading continues there.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from common.errors import UserError
from common.tables import counted
from tasks.corpus.records import formats
from tasks.corpus.records.counts import RecordCounter
from tasks.corpus.split import CorpusSplit
from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.retry import retry
from tasks.corpus.tf_callbacks import call

T = TypeVar("T")
NUMBERS = tf.TensorSpec([None], tf.int64)
TEXTS = tf.TensorSpec([None], tf.string)
_IS_TRUE = tf.TensorSpec([], tf.bool)
_END = -1  # follows an epoch's last file
PartKey = tuple[int, int, int]  # epoch, file, part


@dataclasses.dataclass(frozen=True)
class Share:
    """What one shard reads of a split.

    `files`: numbers in `split.files`. `by_records`: the shard keeps only its own records.
    `parts_before`: for each file, the number of parts in the files before it; None unless the
    shards divide the parts among them.
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
        """Return one epoch of the shard as string scalars by feature.

        `seed` is of the random numbers of shuffled epochs; None draws one.
        """

        def each(items: tf.Tensor, *key: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.from_tensor_slices(items).map(lambda item: (*key, item))

        def of_part(*key):
            has = lambda step: call(self._has, _IS_TRUE, *key, step)
            return tf.data.Dataset.range(1 << 60).take_while(has).map(lambda step: (*key, step))

        features = self._split.column.features

        def of_batch(*key):
            texts = call(self._texts, [TEXTS] * len(features), *key)
            return tf.data.Dataset.from_tensor_slices(dict(zip(features, texts, strict=True)))

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

    def _texts(self, *position) -> list[np.ndarray]:
        """Return the texts of a batch, [k] of each feature."""
        epoch, file, part, step = position = tuple(map(int, position))
        batch = self._batch(epoch, file, part, step) or []
        if self._share.by_records:
            batch = batch[self._share.index :: self._share.num_shards]
        screened = self._split.screen(self._split.files[file], batch)
        self._counter.add_records(self._split.name, screened.codes)
        columns = zip(*screened.usable, strict=True) if screened.usable else ()
        texts = [*columns] or [()] * len(self._split.column.features)
        return [self._permute(as_array(column), *position) for column in texts]

    def _batch(self, epoch: int, file: int, part: int, step: int) -> list | None:
        """Return a batch of records, or None after the last one of the part."""
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


def as_array(texts: Sequence[bytes]) -> np.ndarray:
    """Return texts as an array of objects, [k], which TensorFlow takes for strings."""
    out = np.empty([len(texts)], object)
    out[:] = texts
    return out
