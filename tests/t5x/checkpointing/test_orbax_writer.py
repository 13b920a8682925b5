"""Orbax's writer of a state and a data position, and its import for the first save."""

import pathlib

import numpy as np
import pytest

from fakes import shell
from t5x.checkpointing import layout, orbax_writer, reader


@pytest.mark.parametrize("has_position", [True, False])
def test_a_state_is_written_with_or_without_a_data_position(tmp_path, has_position):
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    writer = orbax_writer.make(timeout=60)
    write = lambda folder: pathlib.Path(folder, "position").write_text("here")
    arguments = orbax_writer.arguments({"target": {"w": kernel}}, write if has_position else None)
    writer.save(tmp_path / "checkpoint_3", args=arguments)
    writer.wait_until_finished()
    writer.close()
    assert layout.all_steps(str(tmp_path)) == [3]
    arrays = reader.open_checkpoint(str(tmp_path / "checkpoint_3"))
    np.testing.assert_array_equal(arrays["target/w"].read(), kernel)
    position = tmp_path / "checkpoint_3/dataset/position"
    assert position.exists() == has_position


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
