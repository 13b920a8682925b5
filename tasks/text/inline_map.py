"""Small functions of a tf.data column, run where they are called and not by a pool of threads.

    examples = inline.map_each(dataset, fn)       # instead of dataset.map(fn)

TensorFlow hands every call of a mapped function, and most operations in it, to a pool of threads
and waits until one of them takes it up. For a few operations on a few hundred ids this costs many
times the operations. What is worth a thread is a batch of documents.
"""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.data.ops import map_op


def map_each(dataset: tf.data.Dataset, fn: Callable) -> tf.data.Dataset:
    """As `dataset.map(fn)`, one element after the other in the thread that asks for them.

    Args:
      dataset: any elements.
      fn: of one element; has no branches or loops that depend on values.
    """
    # What Dataset.map makes of it, but for a setting that it does not offer.
    return map_op._MapDataset(dataset, fn, force_synchronous=True, use_inter_op_parallelism=False)
