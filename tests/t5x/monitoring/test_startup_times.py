import itertools
import subprocess
import sys
import time

import pytest

from fakes.paths import ROOT
from t5x.monitoring import startup_times


@pytest.fixture
def clock(monkeypatch):
    """A clock that starts at 100.0 s with the process, and the phases of no run."""
    monkeypatch.setattr(startup_times, "_ended", 100.0)
    monkeypatch.setattr(startup_times, "_seconds", {})
    monkeypatch.setattr(startup_times, "_complete", False)
    times = iter([105.2, 105.3, 107.3, 108.0])
    monkeypatch.setattr(startup_times.time, "time", lambda: next(times))


def test_a_phase_lasts_from_the_end_of_the_one_before(clock):
    for phase in ("imports", "data", "state"):
        startup_times.done(phase)
    assert startup_times.text() == "First result after 7.3 s: imports 5.2, data 0.1, state 2.0."


def test_a_phase_that_is_repeated_is_added_up(clock):
    for phase in ("data", "state", "data"):
        startup_times.done(phase)
    assert startup_times.text() == "First result after 7.3 s: data 7.2, state 0.1."


def test_nothing_counts_after_the_last_phase(clock):
    startup_times.done("imports")
    startup_times.done("first step", last=True)
    for phase, _ in itertools.product(("evaluation", "first step"), range(2)):
        startup_times.done(phase)
    assert startup_times.text() == "First result after 5.3 s: imports 5.2, first step 0.1."


def test_the_first_phase_begins_with_the_process():
    program = "from t5x.monitoring import startup_times as s; print(s._ended)"
    for _ in range(3):  # a time of boot in entire seconds would be wrong by up to one
        before = time.time()
        started = float(subprocess.check_output([sys.executable, "-c", program], cwd=ROOT))
        assert before - 0.05 < started < before + 0.5
        time.sleep(0.3)
