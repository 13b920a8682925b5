"""tf.data maps that run in the calling thread instead of a thread pool.

TensorFlow schedules every call of a mapped function, and most operations in it, on a thread pool
and waits for a thread to take it. For a few operations on a few hundred ids this costs many times
the operations themselves. Only a batch of documents is worth a thread.
"""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.data.ops import map_op


def map_each(dataset: tf.data.Dataset, fn: Callable) -> tf.data.Dataset:
    """Return `dataset.map(fn)`, computed one element at a time in the thread that asks for it.

    `fn` must have no branches or loops that depend on values.
    """
    # Dataset.map makes the same object, but does not expose use_inter_op_parallelism.
    return map_op._MapDataset(dataset, fn, force_synchronous=True, use_inter_op_parallelism=False)
