"""Something that starts now and ends in the background, and may hang: waited for, but not for ever.

save = Background("checkpoint_10", copy_the_arrays, write_them, timeout=1200)
save.started()         # returns once `copy_the_arrays` has, raises what it raised
...
if save.is_over:       # nothing is left to wait for
    save.wait()        # raises what either has raised, TimeoutError once the time is over
"""

import concurrent.futures
import threading
import time
from collections.abc import Callable

from absl import logging


class Background:
    """Two steps, one after the other, in a thread that does not keep the process from ending.

    Args:
      name: what messages call it.
      start: the first step.
      finish: the second.
      timeout: seconds from now after which it counts as failed. After a quarter of them it is
        reported.
    """

    def __init__(
        self, name: str, start: Callable[[], None], finish: Callable[[], None], timeout: float
    ):
        self.name, self.timeout = name, timeout
        self._start, self._finish = start, finish
        self._ends = time.monotonic() + timeout
        self._started, self._finished = concurrent.futures.Future(), concurrent.futures.Future()
        self._report = threading.Timer(timeout / 4, self._say)
        for thread in (self._report, threading.Thread(target=self._run, name=name)):
            thread.daemon = True
            thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not, or its time has."""
        return self._finished.done() or time.monotonic() >= self._ends

    @property
    def is_starting(self) -> bool:
        """Whether the first step is still under way."""
        return not self._started.done()

    def started(self) -> None:
        """Waits for the first step; raises as `wait`."""
        self._wait(self._started)

    def wait(self) -> None:
        """Waits for both.

        Raises:
          TimeoutError: it hangs.
          Exception: what a step has raised.
        """
        self._wait(self._finished)

    def hurry(self, seconds: float) -> None:
        """From now on it has so many seconds at most."""
        self._ends = min(self._ends, time.monotonic() + seconds)

    def _wait(self, future: concurrent.futures.Future) -> None:
        left = max(0.0, self._ends - time.monotonic())
        if not concurrent.futures.wait([future], left).done:
            self._report.cancel()
            raise TimeoutError(
                f"it hangs and is given up (SaveCheckpointConfig.timeout is {self.timeout:,} s)"
            )
        future.result()

    def _run(self) -> None:
        try:
            self._start()
            self._started.set_result(None)
            self._finish()
        except BaseException as error:  # raised again where it is waited for
            for future in (self._started, self._finished):
                if not future.done():
                    future.set_exception(error)
        else:
            self._finished.set_result(None)
        finally:
            self._report.cancel()

    def _say(self) -> None:
        logging.warning(
            "%s is not whole after %.0f s; it counts as failed after %s s "
            "(SaveCheckpointConfig.timeout).",
            self.name,
            self.timeout / 4,
            f"{self.timeout:,}",
        )
