"""One shard of a split whose records are all permuted, as a tf.data pipeline.

    store = RecordStore(corpus_split, counter)      # nothing is read yet
    dataset = PermutedReader(store, "train", (0, 8), counter, seed=0, epochs=None).dataset()

All records of the split are copied to temporary files, so that they can be read in any order. A
fixed permutation divides them among the shards (with `in_turn`, each epoch divides them anew). The
order of a shard changes every epoch and depends only on the seed and the epoch's number. The
dataset has three nested levels; each is computed from the indices of the levels above it:

    epoch -> block of positions -> record

So tf.data's iterator state is the position: an epoch and a place in its order. With `epochs=1` the
caller may repeat the dataset. The dataset then does not know which epoch it is in, so each
repetition draws the number of its epoch at random.
"""

import errno
import functools
import mmap
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import BinaryIO, cast

import numpy as np
import tensorflow as tf
from absl import logging

from common.errors import UserError
from tasks.corpus import held_out
from tasks.corpus.reader import TEXTS, as_array, random_epoch
from tasks.corpus.records.counts import EXTRA_COPIES, RecordCounter, code
from tasks.corpus.records.documents import Screened
from tasks.corpus.split import CorpusSplit
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.retry import shutting_down
from tasks.corpus.tf_callbacks import call

BLOCK_RECORDS, BLOCK_BYTES = 512, 1 << 20  # the most of a block, whose texts are read at once
ROUNDS = 8  # rounds of the Feistel network
_COUNT = tf.TensorSpec([], tf.int64)
_SHARDS_KEY = (0, 0, 0, 1)  # key of the permutation that divides the records among shards
_SKIPPED = -1  # the length of a skipped record's first text


