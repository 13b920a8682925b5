"""Parts of what seqio imports are loaded when they are used, and not before."""

from fakes import shell


def test_pyglove_is_loaded_when_it_is_used():
    program = """
import sys
import t5x
import seqio
print("pyglove.core" in sys.modules)
print(seqio.dataset_providers.pg.hyper.HyperPrimitive.__name__, "pyglove.core" in sys.modules)
"""
    assert shell.python(program) == ["False", "HyperPrimitive", "True"]


def test_a_walk_over_all_modules_loads_pyglove():
    program = """
import sys
import t5x
import seqio
print(all(hasattr(module, "__name__") for module in list(sys.modules.values()) if module))
print("pyglove.core" in sys.modules)
"""
    assert shell.python(program) == ["True", "True"]


def test_pyglove_stays_if_it_was_imported_before():
    program = """
import pyglove
import t5x
import seqio
print(seqio.dataset_providers.pg is pyglove)
"""
    assert shell.python(program) == ["True"]


TEXT = """
import sys
import t5x
import seqio
import tensorflow_text
others = lambda: "tensorflow_text.python.ops.mst_ops" in sys.modules
"""


def test_sentencepiece_is_loaded_without_the_other_operations_of_tensorflow_text():
    program = """
print(any(name.startswith("tensorflow_text.python.ops.") for name in sys.modules))
print(tensorflow_text.FastSentencepieceTokenizer.__name__, others())
"""
    assert shell.python(TEXT + program) == ["False", "FastSentencepieceTokenizer", "False"]


def test_the_other_operations_are_loaded_when_one_is_used():
    program = """
tokenizer = tensorflow_text.SentencepieceTokenizer
print(tensorflow_text.WhitespaceTokenizer().tokenize("a b").numpy().tolist())
print(others(), tensorflow_text.SentencepieceTokenizer is tokenizer)
from tensorflow_text import BertTokenizer
from tensorflow_text.python.ops import Splitter, mst_ops
print(BertTokenizer.__name__, Splitter.__name__, hasattr(tensorflow_text, "nothing"))
"""
    expected = ["[b'a',", "b'b']", "True", "True", "BertTokenizer", "Splitter", "False"]
    assert shell.python(TEXT + program) == expected
