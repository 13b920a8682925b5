"""One shard as a tf.data pipeline whose iterator state is the data position.

The dataset is five nested ranges, each a function of those to its left:

    epoch (a random number, redrawn by every repetition) -> file -> part -> batch -> record

Python only answers "which files", "which parts", "has the part another batch" and "its texts". It
keeps the open file and the last batch for speed, but answers for any position at any time: a
restored iterator asks for its current batch, and reading continues there.
"""

import functools
import threading
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from tasks.corpus import tf_callbacks
from tasks.corpus.counts import RecordCounter
from tasks.corpus.documents import screen
from tasks.corpus.shard_assignment import Share

_END = -1  # follows an epoch's last file
PartKey = tuple[int, int, int]  # epoch, file, part


def random_epoch(seed: int | None) -> tf.data.Dataset:
    """Return one random number, int64 [], that every repetition of the dataset draws again."""
    return tf.data.Dataset.random(seed, rerandomize_each_iteration=True).take(1)


def shard_dataset(reader: "ShardReader", shuffle: bool, seed: int | None) -> tf.data.Dataset:
    """Return one epoch of a shard as {"text": string scalar}.

    Args:
      reader: of the shard.
      shuffle: whether it permutes; an epoch then has a random number.
      seed: of these numbers; None draws one.
    """
    # These functions are graphs already; converting them takes autograph seconds per shard.
    as_is = tf.autograph.experimental.do_not_convert

    call, none = tf_callbacks.call, np.zeros([0], np.int64)

    @as_is
    def of_epoch(epoch):
        chosen = call(reader._files, none, [None], epoch)
        return tf.data.Dataset.from_tensor_slices(chosen).map(as_is(lambda f: (epoch, f)))

    @as_is
    def of_file(epoch, file):
        parts = call(reader._parts, none, [None], epoch, file)
        return tf.data.Dataset.from_tensor_slices(parts).map(as_is(lambda p: (epoch, file, p)))

    @as_is
    def of_part(*key):
        steps = tf.data.Dataset.range(1 << 60)
        has = lambda step: call(reader._has, np.bool_(False), [], *key, step)
        return steps.take_while(as_is(has)).map(as_is(lambda s: (*key, s)))

    @as_is
    def of_batch(*position):
        texts = call(reader._texts, np.array([], object), [None], *position)
        return tf.data.Dataset.from_tensor_slices({"text": texts})

    if shuffle:
        epochs = random_epoch(seed)
    else:
        epochs = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
    return epochs.flat_map(of_epoch).flat_map(of_file).flat_map(of_part).flat_map(of_batch)


class _Cursor:
    """A position within one part: its current batch, None after the last."""

    def __init__(self, key: PartKey, batches: Iterator[list]):
        self.key = key
        self.step = -1
        self.batch: list | None = []
        self._batches = batches

    def advance(self) -> None:
        """Move to the next batch."""
        self.batch = next(self._batches, None)
        self.step += 1


class ShardReader:
    """Reads one shard of a split, with files, parts and records permuted if `shuffle` is set."""

    def __init__(self, share: Share, shuffle: bool, counter: RecordCounter):
        self._share = share
        self._split = share.split
        self._shuffle = shuffle
        self._counter = counter
        self._shard = (share.index, share.num_shards)
        self._epochs_read = 0
        self._lock = threading.RLock()
        self._cursor: _Cursor | None = None
        self._next_part: _NextPart | None = None
        self._orders: dict[tuple[int, int], list[int]] = {}
        counter.start_shard(self._split.name, self._shard)

    def _files(self, epoch) -> np.ndarray:
        chosen = np.array(self._share.files, np.int64)
        return np.append(self._permute(chosen, epoch), _END)

    def _parts(self, epoch, file) -> np.ndarray:
        if file == _END:
            self._end_epoch()
            return np.zeros([0], np.int64)
        parts = self._retry(lambda: self._share.parts(file), int(file))
        order = self._permute(np.array(parts, np.int64), epoch, file)
        self._orders = {(int(epoch), int(file)): order.tolist()}
        return order

    def _end_epoch(self) -> None:
        with self._lock:
            self._epochs_read += 1
        self._counter.log_epoch(self._split.name, self._shard, self._epochs_read)

    def _permute(self, items: np.ndarray, *key) -> np.ndarray:
        if not self._shuffle:
            return items
        return np.random.default_rng([int(k) for k in key]).permutation(items)

    def _has(self, epoch, file, part, step) -> np.bool_:
        cursor = self._cursor_at((int(epoch), int(file), int(part)), int(step))
        return np.bool_(cursor.batch is not None)

    def _texts(self, *position) -> np.ndarray:
        epoch, file, part, step = map(int, position)
        with self._lock:
            batch = self._cursor_at((epoch, file, part), step).batch or []
            if self._share.by_records:
                batch = batch[self._share.index :: self._share.num_shards]
        add = functools.partial(
            self._counter.add, split=self._split.name, shard=self._shard, batch=(file, part, step)
        )
        column = self._split.column.of_file(self._share.file(file).url)
        texts = screen(batch, column, self._split.max_chars, add)
        out = np.empty([len(texts)], object)
        out[:] = texts
        return self._permute(out, *position)

    def _retry(self, fn: Callable, file: int):
        return self._split.retry(fn, self._share.file(file))

    def _cursor_at(self, key: PartKey, step: int) -> _Cursor:
        """Return the cursor of a part, moved to a batch."""

        def move() -> _Cursor:
            cursor, self._cursor = self._cursor, None  # dropped if reading fails
            if cursor is None or cursor.key != key or cursor.step > step:
                cursor = self._open(key)
            while cursor.step < step and cursor.batch is not None:
                cursor.advance()
            self._cursor = cursor
            return cursor

        with self._lock:
            return self._retry(move, key[1])

    def _open(self, key: PartKey) -> _Cursor:
        """Return the beginning of a part, and start reading the next part from the network."""
        prefetched, self._next_part = self._next_part, None
        cursor = prefetched.wait() if prefetched and prefetched.key == key else None
        epoch, file, part = key
        order = self._orders.get((epoch, file), [])
        following = order[order.index(part) + 1 :] if part in order else []
        if following and self._share.file(file).remote:
            self._next_part = _NextPart((epoch, file, following[0]), self._begin)
        return cursor or self._begin(key)

    def _begin(self, key: PartKey) -> _Cursor:
        _, file, part = key
        return _Cursor(key, self._split.batches(self._share.file(file), part))


class _NextPart:
    """A part whose first batch is being read by a thread."""

    def __init__(self, key: PartKey, begin: Callable[[PartKey], _Cursor]):
        self.key = key
        self._cursor: _Cursor | None = None

        def read():
            try:
                cursor = begin(key)
                cursor.advance()
                self._cursor = cursor
            except Exception:  # the reader of the part meets the error again, and retries
                logging.info("reading ahead failed", exc_info=True)

        # A daemon, since a hanging request must not keep the process alive.
        self._thread = threading.Thread(target=tf_callbacks.guard(read, None), daemon=True)
        self._thread.start()

    def wait(self) -> _Cursor | None:
        """Return the part's cursor at its first batch, None if reading failed."""
        self._thread.join()
        return self._cursor
