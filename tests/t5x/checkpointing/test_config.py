"""Checkpoint settings are checked at once, and paths lead to checkpoints."""

import pytest

from fakes.checkpoints import saved
from fakes.refuses import refuses
from t5x.checkpointing.config import RestoreCheckpointConfig, checkpoint_paths


def test_paths_are_resolved_by_mode_and_skipped_if_missing(golden, tmp_path):
    run = str(tmp_path / "run")
    saved(run, 1, 2)
    legacy = str(golden.folder / "legacy/checkpoint_25")
    empty = str(tmp_path)

    def paths(path, mode):
        return checkpoint_paths(RestoreCheckpointConfig(path, mode=mode))

    assert paths(run, "latest") == paths([empty, run], "latest") == [f"{run}/checkpoint_2"]
    assert paths(run, "all") == [f"{run}/checkpoint_1", f"{run}/checkpoint_2"]
    assert paths([f"{run}/checkpoint_3", legacy], "specific") == [legacy]
    assert paths(f"{legacy}/checkpoint", "specific") == [legacy]


@pytest.mark.parametrize(
    ("name", "mode", "remedy"),
    [
        ("nowhere", "specific", ""),
        ("nowhere", "latest", "CHECKPOINT_PATH"),
        ("empty", "specific", ""),
        ("run", "specific", "mode = 'latest'"),
        ("run/checkpoint_1", "latest", "mode = 'specific'"),
        ("tf/model.ckpt-100", "specific", "T5X"),
    ],
)
def test_a_path_without_a_checkpoint_is_refused_with_the_reason(tmp_path, name, mode, remedy):
    saved(str(tmp_path / "run"), 1)
    for folder in ("empty", "tf"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tf/model.ckpt-100.index").write_text("")
    path = str(tmp_path / name)
    with refuses() as refusal:
        checkpoint_paths(RestoreCheckpointConfig(path, mode=mode))
    assert path in (refusal.value.setting, refusal.value.value)
    assert remedy in refusal.value.to_set


def test_several_paths_without_a_checkpoint_are_all_named(tmp_path):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    with refuses() as refusal:
        checkpoint_paths(RestoreCheckpointConfig(paths, mode="specific"))
    assert all(path in refusal.value.why for path in paths)


@pytest.mark.parametrize("settings", [{"is_tensorflow": True}, {"state_transformation_fns": [len]}])
def test_what_is_not_supported_is_refused(settings):
    with refuses(f"RestoreCheckpointConfig.{next(iter(settings))}"):
        RestoreCheckpointConfig("x", **settings)
