"""One shard of a split whose records are all permuted, as a tf.data pipeline.

The records of a split are divided among its shards by a fixed permutation. In every epoch each
shard has its records in another order, which is a function of the epoch's random number. The
dataset is three nested ranges, each a function of those to its left:

    epoch -> block of positions -> record

So tf.data's iterator state is the position: an epoch and a place in its order. An epoch is known by
its number. A dataset of a single epoch, which others may repeat, does not know its number, so it
draws a random one, as often as it is repeated.
"""

import numpy as np
import tensorflow as tf

from tasks.corpus import tf_callbacks
from tasks.corpus.counts import RecordCounter
from tasks.corpus.permutation import permute
from tasks.corpus.reader import random_epoch
from tasks.corpus.record_store import RecordStore

BLOCK_RECORDS, BLOCK_BYTES = 512, 1 << 20  # the most of a block, whose texts are read at once
_SHARDS_KEY = (0, 0, 0, 1)  # of the permutation that divides the records among shards


def shard_dataset(
    reader: "PermutedReader", seed: int | None, epochs: int | None = 1
) -> tf.data.Dataset:
    """Return some epochs of a shard, None for endlessly many, as {"text": string scalar}.

    Args:
      reader: of the shard.
      seed: of the random number of an epoch; None draws one.
      epochs: how many.
    """
    as_is = tf.autograph.experimental.do_not_convert  # these functions are graphs already
    call = tf_callbacks.call

    @as_is
    def of_epoch(epoch):
        count = call(reader._blocks, np.int64(0), [])
        return tf.data.Dataset.range(count).map(as_is(lambda block: (epoch, block)))

    @as_is
    def of_block(epoch, block):
        texts = call(reader._texts, np.array([], object), [None], epoch, block)
        return tf.data.Dataset.from_tensor_slices({"text": texts})

    drawn = random_epoch(seed) if epochs == 1 else tf.data.Dataset.range(epochs or 1 << 60)
    return drawn.flat_map(of_epoch).flat_map(of_block)


class PermutedReader:
    """Reads one shard of the records in a store; `shard` is (index, number of shards)."""

    def __init__(
        self,
        store: RecordStore,
        split: str,
        shard: tuple[int, int],
        counter: RecordCounter,
        seed: int | None,
        epochs: int | None = 1,
    ):
        self._store, self._split, self._shard, self._counter = store, split, shard, counter
        self._seed, self._is_endless = seed or 0, epochs is None
        self._epochs_read = self._empty_epochs = 0
        self._texts_read = 0  # of the epoch so far
        counter.start_shard(split, shard)

    @property
    def _size(self) -> int:
        """The number of this shard's records."""
        index, num_shards = self._shard
        return len(range(index, len(self._store), num_shards))

    @property
    def _block(self) -> int:
        """The number of records in a block."""
        return min(BLOCK_RECORDS, max(int(BLOCK_BYTES / self._store.mean_bytes), 1))

    def _blocks(self) -> np.int64:
        return np.int64(-(-self._size // self._block) + 1)  # the last one ends the epoch

    def numbers(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Return the numbers of the records at positions `start`..`stop`-1 of an epoch."""
        (index, num_shards), size = self._shard, self._size
        positions = np.arange(start, min(stop, size))
        if not len(positions):
            return positions
        chosen = index + num_shards * permute(positions, size, (self._seed, epoch, index))
        return permute(chosen, len(self._store), _SHARDS_KEY)

    def _texts(self, epoch, block) -> np.ndarray:
        start = int(block) * self._block
        numbers = self.numbers(int(epoch), start, start + self._block)
        if not len(numbers):
            self._epochs_read += 1
            self._counter.log_epoch(self._split, self._shard, self._epochs_read)
            self._check_texts()
            return np.array([], object)
        texts, codes = self._store.read(numbers)
        labels = self._store.labels
        self._counter.add_records(self._split, codes, numbers, len(self._store), labels)
        self._texts_read += len(texts)
        out = np.empty([len(texts)], object)
        out[:] = texts
        return out

    def _check_texts(self) -> None:
        """Raise ValueError where an endless dataset would look for a text without end."""
        self._empty_epochs = 0 if self._texts_read else self._empty_epochs + 1
        self._texts_read = 0
        # One alone may be the end of an epoch at which the run resumed.
        if self._is_endless and self._empty_epochs > 1:
            index, num_shards = self._shard
            raise ValueError(
                f"shard {index} of {num_shards} of split {self._split!r} has no text: the corpus "
                "is too small for so many shards, or its documents are skipped; set "
                "DatasetConfig.mixture_or_task_name to a larger one, or a smaller BATCH_SIZE"
            )
