"""Orbax is imported for the first save."""

import pytest

from fakes import shell


@pytest.mark.slow
def test_a_run_that_saves_nothing_does_not_import_orbax(tmp_path):
    program = f"""
import sys
from t5x import train, infer
from t5x.checkpoints import Checkpointer
with Checkpointer({str(tmp_path)!r}) as checkpointer:
    print("orbax.checkpoint" in sys.modules)
    checkpointer.save(1, dict(target=dict()))
print("orbax.checkpoint" in sys.modules, checkpointer.last_complete)
"""
    assert shell.python(program) == ["False", "True", "1"]
