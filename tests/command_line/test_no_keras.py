"""Keras stays where it was imported; tests/t5x/cli/test_main.py starts a trainer without it."""

from fakes import shell


def test_a_keras_that_was_imported_before_stays():
    program = """
import sys, types
keras = sys.modules["keras"] = types.ModuleType("keras")
from command_line import no_keras
print(sys.modules["keras"] is keras, "tensorboard.plugins.hparams._keras" in sys.modules)
"""
    assert shell.python(program) == ["True", "False"]