def permute(positions: np.ndarray, n: int, key: Sequence[int]) -> np.ndarray:
    """Return the numbers at some positions of a permutation of range(n), which needs no memory.

        permute(np.arange(4), n=10, key=(7,))    # array([0, 6, 8, 9])
        permute(np.arange(10), n=10, key=(7,))   # begins with the same 4 and has every number once

    A Feistel network permutes the smallest range of a power of two that includes n; numbers outside
    of range(n) are permuted again until they are inside, which is a permutation of range(n) (Black
    and Rogaway 2002, "Ciphers with arbitrary finite domains"). The values depend on this function
    and on numpy's SeedSequence alone, whose numbers are the same in all versions.

    Args:
      positions: int64 [k], each below `n`.
      n: at least 1.
      key: integers from 0; each key has its own permutation.

    Returns:
      int64 [k].
    """
    bits = max((n - 1).bit_length(), 2)
    low = np.uint64(bits // 2)
    masks = [np.uint64((1 << width) - 1) for width in (bits - bits // 2, bits // 2)]
    keys = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64)

    def permute_power_of_two(x: np.ndarray) -> np.ndarray:
        sides = [x >> low, x & masks[1]]
        for i, round_key in enumerate(keys):
            side = i % 2
            sides[side] = sides[side] ^ (_mixed(sides[1 - side] + round_key) & masks[side])
        return (sides[0] << low) | sides[1]

    numbers = permute_power_of_two(positions.astype(np.uint64))
    while len(outside := np.flatnonzero(numbers >= n)):
        numbers[outside] = permute_power_of_two(numbers[outside])
    return numbers.astype(np.int64)


def _mixed(x: np.ndarray) -> np.ndarray:
    """Return 64 bits that each depend on all bits of `x`: the output function of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class RecordStore:
    """The records of a split, by number; safe to use from several threads.

    A record's number is its place in the files, whether it is usable or skipped; copies follow
    their record and have numbers too. Memory holds none of them: texts and their places are in two
    files without a name in the folder for temporary files (TMPDIR), which the system deletes when
    the process ends, however it ends.
    """

    def __init__(self, split: CorpusSplit, counter: RecordCounter):
        self._split, self._counter = split, counter
        self._lock = threading.Lock()
        self._texts: mmap.mmap | bytes | None = None  # None until the files have been read
        lengths = ("lengths", np.int32, (len(split.column.features),))
        self._entry = np.dtype([("start", np.int64), lengths, ("code", np.int32)])
        self._entries: np.ndarray = np.empty(0, self._entry)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of a record's texts."""
        return self._split.column.features

    def __len__(self) -> int:
        """Return the number of records; the first call reads all files.

        Raises:
          UserError: a column is missing, or the folder for temporary files is full.
        """
        with self._lock:
            if self._texts is None:
                self._texts = self._read_files()
        return len(self._entries)

    @functools.cached_property
    def mean_bytes(self) -> float:
        """The mean length of a record's texts, at least 1.

        A byte between two texts of a record is counted too, as it was when positions were saved
        first: the size of a block depends on it.
        """
        n = len(self)
        between = self._entry["lengths"].shape[0] - 1
        is_stored = (self._entries["lengths"][:, 0] != _SKIPPED) & (
            self._entries["code"] != code(EXTRA_COPIES)
        )
        total = len(self._texts or b"") + between * int(is_stored.sum())
        return max(total / max(n, 1), 1.0)

    def read(self, numbers: np.ndarray) -> tuple[list[list[bytes]], np.ndarray]:
        """Return the usable texts among the records of these numbers, and all records' codes.

        `numbers` are int64 [k], each below `len(self)`. The texts are a list for each feature; the
        codes are int32 [k], see `counts.code`.
        """
        texts = self._texts
        assert texts is not None, "no number is valid before `len` has read the files"
        chosen = self._entries[numbers]
        usable = chosen[chosen["lengths"][:, 0] != _SKIPPED]
        ends = usable["start"][:, np.newaxis] + np.cumsum(usable["lengths"], 1, np.int64)
        starts = ends - usable["lengths"]
        columns = [
            [texts[start:end] for start, end in zip(*places, strict=True)]
            for places in zip(starts.T.tolist(), ends.T.tolist(), strict=True)
        ]
        return columns, chosen["code"]

    def count_kept(self, columns: Sequence[Sequence[bytes]]) -> int:
        """Return how many of the documents that `read` returned are the split's, not held out."""
        documents = [*zip(*columns, strict=True)]
        return len(held_out.in_buckets(documents, self._split.buckets, self._split.column))

    def _read_files(self) -> mmap.mmap | bytes:
        started, split = time.monotonic(), self._split
        try:
            texts = self._store_all()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                tempfile.gettempdir(),
                why=", the folder for temporary files, cannot hold the texts of corpus "
                f"{split.corpus} ({error.strerror})",
                to_set="set TMPDIR to a folder with more space, or "
                "tasks.corpus.source.full_shuffle.gigabytes to 0 to stream the corpus",
            ) from error
        logging.info(
            "corpus %s: read %d records of split %r in %.1f s, to permute all of them",
            *(split.corpus, len(self._entries), split.name, time.monotonic() - started),
        )
        return texts

    def _store_all(self) -> mmap.mmap | bytes:
        split = self._split
        with _temporary() as texts, _temporary() as entries:
            errors = [self._store_file(file, texts, entries) for file in split.files]
            if all(errors):
                raise cast(UserError, errors[0])
            texts.flush()
            entries.flush()
            if entries.tell():
                self._entries = np.memmap(entries, self._entry, "r")
            used = texts.tell()
            return mmap.mmap(texts.fileno(), used, access=mmap.ACCESS_READ) if used else b""

    def _store_file(self, file: CorpusFile, texts: BinaryIO, entries: BinaryIO) -> UserError | None:
        """Store all parts of a file, or return the error of a bad one that is skipped."""
        split, marks = self._split, (texts.tell(), entries.tell())
        try:
            for part in range(split.retry(lambda: split.layout.count(file), file)):
                split.retry(self._storing(file, part, texts, entries), file)
        except UserError as error:
            if not split.skips_bad_files:
                raise
            _cut((texts, entries), marks)
            self._counter.skip_file(split.name, file, error)
            return error
        return None

    def _storing(self, file: CorpusFile, part: int, texts: BinaryIO, entries: BinaryIO):
        """Return a function that stores a part; if it fails, it can be called again."""
        marks = texts.tell(), entries.tell()

        def store() -> None:
            _cut((texts, entries), marks)  # remove what a failed attempt left
            for batch in self._split.batches(file, part):
                if shutting_down.is_set():
                    return
                self._append(self._split.screen(file, batch), texts, entries)

        return store

    def _append(self, screened: Screened, texts: BinaryIO, entries: BinaryIO) -> None:
        added = np.zeros(len(screened.documents), self._entry)
        if screened.documents:
            skipped = [_SKIPPED] * added["lengths"].shape[1]
            sizes = lambda document: skipped if document is None else [*map(len, document)]
            added["lengths"] = [sizes(document) for document in screened.documents]
        added["code"] = screened.codes
        is_stored = (added["lengths"][:, 0] != _SKIPPED) & (screened.codes != code(EXTRA_COPIES))
        size = added["lengths"].sum(1, np.int64)
        # A copy ends, and begins, where its record does.
        added["start"] = texts.tell() + np.cumsum(size * is_stored) - size
        stored = zip(screened.documents, is_stored, strict=True)
        texts.writelines(text for document, is_new in stored if is_new for text in document or ())
        entries.write(added.tobytes())


def _cut(stored: Sequence[BinaryIO], marks: Sequence[int]) -> None:
    for file, mark in zip(stored, marks, strict=True):
        file.seek(mark)
        file.truncate()


def _temporary() -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile())


