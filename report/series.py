"""One metric over a run: what counts of it after restarts, and as many points as a page can hold.

series = joined([points_of_first_file, points_of_second_file])
thin(series, most=2000)             # extremes stay, so no spike is lost
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from t5x.monitoring.event_files import Points

_FIELDS = [field.name for field in dataclasses.fields(Points)]


@dataclasses.dataclass(frozen=True)
class Series:
    """Steps ascending [N] int64, values [N] float64, times [N] float64, seconds since 1970."""

    steps: np.ndarray
    values: np.ndarray
    times: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, index: np.ndarray) -> "Series":
        """Some of its points."""
        return Series(self.steps[index], self.values[index], self.times[index])

    @classmethod
    def of(cls, rows: Sequence[tuple[int, float, float]]) -> "Series":
        """From (step, value, time)."""
        table = np.array(rows, np.float64).reshape(-1, 3)
        return cls(table[:, 0].astype(np.int64), table[:, 1], table[:, 2])


def joined(parts: Iterable[Points]) -> Series:
    """The points of several files in the order of time, without what a restart did again."""
    parts = list(parts)
    whole = [np.concatenate([np.asarray(getattr(p, f)) for p in parts]) for f in _FIELDS]
    steps, values, times = whole[0].astype(np.int64), *whole[1:]
    order = np.argsort(times, kind="stable")
    return newest(Series(steps[order], values[order].astype(np.float64), times[order]))


def newest(series: Series) -> Series:
    """Without what a later point goes back behind: of steps made twice the second time counts."""
    if not len(series):
        return series
    least_after = np.minimum.accumulate(series.steps[::-1])[::-1]
    counts = np.append(series.steps[:-1] < least_after[1:], True)
    return series.at(counts)


def thin(series: Series, most: int) -> Series:
    """At most about `most` points: of each stretch of steps its first, least and greatest value."""
    if len(series) <= most:
        return series
    buckets = max(1, (most - 2) // 3)
    edges = np.linspace(0, len(series), buckets + 1).astype(np.int64)
    kept = {0, len(series) - 1}
    for first, end in itertools.pairwise(edges):
        values = series.values[first:end]
        finite = np.isfinite(values)
        kept.add(int(first))
        if finite.any():
            kept.add(int(first + np.argmin(np.where(finite, values, np.inf))))
            kept.add(int(first + np.argmax(np.where(finite, values, -np.inf))))
        if not finite.all():
            kept.add(int(first + np.argmin(finite)))
    return series.at(np.array(sorted(kept)))


def accumulated(series: Series) -> Series:
    """A count that begins at 0 with every start of a run, counted on over all of them."""
    falls = np.append(False, np.diff(series.values) < 0)
    before = np.append(0.0, series.values[:-1])
    offset = np.cumsum(np.where(falls, before, 0.0))
    return Series(series.steps, series.values + offset, series.times)
