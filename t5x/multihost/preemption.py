"""Ctrl-C and SIGTERM as a question asked between two steps, answered alike on every host.

  with Interruption() as interruption:
      for step in steps:
          ...
          if interruption.requested():
              break              # save, then leave

A second Ctrl-C ends the process at once. In a pod a notice to one host, be it a preemption's
SIGTERM or a Ctrl-C, reaches all of them through JAX's coordination service, which names the
question to which all answer yes: no host waits for another in order to ask.
"""

import os
import signal
import threading

import jax
from jax.experimental import multihost_utils


class Interrupted(Exception):
    """Raised out of what cannot be left by a question, an evaluation for instance."""


class Interruption:
    """Catches SIGINT and, on a single host, SIGTERM (in a pod JAX itself listens for it)."""

    ended_one = False  # whether a run of this process has been ended so

    def __init__(self):
        self.reason: str | None = None
        self.ending = False  # True once `requested` has said so, on every host alike
        self._asked = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            watched = [signal.SIGINT]
            if jax.process_count() == 1:
                watched.append(signal.SIGTERM)
            self._before = {number: signal.signal(number, self._note) for number in watched}
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _) -> None:
        if self.reason is not None:
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name
        if jax.process_count() > 1:  # JAX tells the other hosts of a SIGTERM, and of nothing else
            os.kill(os.getpid(), signal.SIGTERM)

    def requested(self) -> bool:
        """True when the run is to end here; all hosts must ask equally often."""
        if self.ending:
            return True
        self._asked += 1
        if jax.process_count() == 1:
            self.ending = self.reason is not None
        elif multihost_utils.reached_preemption_sync_point(self._asked):
            self.reason, self.ending = self.reason or "a preemption notice", True
        Interruption.ended_one |= self.ending
        return self.ending

    def ask(self) -> None:
        """Raises Interrupted where `requested` says True."""
        if self.requested():
            raise Interrupted
