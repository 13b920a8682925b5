"""Callbacks end their dataset at shutdown, and the interpreter waits for running ones."""

import subprocess
import sys
import threading
import time

import pytest

from fakes.paths import ROOT
from tasks.corpus import tf_callbacks
from tasks.corpus.storage import retry


@pytest.fixture(autouse=True)
def shutting_down(monkeypatch):
    event = threading.Event()
    monkeypatch.setattr(tf_callbacks, "shutting_down", event)
    return event


def test_a_guarded_call_answers_the_end_once_the_process_shuts_down(shutting_down):
    call = tf_callbacks.guard(lambda x: x + 1, at_exit="end")
    assert call(1) == 2
    shutting_down.set()
    assert call(1) == "end"


def test_draining_waits_for_running_calls():
    started, release, ended = threading.Event(), threading.Event(), []

    def slow():
        started.set()
        release.wait()
        ended.append(time.monotonic())

    thread = threading.Thread(target=tf_callbacks.guard(slow))
    thread.start()
    started.wait()
    threading.Timer(0.05, release.set).start()
    tf_callbacks.drain(quiet_s=0.01, limit_s=60.0)
    assert ended
    thread.join()


def test_draining_gives_up_on_a_call_that_hangs():
    started, release = threading.Event(), threading.Event()
    thread = threading.Thread(target=tf_callbacks.guard(lambda: started.set() or release.wait()))
    thread.start()
    started.wait()
    began = time.monotonic()
    tf_callbacks.drain(quiet_s=0.01, limit_s=0.1)
    assert 0.1 <= time.monotonic() - began < 60
    release.set()
    thread.join()


_ENDS = """
import sys
sys.path.insert(0, sys.argv[1])
from tasks.corpus.source import CorpusSource

dataset = CorpusSource(sys.argv[2]).get_dataset("train", seed=0).repeat().batch(3).prefetch(4)
iterator = iter(dataset)
next(iterator)
"""


def test_a_process_ends_in_the_middle_of_an_endless_stream(tmp_path):
    (tmp_path / "train.txt").write_text("un rând\n" * 600)
    command = [sys.executable, "-c", _ENDS, str(ROOT), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    assert retry.shutting_down.is_set() is False  # of this process
