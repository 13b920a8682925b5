"""Where a run resumes, in the documented order."""

import pathlib
import shutil

import numpy as np

from fakes.refuses import refuses
from t5x import checkpoints
from t5x.checkpointing import layout
from t5x.checkpointing.config import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.start.checkpoint import (
    Start,
    delete_damaged_after,
    find_start,
    first_sound,
    last_step,
    record_first_step,
)

STATE = {"target": {"w": np.zeros(2, np.float32)}}


def place(folder):
    (pathlib.Path(folder) / "place").write_text("here")


def checkpoint(folder, *steps, dataset=False):
    config = SaveCheckpointConfig(save_dataset=True)
    with checkpoints.Checkpointer(str(folder), config) as checkpointer:
        for step in steps:
            checkpointer.save(step, STATE, place if dataset else None)
    return str(folder)


def test_a_damaged_checkpoint_of_the_run_is_skipped_for_the_previous_one(tmp_path, caplog):
    own = checkpoint(tmp_path / "own", 2, 5, 9)
    seen = []

    def damaged_after(step):
        def read(start):
            seen.append(start.step)
            if start.step > step:
                raise DamagedCheckpoint(str(start.step), why="is damaged", to_set="restore another")
            return start.step

        return read

    start, result = first_sound(find_start(own, None), damaged_after(2))
    assert (start.path, result, seen) == (f"{own}/checkpoint_2", 2, [9, 5, 2])
    assert start.passed == ("9 is damaged", "5 is damaged")
    assert len(caplog.messages) == 2
    with refuses(f"All 3 checkpoints in {own}", kind=DamagedCheckpoint) as refusal:
        first_sound(find_start(own, None), damaged_after(0))
    assert refusal.value.why.endswith("9 is damaged, and 5 is damaged, and 2 is damaged")
    assert layout.all_steps(own) == [2, 5, 9]  # nothing goes before something was read
    delete_damaged_after(start)
    assert layout.all_steps(own) == [2]
    foreign = find_start(str(tmp_path / "new"), RestoreCheckpointConfig(own))
    with refuses("2", kind=DamagedCheckpoint):
        first_sound(foreign, damaged_after(0))
    delete_damaged_after(foreign)
    delete_damaged_after(find_start(str(tmp_path / "new"), None))
    assert layout.all_steps(own) == [2]


def test_the_runs_own_checkpoint_comes_before_the_one_it_began_with(tmp_path):
    own = checkpoint(tmp_path / "own", 2, 5)
    other = checkpoint(tmp_path / "other", 9)
    restore = RestoreCheckpointConfig(other, mode="latest")
    assert find_start(own, restore).path == f"{own}/checkpoint_5"
    assert find_start(own, restore).config is None

    started = find_start(str(tmp_path / "new"), restore)
    assert started.path == f"{other}/checkpoint_9"
    assert started.config is restore

    for none in (None, RestoreCheckpointConfig([])):
        scratch = find_start(str(tmp_path / "new"), none)
        assert (scratch.path, scratch.dataset_folder) == (None, None)


def test_training_starts_from_one_checkpoint(tmp_path):
    other = checkpoint(tmp_path / "other", 1)
    with refuses("RestoreCheckpointConfig.mode", "all"):
        find_start(str(tmp_path / "new"), RestoreCheckpointConfig(other, mode="all"))
    with refuses("RestoreCheckpointConfig.dtype", "bfloat16"):
        find_start(str(tmp_path / "new"), RestoreCheckpointConfig(other, dtype="bfloat16"))
    with refuses("RestoreCheckpointConfig.path", str(tmp_path)):
        find_start(str(tmp_path / "new"), RestoreCheckpointConfig(str(tmp_path)))


def test_the_place_in_the_data_is_the_runs_own_unless_asked_for(tmp_path):
    path = checkpoint(tmp_path / "run", 4, dataset=True)
    folder = f"{path}/checkpoint_4/dataset"
    start = Start(f"{path}/checkpoint_4", None)
    assert start.dataset_folder == folder
    for wanted, found in ((False, None), (True, folder)):
        config = RestoreCheckpointConfig(path, restore_dataset=wanted)
        assert Start(start.path, config).dataset_folder == found
    assert find_start(path, None).dataset_folder == folder
    assert find_start(path, None, has_position=False).dataset_folder is None


def test_steps_of_another_run_count_on(tmp_path):
    path = checkpoint(tmp_path / "run", 4)
    begun = Start(f"{path}/checkpoint_4", RestoreCheckpointConfig(path))
    resumed, scratch = find_start(path, None), Start(None, None)
    assert [s.is_own for s in (begun, resumed, scratch)] == [False, True, False]
    unnamed = Start(f"{path}/converted", RestoreCheckpointConfig(path))
    assert [s.known_step for s in (begun, scratch, unnamed)] == [4, 0, None]
    assert unnamed.step == 0


def test_relative_steps_count_from_where_the_run_began(tmp_path):
    own = str(tmp_path / "own")
    begun = checkpoint(tmp_path / "other", 30, 70)
    specific = RestoreCheckpointConfig(f"{begun}/checkpoint_30", "specific")
    assert last_step(own, 100, None, specific) == 100
    assert last_step(own, 100, 0, specific) == 100
    assert last_step(own, 0, 5, specific) == 35
    assert last_step(own, 0, 5, RestoreCheckpointConfig(begun)) == 75
    assert last_step(own, 100, 5, None) == 5
    assert last_step(own, 100, 5, RestoreCheckpointConfig(None)) == 5


def test_relative_steps_stay_where_they_began_though_the_source_trains_on(tmp_path):
    own, begun = str(tmp_path / "own"), checkpoint(tmp_path / "other", 30)
    latest = RestoreCheckpointConfig(begun)
    (tmp_path / "own").mkdir()
    record_first_step(own, 30)
    checkpoint(tmp_path / "other", 70)
    assert last_step(own, 0, 5, latest) == 75  # nothing is saved of the first start
    checkpoint(tmp_path / "own", 32)
    assert last_step(own, 0, 5, latest) == 35
    shutil.rmtree(begun)
    assert last_step(own, 0, 5, latest) == 35


def test_relative_steps_need_a_step_in_the_checkpoints_name(tmp_path):
    own = str(tmp_path / "own")
    begun = checkpoint(tmp_path / "other", 30)
    renamed = pathlib.Path(begun, "checkpoint_30").rename(tmp_path / "base")
    with refuses("train.relative_steps") as refusal:
        last_step(own, 0, 5, RestoreCheckpointConfig(str(renamed), "specific"))
    assert str(renamed) in refusal.value.why
