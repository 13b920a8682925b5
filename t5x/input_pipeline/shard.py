"""One virtual shard of a stream: its pipeline, the rows prepared ahead, its position.

A thread of its own reads examples and puts them into rows, one take ahead. A position is tf.data's
own iterator state plus the rows that were made but not taken, so it is exactly behind the last row
taken.
"""

import ctypes
import functools
import io
import queue
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import tensorflow as tf

from common.errors import Failure, UserError
from t5x.checkpointing.lazy_array import DamagedCheckpoint, parsing
from t5x.input_pipeline.packing import Arrays, Rows

_TABLE_END = (0xDB4775248B80FB57).to_bytes(8, "little")  # of the tables of LevelDB and TensorFlow
# Files of a position, behind its path.
ENDINGS = (".data-00000-of-00001", ".index", ".rows.npz")


class Shard:
    """One virtual shard, see the module docstring; `size` is the number of rows per take.

    `dataset` has examples as `rows.examples` returns them.
    """

    def __init__(self, dataset: tf.data.Dataset, rows: Rows, size: int):
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
        self._rows, self._size = rows, size
        self._thread = _Thread()
        self._next: Future[Arrays | None] | None = None  # what the thread makes
        self._closed = False

    @functools.cached_property
    def _iterator(self) -> Iterator:
        """The iterator, made in the thread: TensorFlow optimizes its graph for 0.1 s."""
        iterator = iter(self._dataset)
        _never_destroy(iterator)
        return iterator

    @property
    def nothing(self) -> Arrays:
        """A take of no rows."""
        return self._rows.first(0)

    @property
    def truncated(self) -> int:
        """Number of examples that were cut to their lengths since the start."""
        return self._rows.truncated

    def start(self) -> None:
        """Start the thread on the rows of the next take, unless it already is."""
        if self._next is None:
            self._next = self._thread.submit(self._make)

    def _make(self) -> Arrays | None:
        while self._rows.complete < self._size and not self._closed:
            examples = next(self._iterator, None)
            if examples is None:
                self._rows.end()
                break
            self._rows.add({k: v.numpy() for k, v in examples.items()})
        return self._rows.first(self._size) if self._rows.complete >= self._size else None

    def take(self) -> Arrays | None:
        """Return the next rows, None if too few are left, or raise UserError or Failure."""
        self.start()
        assert self._next
        wait([self._next])  # if an interrupt cuts this short, the rows can be taken later
        made, self._next = self._next, None
        try:
            rows = made.result()
        except tf.errors.OpError as error:
            raise _reading_failed(error) from error
        if rows is not None:
            self._rows.drop(self._size)
            self.start()
        return rows

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the rows of the next take, at most `seconds`; return whether that is over."""
        return self._next is None or bool(wait([self._next], seconds).done)

    def check(self) -> None:
        """Raise the error of the next take, if it has one already, as `take` does."""
        error = self._error()
        if isinstance(error, tf.errors.OpError):
            raise _reading_failed(error) from error
        if error:
            raise error

    def _error(self) -> BaseException | None:
        return self._next.exception() if self._next and self._next.done() else None

    def write(self, path: str) -> None:
        """Write the position to `path` plus each of `ENDINGS`.

        There is none after an error of the next take, since what it has lost is not known: raise it
        then, and once more at the take.
        """
        self.wait()
        if error := self._error():
            raise error
        tf.train.Checkpoint(iterator=self._iterator).write(path)
        content = io.BytesIO()
        np.savez(content, **self._rows.state())  # type: ignore[arg-type]  # taken for allow_pickle
        with tf.io.gfile.GFile(f"{path}.rows.npz", "wb") as file:
            file.write(content.getvalue())

    def begin_read(self, path: str) -> None:
        """Start moving to the position at `path`; `end_read` must follow."""
        self.wait()
        self._next = self._thread.submit(lambda: self._read(path))

    def end_read(self) -> BaseException | None:
        """Wait until it is there; return the error if it cannot be.

        That is a DamagedCheckpoint for a file that is missing or cut off, and a tf.errors.OpError,
        AssertionError or KeyError for the position of another pipeline.
        """
        self.wait()
        error, self._next = self._error(), None
        return error

    def _read(self, path: str) -> None:
        for ending in ENDINGS:
            if not tf.io.gfile.exists(path + ending) or tf.io.gfile.isdir(path + ending):
                raise DamagedCheckpoint(f"{path}{ending} is missing; restore another checkpoint.")
        _check_index(path)
        try:
            tf.train.Checkpoint(iterator=self._iterator).read(path).assert_consumed()
        except (tf.errors.OpError, IndexError) as error:
            if not _is_damage(error):
                raise
            raise DamagedCheckpoint(
                f"{path} is cut off or damaged ({_reason(error)}); restore another checkpoint."
            ) from error
        with parsing(f"{path}.rows.npz"):
            with tf.io.gfile.GFile(f"{path}.rows.npz", "rb") as file:
                with np.load(io.BytesIO(file.read())) as arrays:
                    state = dict(arrays)
        self._rows.load(state)

    def close(self) -> None:
        """Make no more rows; the pipeline stays idle until the process ends."""
        self._closed = True
        self._thread.end()


class _Thread:
    """A daemon thread that makes one call after another.

    An executor's thread would keep the process from exiting while a read waits for a network. A
    thread for each call would make the loop wait until it runs, which is long on a busy machine.
    """

    def __init__(self):
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._calls,), daemon=True, name="rows").start()

    def submit(self, call: Callable[[], Any]) -> Future:
        """Return the future of the call, which begins after those before it."""
        future: Future = Future()
        self._calls.put((call, future))
        return future

    def end(self) -> None:
        """Let the thread end after the calls that were submitted."""
        self._calls.put(None)


def _work(calls: queue.SimpleQueue) -> None:
    while submitted := calls.get():
        call, future = submitted
        try:
            future.set_result(call())
        except BaseException as error:  # raised again by `future.result()`
            future.set_exception(error)
        del submitted, call, future  # they hold the shard


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


def _reading_failed(error: tf.errors.OpError) -> UserError | Failure:
    kind = UserError if isinstance(error, tf.errors.InvalidArgumentError) else Failure
    return kind(
        f"Reading the data failed: {_reason(error)}. Once that is fixed, the same command resumes "
        "from the last checkpoint."
    )


def _is_damage(error: tf.errors.OpError | IndexError) -> bool:
    """Return whether files of a position are not as they were written, or not of one another."""
    damage = (tf.errors.DataLossError, tf.errors.OutOfRangeError, IndexError)
    return isinstance(error, damage) or "checksum" in str(error)


def _reason(error: tf.errors.OpError | IndexError) -> str:
    """Return the message of an error in a pipeline, without its place in the graph.

    The class of a Python exception, with which it begins, is left out if it is UserError: those
    are sentences for the user.
    """
    first = str(getattr(error, "message", error)).strip().splitlines()[0]
    first = re.sub(r"Error in user-defined function passed to .* with iterator: \S+: ", "", first)
    first = re.sub(r"\{\{.*?\}\}|\[Op:.*|\[\[.*", "", first).strip(" .")
    return re.sub(r"^(User|Value)Error: ", "", first)[:400]
