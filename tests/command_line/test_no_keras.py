"""Keras stays where it was imported; tests/t5x/cli/test_main.py starts a trainer without it."""

import subprocess
import sys

from fakes.paths import ROOT


def in_a_process(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_keras_that_was_imported_before_stays():
    program = """
import sys, types
keras = sys.modules["keras"] = types.ModuleType("keras")
from command_line import no_keras
print(sys.modules["keras"] is keras, "tensorboard.plugins.hparams._keras" in sys.modules)
"""
    assert in_a_process(program) == ["True", "False"]
