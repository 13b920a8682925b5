"""Signals become a question between two steps; Ctrl-C after one of them ends the process."""

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


NOTICES = [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]


@pytest.mark.parametrize("number", [signal.SIGINT, *NOTICES])
def test_a_signal_is_an_answer_and_raises_nothing(number):
    with Interruption() as interruption:
        assert not interruption.requested()
        os.kill(os.getpid(), number)
        assert interruption.requested()
        assert interruption.ending
        assert interruption.reason == signal.Signals(number).name


@pytest.mark.parametrize("number", [signal.SIGINT, *NOTICES])
def test_only_ctrl_c_ends_a_save_at_once(number):
    """Slurm sends a warning and then SIGTERM, the kernel SIGXCPU every second."""
    with Interruption() as interruption:
        for notice in (number, *NOTICES):
            os.kill(os.getpid(), notice)
        assert interruption.reason == signal.Signals(number).name
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert interruption.reason == signal.Signals(number).name


def test_nohup_is_left_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interruption.requested()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_earlier_handlers_are_restored():
    handlers = lambda: [signal.getsignal(number) for number in (signal.SIGINT, *NOTICES)]
    before = handlers()
    with Interruption():
        assert not {*handlers()} & {*before}
    assert handlers() == before


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
