"""Rates are means over the last seconds; a stall is far longer than the steps before it."""

import pytest

from t5x.monitoring.throughput import StallDetector, Throughput


def rates(seconds, window=30.0):
    """The rates after steps that took `seconds`, by a fake clock."""
    now = [0.0]
    throughput = Throughput(window, clock=lambda: now[0])
    for each in seconds:
        now[0] += each
        throughput.step(tokens=100.0, waited=each / 4)
    return throughput.rates()


@pytest.mark.parametrize("seconds", [[], [1.0], [1.0, 0.0]])
def test_rates_are_unknown_before_two_steps(seconds):
    assert rates(seconds) is None


def test_rates_are_means():
    # The first step only starts the time.
    assert rates([9.0, 1.0, 3.0]) == pytest.approx((0.5, 50.0, 0.25))


def test_steps_before_the_window_do_not_count():
    assert rates([5.0] * 50 + [1.0] * 40).steps_per_second == pytest.approx(1.0)


def test_a_step_longer_than_the_window_still_has_a_rate():
    assert rates([100.0, 100.0], window=30.0).steps_per_second == pytest.approx(0.01)


def test_rates_are_unknown_after_a_pause():
    throughput = Throughput(clock=iter(range(10)).__next__)
    for _ in range(3):
        throughput.step(1.0, 0.0)
    assert throughput.rates().steps_per_second == 1.0
    throughput.pause()
    throughput.step(1.0, 0.0)
    assert throughput.rates() is None


def stalls(seconds, waited=lambda s: 0.0, **settings):
    detector = StallDetector(**settings)
    return [detector.step(each, waited(each)) for each in seconds]


def test_steady_steps_never_stall():
    assert not any(stalls([0.1, 0.12, 0.1, 0.4] * 50))


def test_a_long_step_is_a_stall():
    assert stalls([0.2] * 10 + [12.0] + [0.2] * 3)[10] == "step"


def test_late_data_is_distinguished_from_a_slow_step():
    last = lambda waited: stalls([0.2] * 10 + [12.0], waited)[-1]
    assert last(lambda s: s - 0.1) == "data"
    assert last(lambda s: 0.1) == "step"


def test_the_first_steps_never_stall():
    assert not any(stalls([60.0, 0.1, 0.1, 0.1]))


def test_a_short_hiccup_of_fast_steps_is_no_stall():
    assert not any(stalls([0.001] * 50 + [0.5]))


def test_a_run_that_gets_slower_stalls_only_until_that_is_usual():
    found = stalls([0.2] * 20 + [5.0] * 100, memory=40)
    assert found[20]
    assert not found[-1]
