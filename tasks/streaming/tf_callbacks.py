"""Calls from tf.data's threads into Python, and the end of the process amid them.

    texts = tf.numpy_function(calls.guard(read, at_end=nothing), [place], tf.string)

tf.data runs ahead of whoever reads it. Were the interpreter taken down under such a call, the
process would hang or abort, as it does with `from_generator`. So at exit every guarded call
answers that there is no more, and the interpreter waits until the calls have ceased.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Callable

from absl import logging

from tasks.io.retry import closing
from tasks.record_counts import RecordCounter

_lock = threading.Lock()
_running = 0
_last = 0.0
_counters: "weakref.WeakSet[RecordCounter]" = weakref.WeakSet()


def guard(fn: Callable, at_end=None) -> Callable:
    """Returns `fn`, answering `at_end` once the process is closing."""

    def guarded(*args):
        global _running, _last
        with _lock:
            _running += 1
        try:
            return at_end if closing.is_set() else fn(*args)
        finally:
            with _lock:
                _running -= 1
                _last = time.monotonic()

    return guarded


def settle(quiet_s: float = 0.1, limit_s: float = 5.0) -> None:
    """Lets every dataset run dry: waits until no call has come for `quiet_s`."""
    closing.set()
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
    settle()
    for counter in _counters:
        for split in counter.splits():
            logging.info("%s", counter.sentence(split))
