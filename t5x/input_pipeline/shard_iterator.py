"""One virtual shard of a stream: its pipeline, the rows made of it ahead of time, its position.

    shard = Shard(dataset, Rows(lengths, pack=True), size=16)    # dataset: batches of examples
    shard.begin()                # a thread makes the next 16 rows
    rows = shard.take()          # {"encoder_input_tokens": int32 [16, I], …}; the thread continues
    shard.write("…/train_ds-000-of-008"); shard.read("…/train_ds-000-of-008")

The position is that behind the rows taken: what has been made ahead is saved along.
"""

import ctypes
import io
import queue
import re
import threading
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from t5x.input_pipeline.packing import Arrays, ConvertedRows, Rows

TRUNCATED = "truncated"  # feature of examples: bool [n], whether something was cut off
# Files of a position, behind its path.
ENDINGS = (".data-00000-of-00001", ".index", ".rows.npz")


class Shard:
    """One virtual shard; see the top of this file.

    Args:
      dataset: examples for `rows.add`, in batches.
      rows: what they are laid into, empty.
      size: rows a take.
    """

    def __init__(self, dataset: tf.data.Dataset, rows: Rows | ConvertedRows, size: int):
        options = tf.data.Options()
        options.deterministic = True
        # Steps of one example each cost more to start than to do: neighbours become one.
        options.experimental_optimization.map_fusion = True
        # A source is stateless but for what it counts, so its state need not be saved.
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        self._iterator = iter(dataset.with_options(options))
        _never_destroy(self._iterator)
        self._rows, self._size = rows, size
        self.truncated = 0  # examples that were cut
        self._ahead = _Ahead()
        self._closed = False

    @property
    def nothing(self) -> Arrays:
        """What a take gives, of no rows."""
        return self._rows.first(0)

    def begin(self) -> None:
        """Lets the thread make the rows of the next take, if it does not yet."""
        self._ahead.begin(self._make)

    def _make(self) -> Arrays | None:
        while self._rows.complete < self._size and not self._closed:
            examples = next(self._iterator, None)
            if examples is None:
                self._rows.end()
                break
            arrays = {k: v.numpy() for k, v in examples.items()}
            self.truncated += int(np.sum(arrays.pop(TRUNCATED, 0)))
            self._rows.add(arrays)
        return self._rows.first(self._size) if self._rows.complete >= self._size else None

    def take(self) -> Arrays | None:
        """Returns the next rows, None if there are not as many any more; begins those behind them.

        Raises:
          ValueError: a document, or what was asked of it, is not as it must be.
          RuntimeError: reading failed for good.
        """
        self.begin()
        try:
            rows = self._ahead.wait()
        except tf.errors.OpError as error:
            kind = ValueError if isinstance(error, tf.errors.InvalidArgumentError) else RuntimeError
            raise kind(
                f"Reading the data failed: {_reason(error)}. Once that is fixed, the same command "
                "resumes from the last checkpoint."
            ) from error
        if rows is not None:
            self._rows.drop(self._size)
            self.begin()
        return rows

    def _settle(self) -> None:
        """Lets the thread end what it does. Its rows are laid again at the next take."""
        if self._ahead.begun:
            self._ahead.wait()

    def write(self, path: str) -> None:
        """Writes the position to `path` and the endings of `ENDINGS`."""
        self._settle()
        tf.train.Checkpoint(iterator=self._iterator).write(path)
        content = io.BytesIO()
        np.savez(content, **self._rows.state())
        with tf.io.gfile.GFile(f"{path}.rows.npz", "wb") as file:
            file.write(content.getvalue())

    def read(self, path: str) -> None:
        """Goes to the position at `path`.

        Raises:
          tf.errors.OpError, AssertionError: it is that of another pipeline, or incomplete.
        """
        self._settle()
        tf.train.Checkpoint(iterator=self._iterator).read(path).assert_consumed()
        with tf.io.gfile.GFile(f"{path}.rows.npz", "rb") as file:
            with np.load(io.BytesIO(file.read())) as state:
                self._rows.load(dict(state))

    def close(self) -> None:
        """Makes no more rows; the pipeline rests until the process ends."""
        self._closed = True


def _never_destroy(iterator: Iterator) -> None:
    """Lets nothing destroy an iterator, not even the end of the interpreter.

    Destroying one joins its threads while Python's lock is held: for good, if one of them is about
    to call into Python, as it may still be when the interpreter clears its modules. The process's
    end takes the threads along without asking them.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(iterator))


def _reason(error: tf.errors.OpError) -> str:
    """What was raised inside of a pipeline, without where in its graph."""
    first = error.message.strip().splitlines()[0]
    return re.sub(r"\{\{.*?\}\}|\[Op:.*|\[\[.*", "", first).strip(" .")[:400]


class _Ahead:
    """A thread that does one thing after another, and is asked for each.

    A daemon, since a read that waits for a network must not keep the process from ending. One for
    all takes: to start a thread is to wait until it runs, which takes long where many do.
    """

    def __init__(self):
        self.begun = False  # something that has not been waited for
        self._asked, self._found = queue.SimpleQueue(), queue.SimpleQueue()
        queues = self._asked, self._found
        threading.Thread(target=_answer, args=queues, daemon=True).start()
        weakref.finalize(self, self._asked.put, None).atexit = False

    def begin(self, fn: Callable[[], Arrays | None]) -> None:
        """Lets the thread find what `fn` returns, if nothing is begun."""
        if not self.begun:
            self.begun = True
            self._asked.put(fn)

    def wait(self) -> Arrays | None:
        """Returns it, or raises what `fn` has raised."""
        found, error = self._found.get()
        self.begun = False  # and not if the waiting was interrupted
        if error is not None:
            raise error
        return found


def _answer(asked: queue.SimpleQueue, found: queue.SimpleQueue) -> None:
    while (fn := asked.get()) is not None:
        try:
            answer = fn(), None
        except BaseException as error:  # raised again where it is waited for
            answer = None, error
        del fn  # of a shard that else would live as long as its thread
        found.put(answer)
        del answer
