"""What runs in the background is waited for, reported and given up in time."""

import logging
import threading

import pytest

from t5x.checkpointing.async_save import Background


def test_the_first_step_is_waited_for_alone():
    gate, order = threading.Event(), []

    def finish():
        gate.wait(60)
        order.append("finished")

    work = Background("it", lambda: order.append("started"), finish, timeout=600)
    work.started()
    assert order == ["started"]
    assert not work.is_over
    assert not work.is_starting
    gate.set()
    work.wait()
    assert order == ["started", "finished"]
    assert work.is_over


@pytest.mark.parametrize("which", [0, 1])
def test_what_a_step_raises_is_raised_where_it_is_waited_for(which):
    def refuse():
        raise OSError("no room")

    steps = [lambda: None, lambda: None]
    steps[which] = refuse
    work = Background("it", *steps, timeout=600)
    with pytest.raises(OSError, match="no room"):
        work.wait()
    if which:
        work.started()
    else:
        with pytest.raises(OSError, match="no room"):
            work.started()


def test_what_hangs_is_reported_and_then_given_up(caplog):
    gate = threading.Event()
    work = Background("checkpoint_7", gate.wait, lambda: None, timeout=4)
    with caplog.at_level(logging.WARNING), pytest.raises(TimeoutError, match="it hangs and is"):
        work.wait()
    assert "checkpoint_7 is not whole after 1 s; it counts as failed after 4 s" in caplog.text
    assert work.is_over
    assert work.is_starting
    gate.set()


def test_one_in_a_hurry_gives_up_sooner():
    gate = threading.Event()
    work = Background("it", gate.wait, lambda: None, timeout=600)
    work.hurry(0.0)
    with pytest.raises(TimeoutError):
        work.wait()
    gate.set()
