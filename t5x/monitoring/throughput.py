"""How fast a run is right now: the figures of its last seconds.

speed = Speed()
speed.step(tokens=80128, waited=0.01)      # after each step
speed.steps_per_second, speed.tokens_per_second, speed.wait_share
"""

import collections
import time
from collections.abc import Callable


class Speed:
    """Means over the last steps.

    Args:
      window: seconds that they reach back.
      clock: gives seconds.
    """

    def __init__(self, window: float = 30.0, clock: Callable[[], float] = time.monotonic):
        self.window, self.clock = window, clock
        self.pause()

    def pause(self) -> None:
        """What comes next is not to be measured: an evaluation, say."""
        self._steps: collections.deque[tuple[float, float, float]] = collections.deque()

    def step(self, tokens: float, waited: float) -> None:
        """A step is done, of `tokens` positions, `waited` seconds of it spent waiting for data."""
        now = self.clock()
        self._steps.append((now, tokens, waited))
        while len(self._steps) > 2 and now - self._steps[0][0] > self.window:
            self._steps.popleft()

    @property
    def _seconds(self) -> float:
        return self._steps[-1][0] - self._steps[0][0] if self._steps else 0.0

    def _rate(self, field: int) -> float | None:
        if self._seconds <= 0.0:
            return None
        return sum(step[field] for step in list(self._steps)[1:]) / self._seconds

    @property
    def steps_per_second(self) -> float | None:
        """None before two steps are known, as for the others."""
        return (len(self._steps) - 1) / self._seconds if self._seconds > 0.0 else None

    @property
    def tokens_per_second(self) -> float | None:
        """Positions of inputs and targets, padding too."""
        return self._rate(1)

    @property
    def wait_share(self) -> float | None:
        """Share of the time in which the loop waited for data, 0 to 1."""
        return self._rate(2)
