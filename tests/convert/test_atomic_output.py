import errno
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import SafetensorError

from common.errors import Failure
from convert import atomic_output
from convert.formats import safetensors_writer, t5x_checkpoint_writer
from fakes.convert_fakes import tree
from fakes.refuses import refuses

ARRAYS = tree({"target/a": np.ones((3, 2), np.float32)})


def test_a_conversion_replaces_an_older_one_and_nothing_else(tmp_path):
    folder = tmp_path / "checkpoint_1"
    for text in ("old", "new"):
        with atomic_output.staged(folder) as temporary:
            (temporary / text).write_text(text)
            atomic_output.write_record(temporary, {})
    assert {path.name for path in folder.iterdir()} == {"new", atomic_output.RECORD}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_1"]
    (folder / atomic_output.RECORD).unlink()
    with refuses(folder):
        with atomic_output.staged(folder):
            pytest.fail("the folder holds other files")
    assert (folder / "new").read_text() == "new"


def test_files_that_appear_while_it_converts_stay(tmp_path):
    folder = tmp_path / "checkpoint_1"
    with refuses(folder), atomic_output.staged(folder):
        folder.mkdir()
        (folder / "notes").write_text("mine")
    assert [path.name for path in tmp_path.rglob("*")] == ["checkpoint_1", "notes"]


def test_a_full_disk_is_reported_before_and_during(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**9))
    atomic_output.check_disk_space(tmp_path, 10**8)
    with refuses(tmp_path):
        atomic_output.check_disk_space(tmp_path, 2 * 10**9)


def safetensors_fails(folder):
    safetensors_writer.write(folder, ARRAYS, "float32")


def checkpoint_fails(folder):
    t5x_checkpoint_writer.write(folder / "checkpoint_1", ARRAYS)


def disk_fails(folder):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("write", [safetensors_fails, checkpoint_fails, disk_fails])
def test_a_disk_that_fills_up_leaves_nothing(tmp_path, monkeypatch, write):
    def full(kind, text):
        def raising(*_, **__):
            raise kind(f"{text}: No space left on device [OS error 28]")

        return raising

    monkeypatch.setattr("safetensors.numpy.save_file", full(SafetensorError, "I/O error"))
    monkeypatch.setattr("tensorstore.TensorStore.write", full(ValueError, "RESOURCE_EXHAUSTED"))
    with refuses(tmp_path / "made", kind=Failure):
        with atomic_output.staged(tmp_path / "made" / "checkpoint_1") as folder:
            write(folder)
    assert list(tmp_path.iterdir()) == []
