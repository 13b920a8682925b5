"""Commands that import large libraries collect garbage less often, from their first line on."""

import gc
import subprocess
import sys

import pytest

from command_line import garbage_collection
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


@pytest.mark.parametrize("module", ["command_line.quiet", "t5x.cli.log_capture"])
def test_the_start_of_a_command_does_it(module):
    program = f"import gc, {module}; {module}.start(); print(gc.get_threshold()[0])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10 * DEFAULT
