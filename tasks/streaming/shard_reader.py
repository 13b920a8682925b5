"""Reading one shard of a corpus through tf.data so that its iterator state is the position.

The dataset is four nested ranges, each a function of what stands left of it:

    epoch (a random number, redrawn by every repetition) -> file -> part -> batch -> record

Python only answers "which files", "which parts", "is there a batch" and "its texts"; it keeps the
open file and the last batch for speed, and can answer for any place at any time. So a restored
iterator asks for the batch it stood in and goes on.
"""

import functools
import threading
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from tasks.documents import screen
from tasks.io import files, stream_cache
from tasks.io.retry import patiently
from tasks.streaming import tf_callbacks
from tasks.streaming.shard_assignment import Share

_END = -1  # the place behind an epoch's last file


class _Place:
    """Where one part is being read: the generator, and the batch it gave last."""

    def __init__(self, batches):
        self._batches = batches
        self.step = -1
        self.batch: list | None = []

    def advance(self) -> None:
        """Moves to the next batch; `batch` is None behind the last."""
        self.batch = next(self._batches, None)
        self.step += 1


class Reader:
    """One shard of one split of a source."""

    def __init__(self, source, split: str, shuffle: bool, index: int, num_shards: int):
        self._source = source
        self._shuffle = shuffle
        self._index = index
        self._num_shards = num_shards
        self._lock = threading.RLock()
        self._place: _Place | None = None
        self._place_key: tuple | None = None
        self._ahead: _Ahead | None = None
        self._runner = stream_cache.Runner() if stream_cache.current else None
        self._orders: dict[tuple, list[int]] = {}
        # What cannot be listed fails here, before the first step.
        self._share = Share.of(source, split, index, num_shards)
        self._split = split
        self._shard, self._epochs_read = (index, num_shards), 0
        source.counter.start_shard(split, self._shard)

    def dataset(self, seed: int | None) -> tf.data.Dataset:
        """Returns one epoch as {"text": string scalar}; see the top of this file."""

        def call(fn, at_end, dtype, shape, *args):
            fn = tf_callbacks.guard(fn, at_end)
            out = tf.numpy_function(fn, args, dtype, stateful=False)
            return tf.ensure_shape(out, shape)

        none = np.zeros([0], np.int64)
        # These are graphs already; looking through them for Python's `if` takes seconds a shard.
        as_is = tf.autograph.experimental.do_not_convert

        @as_is
        def of_epoch(epoch):
            chosen = call(self._files, none, tf.int64, [None], epoch)
            return tf.data.Dataset.from_tensor_slices(chosen).map(as_is(lambda f: (epoch, f)))

        @as_is
        def of_file(epoch, file):
            parts = call(self._parts, none, tf.int64, [None], epoch, file)
            return tf.data.Dataset.from_tensor_slices(parts).map(as_is(lambda p: (epoch, file, p)))

        @as_is
        def of_part(*place):
            steps = tf.data.Dataset.range(1 << 60)
            steps = steps.take_while(
                as_is(lambda s: call(self._has, np.bool_(False), tf.bool, [], *place, s))
            )
            return steps.map(as_is(lambda s: (*place, s)))

        @as_is
        def of_batch(*place):
            texts = call(self._texts, np.array([], object), tf.string, [None], *place)
            return tf.data.Dataset.from_tensor_slices({"text": texts})

        if self._shuffle:
            epochs = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).take(1)
        else:
            epochs = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
        return epochs.flat_map(of_epoch).flat_map(of_file).flat_map(of_part).flat_map(of_batch)

    def _files(self, epoch) -> np.ndarray:
        chosen = np.array(self._share.files, np.int64)
        return np.append(self._permute(chosen, epoch), _END)

    def _parts(self, epoch, file) -> np.ndarray:
        if file == _END:
            with self._lock:
                self._epochs_read += 1
                is_news = self._source.counter.end_epoch(
                    self._split, self._shard, self._epochs_read
                )
            if is_news:
                logging.info("%s", self._source.counter.sentence(self._split))
            return np.zeros([0], np.int64)
        parts = self._parts_of(int(file))
        order = self._permute(np.array(parts, np.int64), epoch, file)
        self._orders = {(int(epoch), int(file)): order.tolist()}
        return order

    def _permute(self, items: np.ndarray, *key) -> np.ndarray:
        if not self._shuffle:
            return items
        return np.random.default_rng([int(k) for k in key]).permutation(items)

    def _has(self, epoch, file, part, step) -> np.bool_:
        return np.bool_(self._at(int(epoch), int(file), int(part), int(step)).batch is not None)

    def _texts(self, epoch, file, part, step) -> np.ndarray:
        key = tuple(int(k) for k in (epoch, file, part, step))
        with self._lock:
            place = self._at(*key)
            batch = place.batch or []
            share = self._share
            if share.by_records:
                batch = batch[self._index :: self._num_shards]
        add = functools.partial(
            self._source.counter.add, split=self._split, shard=self._shard, batch=key[1:]
        )
        texts = screen(batch, self._source.column, self._source.max_chars, add)
        out = np.empty([len(texts)], object)
        out[:] = texts
        return self._permute(out, *key)

    def _at(self, epoch: int, file: int, part: int, step: int) -> _Place:
        """Returns the place that stands at a batch, going there if need be."""
        with self._lock:
            key = (epoch, file, part)

            def go():
                if self._place_key != key or self._place.step > step:
                    self._place_key = None
                    self._place = self._open(key)
                    self._place_key = key
                try:
                    while self._place.step < step and self._place.batch is not None:
                        self._place.advance()
                except BaseException:
                    self._place_key = None
                    raise
                return self._place

            return self._patiently(go, self._share.all[file])

    def _open(self, key: tuple[int, int, int]) -> _Place:
        """Returns the beginning of a part, and fetches that of the next over the network."""
        ahead, self._ahead = self._ahead, None
        place = ahead.place() if ahead and ahead.key == key else None
        epoch, file, part = key
        order = self._orders.get((epoch, file), [])
        behind = order[order.index(part) + 1 :] if part in order else []
        if behind and self._share.all[file].remote:
            self._ahead = _Ahead((epoch, file, behind[0]), self._begin)
        if self._runner:
            self._runner.move(self._coming(epoch, file, behind))
        return place or self._begin(key)

    def _coming(self, epoch: int, file: int, parts: list[int]) -> Iterator[stream_cache.Piece]:
        """Yields what this epoch will read: these parts of a file, then the files behind it."""
        order = self._files(epoch).tolist()[:-1]
        for which in order[order.index(file) :]:
            if which != file:
                parts = self._permute(np.array(self._parts_of(which), np.int64), epoch, which)
            if self._share.all[which].remote:
                for part in parts:
                    yield self._piece(epoch, which, int(part))

    def _piece(self, epoch: int, file: int, part: int) -> stream_cache.Piece:
        which = self._share.all[file]
        layout = self._share.layout(which)
        length = self._patiently(lambda: layout.length(which, part), which)
        fetch = functools.partial(layout.fetch, which, part)
        return stream_cache.Piece(
            (epoch, file, part), length, functools.partial(self._patiently, fetch, which)
        )

    def _parts_of(self, file: int) -> list[int]:
        return self._patiently(lambda: self._share.parts(file), self._share.all[file])

    def _patiently(self, fn: Callable, file: files.File):
        return patiently(fn, f"reading {file.url}", self._source.patience)

    def _begin(self, key: tuple[int, int, int]) -> _Place:
        _, file, part = key
        which = self._share.all[file]
        return _Place(self._source.batches(which, part, self._share.layout(which)))


class _Ahead:
    """The beginning of a part, being read by a thread of its own."""

    def __init__(self, key: tuple[int, int, int], begin: Callable[[tuple], _Place]):
        self.key = key
        self._found: _Place | None = None

        def read():
            try:
                place = begin(key)
                place.advance()
                self._found = place
            except Exception:  # whoever needs the part meets the error again, and waits it out
                logging.info("reading ahead failed", exc_info=True)

        # A daemon, since a request that hangs must not keep the process alive.
        self._thread = threading.Thread(target=tf_callbacks.guard(read, None), daemon=True)
        self._thread.start()

    def place(self) -> _Place | None:
        """Returns the part at its first batch, None if it could not be read."""
        self._thread.join()
        return self._found
