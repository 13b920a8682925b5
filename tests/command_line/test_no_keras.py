"""The trainer starts without Keras."""

import subprocess
import sys

import pytest

from fakes.paths import ROOT


@pytest.mark.parametrize(("before", "loaded"), [("", "False"), ("import keras", "True")])
def test_seqio_is_imported_without_keras_unless_it_was_imported_before(before, loaded):
    program = f"""
{before}
import sys
from command_line import no_keras
import seqio, clu.metric_writers
print(bool(sys.modules["keras"]), "matplotlib" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"{loaded} {loaded}\n", done.stderr
