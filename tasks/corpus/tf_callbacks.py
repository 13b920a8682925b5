"""Python callbacks from tf.data threads that are safe at interpreter shutdown.

    texts = tf.numpy_function(tf_callbacks.guard(read, at_exit=nothing), [key], tf.string)

tf.data reads ahead in its own threads. If the interpreter shuts down while such a thread is in a
Python callback, the process hangs or aborts, as it does with `from_generator`. So at exit every
guarded callback answers that the data has ended, and the interpreter waits until no more come.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from tasks.corpus.counts import RecordCounter
from tasks.corpus.retry import shutting_down

_lock = threading.Lock()
_running = 0
_last = 0.0
_counters: "weakref.WeakSet[RecordCounter]" = weakref.WeakSet()


def guard(fn: Callable, at_exit=None) -> Callable:
    """Return `fn`, which returns `at_exit` once the process is shutting down."""

    def guarded(*args):
        global _running, _last
        with _lock:
            _running += 1
        try:
            return at_exit if shutting_down.is_set() else fn(*args)
        finally:
            with _lock:
                _running -= 1
                _last = time.monotonic()

    return guarded


def call(fn: Callable, at_exit: np.ndarray | np.generic, shape: list, *args) -> tf.Tensor:
    """Return the result of a Python function of tensors in a graph.

    Args:
      fn: a function of numpy values, without state.
      at_exit: what it returns once the process is shutting down; gives the dtype (object: string).
      shape: of the result.
      *args: tensors.
    """
    dtype = tf.string if at_exit.dtype == object else tf.as_dtype(at_exit.dtype)
    out = tf.numpy_function(guard(fn, at_exit), args, dtype, stateful=False)
    return tf.ensure_shape(out, shape)


def vectors(fn: Callable, arguments: list[tf.Tensor], kinds: str) -> list[tf.Tensor]:
    """Return what a function of numpy values returns, vectors of int32 ("i") or int64 ("l")."""
    dtypes = [{"i": tf.int32, "l": tf.int64}[kind] for kind in kinds]
    nothing = tuple(np.zeros([0], dtype.as_numpy_dtype) for dtype in dtypes)
    found = tf.numpy_function(guard(fn, nothing), arguments, dtypes, stateful=False)
    return [tf.ensure_shape(values, [None]) for values in found]


def drain(quiet_s: float = 0.1, limit_s: float = 5.0) -> None:
    """End every dataset: wait until no callback has come for `quiet_s`."""
    shutting_down.set()
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with _lock:
            if not _running and time.monotonic() - _last > quiet_s:
                return
        time.sleep(0.01)


def report_at_exit(counter: RecordCounter) -> None:
    """Log `counter` when the process ends, if anything was read."""
    _counters.add(counter)


@atexit.register
def _close() -> None:
    drain()
    for counter in _counters:
        for split in counter.splits():
            logging.info("%s", counter.sentence(split))
