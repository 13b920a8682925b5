"""Python callbacks from tf.data threads that are safe at interpreter shutdown.

    texts = tf_callbacks.call(read, tf.TensorSpec([None], tf.string), key)

tf.data reads ahead in its own threads. If the interpreter shuts down while such a thread is in a
Python callback, the process hangs or aborts, as it does with `from_generator`. So at exit every
guarded callback answers that the data has ended, and the interpreter waits until no more come.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tasks.corpus.records.counts import RecordCounter
from tasks.corpus.storage.retry import shutting_down

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


def call(fn: Callable, result: tf.TensorSpec | Sequence[tf.TensorSpec], *args: tf.Tensor) -> Any:
    """Return the result of a Python function of numpy values, without state, in a graph.

    `result` is one spec, or several for a function that returns a tuple. Once the process is
    shutting down, the function is not called and an unknown dimension is 0.
    """
    specs: list[tf.TensorSpec] = tf.nest.flatten(result)
    nothing = [_nothing(spec) for spec in specs]
    is_one = isinstance(result, tf.TensorSpec)
    answer = guard(fn, nothing[0] if is_one else nothing)
    dtypes = [spec.dtype for spec in specs]
    # Eagerly, a list of one tensor comes back as the tensor.
    tensors = tf.nest.flatten(tf.numpy_function(answer, args, dtypes, stateful=False))
    results = [
        tf.ensure_shape(tensor, spec.shape) for tensor, spec in zip(tensors, specs, strict=True)
    ]
    return results[0] if is_one else results


def _nothing(spec: tf.TensorSpec) -> np.ndarray:
    """Return an array of the spec with as few elements as it allows."""
    shape = [size or 0 for size in spec.shape]
    if spec.dtype == tf.string:
        return np.full(shape, b"", object)
    return np.zeros(shape, spec.dtype.as_numpy_dtype)


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
