"""One virtual shard of a stream: its pipeline, the rows prepared ahead, its position.

A thread of its own reads examples and puts them into rows, one take ahead. A position is tf.data's
own iterator state plus the rows that were made but not taken, so it is exactly after the last row
taken.
"""

from collections.abc import Sequence
from concurrent.futures import Future, wait

import tensorflow as tf

from common.errors import Failure, UserError
from common.threads import DaemonThread
from t5x.input_pipeline import pipeline
from t5x.input_pipeline.mixed import MixedExamples, read_arrays, write_arrays
from t5x.input_pipeline.packing import Arrays, Rows

_ROWS = ".rows.npz"
ENDINGS = (*pipeline.ENDINGS, _ROWS)  # files of a position of one pipeline, appended to its path


class Shard:
    """One virtual shard, see the module docstring; `size` is the number of rows per take."""

    def __init__(self, examples: MixedExamples, rows: Rows, size: int):
        self._examples, self._rows, self._size = examples, rows, size
        self._taken = 0  # takes since the mixture began, which are steps
        self._thread = DaemonThread("rows")
        self._next: Future[Arrays | None] | None = None  # the rows that the thread makes
        self._closed = False

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
            examples = self._examples.take(self._taken, self._size - self._rows.complete)
            if examples is None:
                self._rows.end()
                break
            self._rows.add(examples)
        return self._rows.first(self._size) if self._rows.complete >= self._size else None

    def take(self) -> Arrays | None:
        """Return the next rows, None if too few are left, or raise UserError or Failure."""
        self.start()
        assert self._next
        wait([self._next])  # if an interrupt cuts this short, the rows can be taken later
        future, self._next = self._next, None
        try:
            rows = future.result()
        except tf.errors.OpError as error:
            raise _reading_failed(error) from error
        if rows is not None:
            self._rows.drop(self._size)
            self._taken += 1
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

        After an error of the next take there is no position, since it is not known what was lost:
        raise the error here, and again at the take.
        """
        self.wait()
        if error := self._error():
            raise error
        self._examples.write(path)
        write_arrays(path + _ROWS, self._rows.state())

    def begin_read(self, path: str, held: Sequence[str] | None = None, taken: int = 0) -> None:
        """Start moving to the position at `path`, after `taken` takes; `end_read` must follow.

        `held` are the names of its pipelines, by default those of this shard.
        """
        self.wait()
        held = self._examples.names if held is None else held
        self._next = self._thread.submit(lambda: self._read(path, held, taken))

    def end_read(self) -> BaseException | None:
        """Wait until it is there; return the error if it cannot be.

        The error is a tf.errors.OpError, AssertionError or KeyError if another pipeline saved it.
        """
        self.wait()
        error, self._next = self._error(), None
        return error

    def _read(self, path: str, held: Sequence[str], taken: int) -> None:
        self._examples.read(path, held)
        self._rows.load(read_arrays(path + _ROWS))
        self._taken = taken

    def close(self) -> None:
        """Make no more rows; the pipeline stays idle until the process ends."""
        self._closed = True
        self._thread.end()


def _reading_failed(error: tf.errors.OpError) -> UserError | Failure:
    kind = UserError if isinstance(error, tf.errors.InvalidArgumentError) else Failure
    return kind(
        "reading the data",
        why=f"failed: {pipeline.reason_of(error)}",
        to_set="once that is fixed, repeat the command, which resumes from the last checkpoint",
    )
