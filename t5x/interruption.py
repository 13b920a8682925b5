"""Ctrl-C and SIGTERM as a question asked between two steps, answered alike on every host.

  with Interruption() as interruption:
      for step in steps:
          ...
          if interruption.requested(step):
              break              # save, then leave

A second Ctrl-C ends the process at once. In a pod a preemption notice to one host reaches all of
them through JAX's coordination service, which names the step at which all stop.
"""

import signal
import threading

import jax
from jax.experimental import multihost_utils


class Interruption:
    """Catches SIGINT and, on a single host, SIGTERM (in a pod JAX itself listens for it)."""

    def __init__(self):
        self.reason: str | None = None
        self.ending = False  # True once `requested` has said so, on every host alike
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

    def requested(self, step: int) -> bool:
        """True when the run is to end after `step`; all hosts must ask for the same steps."""
        if jax.process_count() == 1:
            self.ending = self.reason is not None
        elif multihost_utils.reached_preemption_sync_point(step):
            self.reason, self.ending = self.reason or "a preemption notice", True
        return self.ending