class PermutedReader:
    """Reads one shard, (index, number of shards), of the records in a store.

    `seed` decides the orders; None draws one. `epochs` is their number; None is without end. With
    `in_turn`, an epoch's records are dealt to the shards one after the other.
    """

    def __init__(
        self,
        store: RecordStore,
        split: str,
        shard: tuple[int, int],
        counter: RecordCounter,
        seed: int | None,
        epochs: int | None = 1,
        in_turn: bool = False,
    ):
        self._in_turn = in_turn
        self._store, self._split, self._shard, self._counter = store, split, shard, counter
        self._seed, self._epochs = seed, epochs
        self._epochs_read = self._empty_epochs = 0
        self._has_text = False  # whether the epoch has had a text that is the split's
        counter.start_shard(split, shard)

    # The functions below are graphs already; converting them takes autograph seconds per shard.
    @tf.autograph.experimental.do_not_convert
    def dataset(self) -> tf.data.Dataset:
        """Return the epochs of the shard as string scalars by feature."""
        features = self._store.features

        def of_epoch(epoch):
            count = call(self._blocks, _COUNT, epoch)
            return tf.data.Dataset.range(count).map(lambda block: (epoch, block))

        def of_block(epoch, block):
            texts = call(self._texts, [TEXTS] * len(features), epoch, block)
            return tf.data.Dataset.from_tensor_slices(dict(zip(features, texts, strict=True)))

        numbered = tf.data.Dataset.range(self._epochs or 1 << 60)
        epochs = random_epoch(self._seed) if self._epochs == 1 else numbered
        return epochs.flat_map(of_epoch).flat_map(of_block)

    def _places(self, epoch: int) -> range:
        """Return the positions in an epoch that belong to this shard."""
        (index, num_shards), n = self._shard, len(self._store)
        return range((index - epoch * n) % num_shards if self._in_turn else index, n, num_shards)

    @property
    def _block(self) -> int:
        """The number of records in a block."""
        return min(BLOCK_RECORDS, max(int(BLOCK_BYTES / self._store.mean_bytes), 1))

    def _blocks(self, epoch) -> np.int64:
        n = len(self._places(int(epoch)))
        return np.int64(-(-n // self._block) + 1)  # the last one ends the epoch

    def numbers(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Return the numbers of the records at positions `start`..`stop`-1 of an epoch."""
        places, n = self._places(epoch), len(self._store)
        positions = np.arange(start, min(stop, len(places)))
        if not len(positions):
            return positions
        key = (self._seed or 0, epoch)
        if self._in_turn:
            return permute(places.start + places.step * positions, n, key)
        index, num_shards = self._shard
        chosen = index + num_shards * permute(positions, len(places), (*key, index))
        return permute(chosen, n, _SHARDS_KEY)

    def _texts(self, epoch, block) -> list[np.ndarray]:
        """Return the texts of a block, [k] of each feature."""
        start = int(block) * self._block
        numbers = self.numbers(int(epoch), start, start + self._block)
        if not len(numbers):
            self._end_epoch()
            return [as_array([])] * len(self._store.features)
        columns, codes = self._store.read(numbers)
        self._counter.add_records(self._split, codes)
        # A shard of texts that are all held out would be read without end.
        self._has_text = self._has_text or self._store.count_kept(columns) > 0
        return [as_array(column) for column in columns]

    def _end_epoch(self) -> None:
        """Count the epoch; raise UserError if the shard would look for a text without end."""
        self._epochs_read += 1
        self._counter.end_epoch(self._split, self._shard, self._epochs_read)
        self._empty_epochs = 0 if self._has_text else self._empty_epochs + 1
        self._has_text = False
        # One alone may be the end of an epoch at which the run resumed.
        index, num_shards = self._shard
        most = num_shards if self._in_turn else 1
        if self._epochs is None and self._empty_epochs > most:
            raise UserError(
                f"shard {index} of {num_shards} of split {self._split!r}",
                why="has no text: the corpus is too small for so many shards, or its documents are "
                "skipped or held out",
                to_set="set DatasetConfig.mixture_or_task_name to a larger one, or a smaller "
                "BATCH_SIZE",
            )
