"""Turn Ctrl-C and signals that announce an end into a question between two steps.

All hosts get one answer.

  with Interruption() as interruption:
      for step in steps:
          ...
          if interruption.requested():
              break              # save, then leave

Ctrl-C after one of them ends the process immediately.
"""

import contextlib
import os
import signal
import sys
import threading
from typing import Any

import jax
from jax.experimental import multihost_utils

from common import errors

# In a pod any host may get the signal: a preemption's SIGTERM, or a Ctrl-C, which is turned into
# one. JAX's coordination service then chooses a number, and every host answers yes to its question
# of that number. So all stop at the same step, and no host waits for another in order to ask.

# A scheduler sends them some minutes before the end, as `sbatch --signal` says; submitit SIGUSR2.
# SIGXCPU says that the limit of CPU time is near, and comes again every second.
_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
_NOTED = b"\nStopping after this step, to save it. Ctrl-C again stops at once, without saving.\n"


class Interrupted(Exception):
    """Leaves a computation that runs between two questions, such as an evaluation."""


class Interruption:
    """Catches SIGINT, a scheduler's warnings, SIGHUP unless it is ignored (by nohup), and SIGTERM.

    In a pod JAX itself catches SIGTERM.
    """

    ended_one = False  # whether one has ended a run of this process

    def __init__(self):
        self.reason: str | None = None
        self.ending = False  # True once `requested` has returned True, on all hosts alike
        self._questions = 0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            caught = [signal.SIGINT, *_WARNINGS]
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
                caught.append(signal.SIGHUP)
            if jax.process_count() == 1:
                caught.append(signal.SIGTERM)
            self._handlers = {number: signal.signal(number, self._note) for number in caught}
        return self

    def __exit__(self, *_):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, _) -> None:
        if number == signal.SIGHUP:
            # Otherwise the next line for the terminal would fail, before the save.
            errors.drop_unread()
        if self.reason is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # a scheduler sends a warning and then SIGTERM, a shell and the kernel SIGHUP
        self.reason = signal.Signals(number).name
        if number == signal.SIGINT:
            with contextlib.suppress(OSError, ValueError):  # `print` must not be used in a handler
                os.write(sys.stderr.fileno(), _NOTED)
        if jax.process_count() > 1:  # JAX shares a SIGTERM with the other hosts, and nothing else
            os.kill(os.getpid(), signal.SIGTERM)

    def requested(self) -> bool:
        """Return whether the run should end here; all hosts must call it equally often."""
        if self.ending:
            return True
        self._questions += 1
        if jax.process_count() == 1:
            self.ending = self.reason is not None
        elif multihost_utils.reached_preemption_sync_point(self._questions):
            self.reason, self.ending = self.reason or "a preemption notice", True
        Interruption.ended_one |= self.ending
        return self.ending

    def ask(self) -> None:
        """Raise Interrupted if `requested`."""
        if self.requested():
            raise Interrupted
