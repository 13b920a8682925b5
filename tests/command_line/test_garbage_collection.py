"""Commands that import large libraries collect garbage less often, and not when they end."""

import gc
import subprocess
import sys

import pytest

from command_line import garbage_collection, guard
from fakes.paths import ROOT

DEFAULT = 700


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_garbage_is_still_collected():
    gc.set_threshold(DEFAULT)
    garbage_collection.collect_rarely()
    young = gc.get_threshold()[0]
    assert young > 10 * DEFAULT
    before = gc.get_stats()[0]["collections"]
    cycles = []
    for _ in range(2 * young):
        cycles.append([])
        cycles[-1].append(cycles[-1])
    assert gc.get_stats()[0]["collections"] > before


def output(program):
    """Return what a program prints, in a process of its own."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("module", ["command_line.quiet", "t5x.cli.log_capture"])
def test_the_start_of_a_command_does_it(module):
    program = f"import gc, {module}; {module}.start(); print(gc.get_threshold()[0])"
    assert int(output(program)) > 10 * DEFAULT


def test_nothing_is_collected_from_the_start_of_training_to_its_main_function():
    program = """
import gc
from t5x.cli import log_capture

log_capture.start()
from command_line.guard import guarded

before = gc.isenabled()
guarded(lambda: print(before, gc.isenabled(), gc.get_freeze_count() > 1000))()
"""
    assert output(program) == "False True True\n"


def test_a_main_function_freezes_nothing_where_the_collector_was_not_paused():
    frozen = gc.get_freeze_count()
    guard.guarded(lambda: None)()
    assert gc.get_freeze_count() == frozen


def test_nothing_is_collected_when_a_process_ends():
    program = """
import gc
from command_line import garbage_collection, guard

class Late:
    def __del__(self):
        print("collected", flush=True)

{start}
late = Late()
late.itself = late
del late
"""
    assert output(program.format(start="")) == "collected\n"
    assert output(program.format(start="garbage_collection.collect_rarely()")) == ""
