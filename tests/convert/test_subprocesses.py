"""Functions run in a process of their own, and their errors arrive."""

import os
import signal

import pytest

from convert.subprocesses import call_isolated


def test_an_isolated_call_runs_elsewhere_and_gives_the_same():
    assert call_isolated(False, os.getpid) == os.getpid() != call_isolated(True, os.getpid)
    assert call_isolated(True, divmod, 7, 2) == (3, 1)


def test_errors_of_the_function_are_raised_here(tmp_path):
    with pytest.raises(ValueError, match="invalid literal"):
        call_isolated(True, int, "x")
    with pytest.raises(FileNotFoundError):
        call_isolated(True, os.listdir, tmp_path / "absent")


def test_a_process_that_is_killed_is_reported():
    with pytest.raises(ChildProcessError, match="ended with status -9; -9 usually means"):
        call_isolated(True, signal.raise_signal, signal.SIGKILL)
