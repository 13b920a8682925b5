"""pyglove is loaded when it is used, and not before."""

import subprocess
import sys

from fakes.paths import ROOT


def in_a_process(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_it_is_loaded_when_it_is_used():
    program = """
import sys
import t5x
import seqio
print("pyglove.core" in sys.modules)
print(seqio.dataset_providers.pg.hyper.HyperPrimitive.__name__, "pyglove.core" in sys.modules)
"""
    assert in_a_process(program) == ["False", "HyperPrimitive", "True"]


def test_a_walk_over_all_modules_loads_it():
    program = """
import sys
import t5x
import seqio
print(all(hasattr(module, "__name__") for module in list(sys.modules.values()) if module))
print("pyglove.core" in sys.modules)
"""
    assert in_a_process(program) == ["True", "True"]


def test_it_stays_if_it_was_imported_before():
    program = """
import pyglove
import t5x
import seqio
print(seqio.dataset_providers.pg is pyglove)
"""
    assert in_a_process(program) == ["True"]
