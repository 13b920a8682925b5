"""Repeated steps count once, counts continue over restarts, and thinning loses no spike."""

import numpy as np
import pytest

from report.series import Series, accumulate, join, thin, without_repeated
from t5x.monitoring.event_files import Points


def series(*rows):
    return Series.from_rows([(step, value, float(i)) for i, (step, value) in enumerate(rows)])


def pairs(found):
    return list(zip(found.steps.tolist(), found.values.tolist(), strict=True))


def test_a_restart_replaces_the_steps_it_repeats():
    #              killed after step 5, resumed from step 2
    found = without_repeated(series((1, 1), (2, 2), (3, 3), (5, 5), (3, 30), (4, 40)))
    assert pairs(found) == [(1, 1), (2, 2), (3, 30), (4, 40)]
    assert len(without_repeated(series())) == 0


@pytest.mark.parametrize("seed", range(2))
def test_steps_always_ascend_and_the_last_one_stays(seed):
    random = np.random.default_rng(seed)
    rows = [(int(step), i) for i, step in enumerate(random.integers(0, 50, 200))]
    found = without_repeated(series(*rows))
    assert np.all(np.diff(found.steps) > 0)
    assert pairs(found)[-1] == rows[-1]


def test_files_are_joined_in_the_order_of_time():
    late, early = Points([2, 3], [20.0, 30.0], [5.0, 6.0]), Points([1, 2], [1.0, 2.0], [1.0, 2.0])
    assert pairs(join([late, early])) == [(1, 1), (2, 20), (3, 30)]


@pytest.mark.parametrize("most", [20, 2000])
def test_thinned_ends_and_extremes_stay(most):
    values = np.random.default_rng(0).normal(size=100_000)
    values[31_234], values[61_234], values[79_234] = 99.0, -99.0, np.nan
    long = Series(np.arange(100_000), values, np.zeros(100_000))
    found = thin(long, most)
    assert most / 2 < len(found) <= most * 1.4
    assert (found.steps[0], found.steps[-1]) == (0, 99_999)
    assert {31_234, 61_234, 79_234} <= set(found.steps.tolist())
    assert np.all(np.diff(found.steps) > 0)


def test_counts_that_restart_at_zero_are_accumulated():
    found = accumulate(series((1, 5), (2, 10), (3, 4), (4, 8), (5, 1)))
    assert found.values.tolist() == [5, 10, 14, 18, 19]


@pytest.mark.parametrize("second", [3, 5, 8])
def test_a_start_is_known_by_its_place_however_much_it_has_counted(second):
    """A run that was killed after one entry of its log may count as much until the next one."""
    counted = series((10, 5), (20, second), (30, second + 1))  # at the times 0, 1, 2
    found = accumulate(counted, [(0, -1.0), (10, 0.5)])
    assert found.values.tolist() == [5, 5 + second, 6 + second]
    assert accumulate(series(), [(0, 0.5)]).values.tolist() == []


def test_entries_that_a_restart_has_not_repeated_yet_are_of_the_start_before():
    counted = series((10, 5), (20, 9))
    assert accumulate(counted, [(0, -1.0), (10, 1.5)]).values.tolist() == [5, 9]


def test_a_clock_that_is_set_back_loses_no_points():
    rows = [(10, 3.0, 1000.0), (20, 2.0, 400.0), (30, 1.0, 410.0)]
    after = Series.from_rows([(40, 0.5, 1010.0)])
    assert join([Series.from_rows(rows), after]).steps.tolist() == [10, 20, 30, 40]
