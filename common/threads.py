"""Threads that can be abandoned: the process exits without waiting for what they do.

    future = in_thread(read, "the corpus")     # one call
    thread = DaemonThread("rows")              # one call after another
    future = thread.submit(read)
    thread.end()

An executor's threads would keep the process alive while a read waits for a network.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThread:
    """A thread that makes one call after another.

    A new thread for each call would wait until it is scheduled, which is long on a busy machine.
    """

    def __init__(self, name: str):
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._calls,), daemon=True, name=name).start()

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
        del submitted, call, future  # they may hold much memory until the next call


def in_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Make one call in a thread, and return its future."""
    thread = DaemonThread(name)
    future = thread.submit(call)
    thread.end()
    return future
