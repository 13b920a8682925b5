"""What libraries import and nothing uses is loaded when it is used, and not before."""

import subprocess
import sys

from fakes.paths import ROOT


def in_a_process(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_modules_are_loaded_when_they_are_used():
    program = """
import sys
import t5x
import seqio
import tensorflow as tf
loaded = lambda: ["pyglove.core" in sys.modules, "tensorflow.lite.python" in sys.modules]
print(*loaded())
print(seqio.dataset_providers.pg.hyper.HyperPrimitive.__name__, tf.lite.OpsSet.__name__)
print(*loaded())
"""
    expected = ["False", "False", "HyperPrimitive", "OpsSet", "True", "True"]
    assert in_a_process(program) == expected


def test_every_name_is_one_that_a_library_imports():
    program = """
import sys
import t5x.train
from command_line import lazy_imports
print(*sorted(lazy_imports.LAZY - sys.modules.keys()))
"""
    assert in_a_process(program) == []


def test_modules_that_were_imported_before_stay():
    program = """
import pyglove
import t5x
import seqio
print(seqio.dataset_providers.pg is pyglove)
"""
    assert in_a_process(program) == ["True"]
