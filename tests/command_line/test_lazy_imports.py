"""pyglove is loaded when it is used, and not before."""

from fakes import shell


def test_it_is_loaded_when_it_is_used():
    program = """
import sys
import t5x
import seqio
print("pyglove.core" in sys.modules)
print(seqio.dataset_providers.pg.hyper.HyperPrimitive.__name__, "pyglove.core" in sys.modules)
"""
    assert shell.python(program) == ["False", "HyperPrimitive", "True"]


def test_a_walk_over_all_modules_loads_it():
    program = """
import sys
import t5x
import seqio
print(all(hasattr(module, "__name__") for module in list(sys.modules.values()) if module))
print("pyglove.core" in sys.modules)
"""
    assert shell.python(program) == ["True", "True"]


def test_it_stays_if_it_was_imported_before():
    program = """
import pyglove
import t5x
import seqio
print(seqio.dataset_providers.pg is pyglove)
"""
    assert shell.python(program) == ["True"]
