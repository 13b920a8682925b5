"""Unused modules are empty; tests/t5x/cli/test_main.py starts a trainer without them."""

from fakes import shell


def test_a_keras_that_was_imported_before_stays():
    program = """
import sys, types
keras = sys.modules["keras"] = types.ModuleType("keras")
from command_line import unused_tensorflow
print(sys.modules["keras"] is keras, "tensorboard.plugins.hparams._keras" in sys.modules)
"""
    assert shell.python(program) == ["True", "False"]


def test_other_unused_modules_are_empty():
    program = """
import sys
from command_line import unused_tensorflow
from tensorflow.python.keras.layers import Layer, core
from tensorflow_text.python.keras import layers
import tensorflow as tf
class Mine(Layer, core.Dense):
    pass
print(hasattr(Layer, "__wrapped__"), hasattr(layers, "__path__"))
print("tensorflow.lite.python.schema_py_generated" in sys.modules)
print(int(tf.constant(3)), tf.data.Dataset.range(2).cardinality().numpy())
"""
    assert shell.python(program) == ["False", "False", "False", "3", "2"]
