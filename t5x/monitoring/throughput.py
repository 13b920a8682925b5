"""Measures the speed of the last steps, and detects steps that take far longer than the others."""

import collections
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Rates(NamedTuple):
    """Means over some steps; `tokens` are positions, padding included."""

    steps_per_second: float
    tokens_per_second: float
    wait_share: float  # of the time, spent waiting for data


class Throughput:
    """Rates over the last `window` seconds."""

    def __init__(self, window: float = 30.0, clock: Callable[[], float] = time.monotonic):
        self.window, self.clock = window, clock
        self.pause()

    def pause(self) -> None:
        """Exclude the time until the next step, such as an evaluation."""
        self._steps: collections.deque[tuple[float, float, float]] = collections.deque()

    def step(self, tokens: float, waited: float) -> None:
        """Add a step of `tokens` positions that waited this many seconds for its data."""
        end = self.clock()
        self._steps.append((end, tokens, waited))
        while len(self._steps) > 2 and end - self._steps[0][0] > self.window:
            self._steps.popleft()

    def rates(self) -> Rates | None:
        """Return the rates, None before two steps."""
        (start, *_), *steps = self._steps or [(0.0, 0.0, 0.0)]
        if not steps or steps[-1][0] <= start:
            return None
        seconds = steps[-1][0] - start
        _, tokens, waited = map(sum, zip(*steps, strict=True))
        return Rates(len(steps) / seconds, tokens / seconds, waited / seconds)


class StallDetector:
    """Detects steps of `factor` times the median of the last `memory` steps, at least `least` s."""

    def __init__(self, factor: float = 5.0, least: float = 1.0, memory: int = 100):
        self.factor, self.least = factor, least
        self._seconds: collections.deque[float] = collections.deque(maxlen=memory)

    def step(self, seconds: float, waited: float) -> str | None:
        """Return the cause, 'data' or 'step', if this step stalled; the first five never do."""
        earlier = list(self._seconds)
        self._seconds.append(seconds)
        if len(earlier) < 5 or seconds < max(self.least, self.factor * statistics.median(earlier)):
            return None
        return "data" if waited > seconds / 2 else "step"
