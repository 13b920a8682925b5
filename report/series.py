"""A metric over a run, without steps that a restart repeated, and thinned for a page."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from t5x.monitoring.event_files import Points


@dataclasses.dataclass(frozen=True)
class Series:
    """Steps ascending [N] int64, values [N] float64, times [N] float64, seconds since 1970."""

    steps: np.ndarray
    values: np.ndarray
    times: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, index: np.ndarray) -> "Series":
        """Return some of the points."""
        return Series(self.steps[index], self.values[index], self.times[index])

    @property
    def last_value(self) -> float | None:
        """The last finite value."""
        finite = self.values[np.isfinite(self.values)]
        return float(finite[-1]) if len(finite) else None

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[int, float, float]]) -> "Series":
        """Return the series of (step, value, time)."""
        table = np.array(rows, np.float64).reshape(-1, 3)
        return cls(table[:, 0].astype(np.int64), table[:, 1], table[:, 2])


def join(parts: Iterable["Points | Series"], is_trained: bool = True) -> Series:
    """Return the points of several files or runs in the order of time, without repeated steps.

    Within one of them it is the order of the points, whose clock may have been set back meanwhile.
    Checkpoints may be evaluated in any order: without `is_trained`, the points are in the order of
    steps, and the last one of each step is kept.
    """
    parts = list(parts)
    steps = np.concatenate([np.asarray(part.steps, np.int64) for part in parts])
    values = np.concatenate([np.asarray(part.values, np.float64) for part in parts])
    times = np.concatenate(
        [np.fmax.accumulate(np.asarray(part.times, np.float64)) for part in parts]
    )
    series = Series(steps, values, times).at(np.argsort(times, kind="stable"))
    if not is_trained:
        series = series.at(np.argsort(series.steps, kind="stable"))
    return without_repeated(series)


def without_repeated(series: Series) -> Series:
    """Drop points that a restart repeated; the last value of a repeated step is kept."""
    if not len(series):
        return series
    least_after = np.minimum.accumulate(series.steps[::-1])[::-1]
    return series.at(np.append(series.steps[:-1] < least_after[1:], True))


def thin(series: Series, most: int) -> Series:
    """Return about `most` points: the first, least and greatest value of each stretch of steps."""
    if len(series) <= most:
        return series
    stretches = max(1, (most - 2) // 3)
    edges = np.linspace(0, len(series), stretches + 1).astype(np.int64)
    indices = {0, len(series) - 1}
    for first, end in itertools.pairwise(edges):
        values = series.values[first:end]
        finite = np.isfinite(values)
        indices.add(int(first))
        if finite.any():
            indices.add(int(first + np.argmin(np.where(finite, values, np.inf))))
            indices.add(int(first + np.argmax(np.where(finite, values, -np.inf))))
        if not finite.all():
            indices.add(int(first + np.argmin(finite)))
    return series.at(np.array(sorted(indices)))


def accumulate(series: Series, starts: Iterable[tuple[int, float]] = ()) -> Series:
    """Return a count over all starts of a run, from one that begins at 0 with each start.

    `starts` are their (step, time). A count that falls shows a start that is not among them.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged count may be infinite
        falls = np.append(False, np.diff(series.values) < 0)
        for step, time in starts:
            first = np.searchsorted(series.steps, step, side="right")
            if first < len(series) and series.times[first] > time:  # else an earlier start made it
                falls[first] = True
        before = np.append(0.0, series.values[:-1])
        offset = np.cumsum(np.where(falls, before, 0.0))
        return Series(series.steps, series.values + offset, series.times)
