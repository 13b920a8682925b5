"""Run the two phases of a save in the background.

    save = AsyncSave("checkpoint_10", copy_the_arrays, write_them, timeout=1200)
    save.wait_for_copy()   # returns once `copy_the_arrays` has, raises what it raised
    ...
    if save.is_over:       # `wait` would not block
        save.wait()        # raises what a phase has raised, TimeoutError after the deadline

Both phases share one deadline.
"""

import concurrent.futures
import threading
import time
from collections.abc import Callable

from absl import logging

from common.threads import in_thread

# Orbax's own timeout covers the commit alone, and counts by the wall clock. Storage that hangs
# before it would block training, so both phases run in threads that can be abandoned.


class AsyncSave:
    """Two phases in sequence.

    `abandoned` is whether a save of this process was given up while it hung. Threads that it has
    started may keep the interpreter from exiting.

    Args:
      name: for messages.
      copy: the first phase.
      write: the second.
      timeout: seconds until the save has failed. A quarter of it is reported.
    """

    abandoned = False

    def __init__(
        self, name: str, copy: Callable[[], None], write: Callable[[], None], timeout: float
    ):
        self.name, self.timeout = name, timeout
        self._deadline = time.monotonic() + timeout
        self._timer = threading.Timer(timeout / 4, self._report)
        self._timer.daemon = True
        self._timer.start()

        def write_copied() -> None:
            self._copied.result()
            write()

        self._copied = in_thread(copy, name)
        self._written = in_thread(write_copied, name)
        self._written.add_done_callback(lambda _: self._timer.cancel())

    @property
    def is_over(self) -> bool:
        """Whether it has succeeded, failed, or passed its deadline."""
        return self._written.done() or time.monotonic() >= self._deadline

    @property
    def has_copied(self) -> bool:
        """Whether the first phase has succeeded."""
        return self._copied.done() and self._copied.exception() is None

    def wait_for_copy(self) -> None:
        """Wait for the first phase; raises as `wait`."""
        self._wait(self._copied)

    def wait(self) -> None:
        """Wait for both phases; raise what one has raised, or TimeoutError after the deadline."""
        self._wait(self._written)

    def shorten_deadline(self, seconds: float) -> None:
        """Move the deadline to at most this many seconds from now."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _wait(self, future: concurrent.futures.Future[None]) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        if not concurrent.futures.wait([future], left).done:
            self._timer.cancel()
            AsyncSave.abandoned = True
            raise TimeoutError(
                f"it hangs and is given up (SaveCheckpointConfig.timeout is {self.timeout:,} s)"
            )
        future.result()

    def _report(self) -> None:
        logging.warning(
            "%s is not complete after %.0f s; it counts as failed after %s s "
            "(SaveCheckpointConfig.timeout).",
            self.name,
            self.timeout / 4,
            f"{self.timeout:,}",
        )
