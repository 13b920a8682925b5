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


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        *[(few, None) for few in ([], [1.0], [1.0, 0.0])],  # unknown before two steps
        ([9.0, 1.0, 3.0], (0.5, 50.0, 0.25)),  # the first step only starts the time
        ([5.0] * 50 + [1.0] * 40, (1.0, 100.0, 0.25)),  # those before the window do not count
        ([100.0, 100.0], (0.01, 1.0, 0.25)),  # a step longer than the window
    ],
)
def test_rates_are_means_of_the_window(seconds, found):
    assert rates(seconds) == pytest.approx(found)


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


@pytest.mark.parametrize(
    "seconds",
    [
        [0.1, 0.12, 0.1, 0.4] * 50,  # steady
        [60.0, 0.1, 0.1, 0.1],  # the first ones
        [0.001] * 50 + [0.5],  # a short hiccup of fast steps
    ],
)
def test_usual_steps_never_stall(seconds):
    assert not any(stalls(seconds))


def test_a_long_step_is_a_stall_of_the_step_or_of_late_data():
    found = lambda waited: stalls([0.2] * 10 + [12.0] + [0.2] * 3, waited)[10]
    assert found(lambda s: s - 0.1) == "data"
    assert found(lambda s: 0.1) == found(lambda s: 0.0) == "step"


def test_a_run_that_gets_slower_stalls_only_until_that_is_usual():
    found = stalls([0.2] * 20 + [5.0] * 100, memory=40)
    assert found[20]
    assert not found[-1]
