"""A tf.data pipeline of a virtual shard: chunks of examples, and a position that tf.data saves."""

import ctypes
import re
from collections.abc import Iterator

import tensorflow as tf

from t5x.input_pipeline.packing import Arrays

ENDINGS = (".data-00000-of-00001", ".index")  # files of a position, appended to its path


class Pipeline:
    """The chunks of `dataset`, which has examples as `Rows.examples` returns them.

    Nothing is read before the first chunk. It belongs to one thread: TensorFlow optimizes the graph
    of an iterator for 0.1 s.
    """

    def __init__(self, dataset: tf.data.Dataset):
        options = tf.data.Options()
        options.deterministic = True
        # Starting a step costs more than its work on one example, so neighbours are fused.
        options.experimental_optimization.map_fusion = True
        # Threads that all shards share would pass each small step from one to another.
        options.threading.private_threadpool_size = 1
        options.threading.max_intra_op_parallelism = 1
        # A source is a function of the position, so it has no state that must be saved.
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        self._dataset = dataset.with_options(options)
        self._opened: Iterator | None = None

    @property
    def is_open(self) -> bool:
        """Whether anything was read, so that there is a position."""
        return self._opened is not None

    @property
    def _iterator(self) -> Iterator:
        if self._opened is None:
            self._opened = iter(self._dataset)
            _never_destroy(self._opened)
        return self._opened

    def next(self) -> Arrays | None:
        """Return the next examples, [n, …] of each feature, None at the end."""
        examples = next(self._iterator, None)
        return None if examples is None else {k: v.numpy() for k, v in examples.items()}

    def begin_again(self) -> None:
        """Move to the beginning, where nothing is open."""
        self._opened = None

    def write(self, path: str) -> None:
        """Write the position to `path` plus each of `ENDINGS`."""
        tf.train.Checkpoint(iterator=self._iterator).write(path)

    def read(self, path: str) -> None:
        """Move to the position at `path`.

        Its files are as saved, see `layout.check_checksums`. Raise a tf.errors.OpError,
        AssertionError or KeyError for the position of another pipeline.
        """
        tf.train.Checkpoint(iterator=self._iterator).read(path).assert_consumed()


def _never_destroy(iterator: Iterator) -> None:
    """Keep an iterator alive even when the interpreter exits.

    Its destructor joins tf.data's threads while holding the GIL. That deadlocks if one of them is
    about to call into Python, which still happens while the interpreter clears its modules. With
    one reference too many the process exits without running the destructor.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(iterator))


def reason_of(error: tf.errors.OpError) -> str:
    """Return the message of an error in a pipeline, without its place in the graph.

    The class of a Python exception, with which it begins, is left out if it is UserError: those
    are sentences for the user.
    """
    first = str(error.message).strip().splitlines()[0]
    first = re.sub(r"Error in user-defined function passed to .* with iterator: \S+: ", "", first)
    first = re.sub(r"\{\{.*?\}\}|\[Op:.*|\[\[.*", "", first).strip(" .")
    return re.sub(r"^(User|Value)Error: ", "", first)[:400]
