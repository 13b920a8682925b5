"""A tf.data pipeline of a virtual shard: chunks of examples, and a position that tf.data saves."""

import ctypes
import re
from collections.abc import Iterator

import tensorflow as tf

from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.input_pipeline.packing import Arrays

_TABLE_END = (0xDB4775248B80FB57).to_bytes(8, "little")  # of the tables of LevelDB and TensorFlow
ENDINGS = (".data-00000-of-00001", ".index")  # files of a position, behind its path


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

        Raise DamagedCheckpoint for a file that is missing or cut off, and a tf.errors.OpError,
        AssertionError or KeyError for the position of another pipeline.
        """
        for ending in ENDINGS:
            check_file(path + ending)
        _check_index(path)
        try:
            tf.train.Checkpoint(iterator=self._iterator).read(path).assert_consumed()
        except (tf.errors.OpError, IndexError) as error:
            if not _is_damage(error):
                raise
            raise DamagedCheckpoint(
                f"{path} is cut off or damaged ({reason_of(error)}); restore another checkpoint."
            ) from error


def check_file(path: str) -> None:
    """Raise DamagedCheckpoint unless `path` is a file."""
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise DamagedCheckpoint(f"{path} is missing; restore another checkpoint.")


def _check_index(path: str) -> None:
    """Raise DamagedCheckpoint if the index of TensorFlow's checkpoint at `path` is none.

    TensorFlow's own errors do not tell a damaged index from another pipeline's.
    """
    with tf.io.gfile.GFile(f"{path}.index", "rb") as file:
        if not file.read().endswith(_TABLE_END):
            raise DamagedCheckpoint(f"{path}.index is cut off; restore another checkpoint.")


def _never_destroy(iterator: Iterator) -> None:
    """Keep an iterator alive even when the interpreter exits.

    Its destructor joins tf.data's threads while holding the GIL. That deadlocks if one of them is
    about to call into Python, which still happens while the interpreter clears its modules. With
    one reference too many the process exits without running the destructor.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(iterator))


def _is_damage(error: tf.errors.OpError | IndexError) -> bool:
    """Return whether files of a position are not as they were written, or not of one another."""
    damage = (tf.errors.DataLossError, tf.errors.OutOfRangeError, IndexError)
    return isinstance(error, damage) or "checksum" in str(error)


def reason_of(error: tf.errors.OpError | IndexError) -> str:
    """Return the message of an error in a pipeline, without its place in the graph.

    The class of a Python exception, with which it begins, is left out if it is UserError: those
    are sentences for the user.
    """
    first = str(getattr(error, "message", error)).strip().splitlines()[0]
    first = re.sub(r"Error in user-defined function passed to .* with iterator: \S+: ", "", first)
    first = re.sub(r"\{\{.*?\}\}|\[Op:.*|\[\[.*", "", first).strip(" .")
    return re.sub(r"^(User|Value)Error: ", "", first)[:400]
