"""A stall is far longer than the steps before it, and says what it waited for."""

from t5x.monitoring.stall_detector import Stall, Stalls


def found(seconds, waited=lambda s: 0.0, **settings):
    stalls = Stalls(**settings)
    return [stalls.step(each, waited(each)) for each in seconds]


def test_steady_steps_never_stall():
    assert not any(found([0.1, 0.12, 0.1, 0.4] * 50))


def test_a_long_step_is_a_stall():
    assert found([0.2] * 10 + [12.0] + [0.2] * 3)[10] == Stall(12.0, "step")


def test_data_that_did_not_come_is_told_from_a_slow_step():
    last = lambda waited: found([0.2] * 10 + [12.0], waited)[-1]
    assert last(lambda s: s - 0.1).reason == "data"
    assert last(lambda s: 0.1).reason == "step"


def test_the_first_steps_are_only_remembered():
    assert not any(found([60.0, 0.1, 0.1, 0.1]))


def test_a_short_hiccup_of_fast_steps_is_none():
    assert not any(found([0.001] * 50 + [0.5]))


def test_a_run_that_gets_slower_stalls_only_until_that_is_usual():
    stalls = found([0.2] * 20 + [5.0] * 100, memory=40)
    assert stalls[20]
    assert not stalls[-1]
