"""A save in the background is waited for, reported and given up in time."""

import logging
import threading
import time

import pytest

from t5x.checkpointing.async_save import AsyncSave


def test_the_copy_is_waited_for_alone():
    gate, order = threading.Event(), []

    def finish():
        gate.wait(60)
        order.append("finished")

    work = AsyncSave("it", lambda: order.append("started"), finish, timeout=600)
    work.wait_for_copy()
    assert order == ["started"]
    assert not work.is_over
    assert work.has_copied
    gate.set()
    work.wait()
    assert order == ["started", "finished"]
    assert work.is_over


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_is_raised_by_wait(which):
    def refuse():
        raise OSError("disk full")

    steps = [lambda: None, lambda: None]
    steps[which] = refuse
    work = AsyncSave("it", *steps, timeout=600)
    with pytest.raises(OSError, match="disk full"):
        work.wait()
    assert work.has_copied == bool(which)
    if which:
        work.wait_for_copy()
    else:
        with pytest.raises(OSError, match="disk full"):
            work.wait_for_copy()


def test_a_save_that_hangs_is_reported_and_then_given_up(caplog):
    gate = threading.Event()
    caplog.set_level(logging.WARNING)
    work = AsyncSave("checkpoint_7", gate.wait, lambda: None, timeout=0.4)
    until = time.monotonic() + 60
    while "checkpoint_7" not in caplog.text:
        assert time.monotonic() < until
        time.sleep(0.01)
    with pytest.raises(TimeoutError, match=r"0\.4"):
        work.wait()
    assert work.is_over
    assert not work.has_copied
    gate.set()


def test_a_shortened_deadline_ends_the_wait_sooner():
    gate = threading.Event()
    work = AsyncSave("it", gate.wait, lambda: None, timeout=600)
    work.shorten_deadline(0.0)
    with pytest.raises(TimeoutError):
        work.wait()
    gate.set()
