"""Means over the last seconds, by a clock that is told what time it is."""

import pytest

from t5x.monitoring.throughput import Speed


def measured(seconds, window=30.0):
    now = [0.0]
    speed = Speed(window, clock=lambda: now[0])
    for each in seconds:
        now[0] += each
        speed.step(tokens=100.0, waited=each / 4)
    return speed


def test_nothing_is_known_before_two_steps():
    for speed in (measured([]), measured([1.0])):
        assert speed.steps_per_second is speed.tokens_per_second is speed.wait_share is None


def test_rates_are_means():
    speed = measured([9.0, 1.0, 3.0])  # the first step only begins the time
    assert speed.steps_per_second == pytest.approx(0.5)
    assert speed.tokens_per_second == pytest.approx(50.0)
    assert speed.wait_share == pytest.approx(0.25)


def test_what_is_long_ago_does_not_count():
    assert measured([5.0] * 50 + [1.0] * 40).steps_per_second == pytest.approx(1.0)


def test_a_step_longer_than_the_window_still_has_a_rate():
    assert measured([100.0, 100.0], window=30.0).steps_per_second == pytest.approx(0.01)


def test_a_pause_begins_anew():
    speed = measured([1.0] * 10)
    speed.pause()
    assert speed.steps_per_second is None
