"""The packages that import TensorFlow prepare its import, and do not import it themselves."""

import pytest

from fakes import shell


@pytest.mark.parametrize("package", ["t5x", "tasks"])
def test_a_package_prepares_the_import_of_tensorflow(package):
    program = f"""
import os, sys
os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)
import {package}
print(os.environ["TF_ENABLE_ONEDNN_OPTS"], sys.modules["keras"], "tensorflow" in sys.modules)
"""
    assert shell.python(program) == ["0", "None", "False"]
