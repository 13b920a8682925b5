"""Steps that took far longer than the others, and what they waited for.

stalls = Stalls()
stall = stalls.step(seconds=12.0, waited=11.5)     # None, or Stall(12.0, "data")
"""

import collections
import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Stall:
    """A step's `seconds`, and what held it up: 'data' or 'step'."""

    seconds: float
    reason: str


class Stalls:
    """Finds stalls among the steps of a run.

    Args:
      factor: a stall takes this many times the median of the steps before it.
      least: seconds that it takes at least.
      memory: how many steps the median is of.
    """

    def __init__(self, factor: float = 5.0, least: float = 1.0, memory: int = 100):
        self.factor, self.least = factor, least
        self._seconds: collections.deque[float] = collections.deque(maxlen=memory)

    def step(self, seconds: float, waited: float) -> Stall | None:
        """The stall that this step was, or None; the first five are only remembered."""
        known = len(self._seconds) >= 5
        usual = statistics.median(self._seconds) if known else seconds
        self._seconds.append(seconds)
        if not known or seconds < max(self.least, self.factor * usual):
            return None
        return Stall(seconds, "data" if waited > seconds / 2 else "step")
