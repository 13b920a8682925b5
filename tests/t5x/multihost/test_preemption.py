"""Ctrl-C, SIGTERM and SIGHUP become a question between two steps; a second one ends the process."""

import os
import pty
import signal
import sys
import threading

import jax
import pytest
from jax.experimental import multihost_utils

from t5x.multihost.preemption import Interruption


@pytest.fixture(autouse=True)
def with_a_terminal():
    """Let SIGHUP arrive, which nohup has processes ignore."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_an_answer_and_raises_nothing(number):
    with Interruption() as interruption:
        assert not interruption.requested()
        os.kill(os.getpid(), number)
        assert interruption.requested()
        assert interruption.ending
        assert interruption.reason == signal.Signals(number).name


def test_a_second_one_ends_at_once():
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert interruption.reason == "SIGTERM"


def test_a_terminal_that_hangs_up_may_say_so_twice():
    with Interruption() as interruption:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        assert interruption.reason == "SIGHUP"


def test_nohup_is_left_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interruption.requested()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_earlier_handlers_are_restored():
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with Interruption():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_in_a_pod_all_hosts_stop_at_the_agreed_question(monkeypatch):
    """A Ctrl-C on one host alone must not take it out of what all do together."""
    sent = []
    before = signal.signal(signal.SIGTERM, lambda *_: sent.append("SIGTERM"))  # as JAX listens
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", lambda n: n == 3)
    try:
        with Interruption() as interruption:
            assert not interruption.requested()
            os.kill(os.getpid(), signal.SIGINT)
            assert sent == ["SIGTERM"]
            assert not interruption.requested()
            assert not interruption.ending
            assert interruption.requested()
            assert interruption.ending
            assert interruption.requested()  # and stays so
        with Interruption() as interruption:
            assert [interruption.requested() for _ in range(3)] == [False, False, True]
            assert interruption.reason == "a preemption notice"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_outside_the_main_thread_nothing_is_caught():
    caught = []

    def work():
        with Interruption() as interruption:
            caught.append(interruption.requested())

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert caught == [False]
    assert signal.getsignal(signal.SIGINT) == before


def test_what_goes_to_a_terminal_that_has_gone_is_dropped(monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.setattr(sys, "stdout", os.fdopen(theirs, "w", buffering=1))
    with Interruption() as interruption:
        print("before")
        os.close(ours)
        with pytest.raises(OSError, match="Input/output"):
            print("lost")
        os.kill(os.getpid(), signal.SIGHUP)
        print("after")
        assert interruption.requested()
