"""A committed checkpoint is complete, anything else is not, and only remains are removed."""

import json
import os
import shutil
import time

import pytest
from etils import epath

from fakes.checkpoints import saved, state
from t5x.checkpointing import layout
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.checkpointing.restore import restore
from t5x.checkpoints import Checkpointer


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "run")


def test_a_checkpoint_that_was_never_committed_is_not_complete(run):
    # As in a bucket, where a save writes under the final name and marks the end.
    folder = saved(run, 1, 2)
    os.remove(f"{folder}/commit_success.txt")
    assert layout.latest_step(run) == 2  # copied by a tool that left out the mark
    with open(f"{folder}/_CHECKPOINT_METADATA", "w") as file:
        json.dump({"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": None}, file)
    assert layout.latest_step(run) == 1
    with pytest.raises(ValueError, match="checkpoint_2"):
        restore(folder, state())
    Checkpointer(run).close()
    assert os.listdir(run) == ["checkpoint_1"]


def test_foreign_folders_are_neither_steps_nor_removed(golden, run):
    saved(run, 1)
    shutil.copytree(golden.folder / "legacy/checkpoint_25", f"{run}/checkpoint_25")
    for name in ("checkpoint_7", "checkpoint_x", "checkpoint_9.tmp-123"):
        os.mkdir(f"{run}/{name}")
    Checkpointer(run).close()
    assert layout.all_steps(run) == [1, 25]
    assert len(os.listdir(run)) == 5
    assert [layout.kind(f"{run}/checkpoint_{n}") for n in (1, 25)] == ["orbax", "legacy"]


def test_steps_are_ascending_numbers_and_the_latest_is_the_last(tmp_path):
    assert layout.all_steps(str(tmp_path / "nowhere")) == []
    assert layout.latest_checkpoint(str(tmp_path)) is None
    for step in (100, 20, 3):
        (tmp_path / f"checkpoint_{step}").mkdir()
        (tmp_path / f"checkpoint_{step}" / "checkpoint").write_bytes(b"")
    assert layout.all_steps(str(tmp_path)) == [3, 20, 100]
    assert layout.latest_checkpoint(str(tmp_path)) == f"{tmp_path}/checkpoint_100"


def test_the_time_of_a_save_is_that_of_its_newest_mark(run):
    folder = saved(run, 1)
    found = layout.saved_at(folder)
    assert abs(found - time.time()) < 600
    assert layout.saved_at(f"{run}/checkpoint_7") == 0
    os.utime(f"{folder}/_CHECKPOINT_METADATA", (found + 5, found + 5))
    assert layout.saved_at(folder) == found + 5


def test_a_changed_or_missing_file_is_damage(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    layout.check_checksums(str(tmp_path))  # of T5X, which writes none
    layout.write_checksums(epath.Path(tmp_path))
    layout.check_checksums(str(tmp_path))
    (tmp_path / "b").write_text("c")
    with pytest.raises(DamagedCheckpoint, match="/b"):
        layout.check_checksums(str(tmp_path))
    (tmp_path / "b").write_text("b")
    (tmp_path / "a").unlink()
    with pytest.raises(DamagedCheckpoint, match="/a"):
        layout.check_checksums(str(tmp_path))


def test_a_deletion_that_is_interrupted_leaves_no_complete_checkpoint(run, monkeypatch):
    folder = saved(run, 1)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(epath.Path(folder)), "rmtree", interrupt)
    with pytest.raises(KeyboardInterrupt):
        layout.remove(folder)
    monkeypatch.undo()
    assert layout.all_steps(run) == []
    assert len(layout.remove_leftovers(run)) == 1
    assert os.listdir(run) == []


def test_a_checkpoint_that_has_lost_its_index_is_damaged_and_stays(run):
    saved(run, 1, 2, 3)
    shutil.rmtree(f"{run}/checkpoint_2/state")
    os.mkdir(f"{run}/checkpoint_4")
    for content in ("[]", "{", "7"):
        with open(f"{run}/checkpoint_2/_CHECKPOINT_METADATA", "w") as file:
            file.write(content)
        assert layout.all_steps(run) == [1, 3]
        assert layout.damaged_steps(run) == [2]  # and not the empty folder
        assert layout.remove_leftovers(run) == []
    with open(f"{run}/checkpoint_2/_CHECKPOINT_METADATA", "w") as file:
        json.dump({"commit_timestamp_nsecs": None}, file)
    os.remove(f"{run}/checkpoint_2/commit_success.txt")
    assert layout.damaged_steps(run) == []  # but an interrupted save


def test_a_position_that_is_gone_is_damage_unless_the_oldest_go_first(run):
    def place(folder):
        with open(f"{folder}/place", "w") as file:
            file.write("here")

    with Checkpointer(run, SaveCheckpointConfig(save_dataset=True)) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step), place)
    layout.check_position(run, 2)
    shutil.rmtree(f"{run}/checkpoint_2/dataset")
    with pytest.raises(DamagedCheckpoint, match="checkpoint_2/dataset"):
        layout.check_position(run, 2)
    shutil.rmtree(f"{run}/checkpoint_1/dataset")
    layout.check_position(run, 2)
