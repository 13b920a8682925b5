"""Checkpoint settings are checked at once, and paths lead to checkpoints."""

import pytest

from fakes.checkpoints import saved
from t5x.checkpointing.config import RestoreCheckpointConfig, SaveCheckpointConfig, checkpoint_paths


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
    ("name", "mode", "message"),
    [
        ("nowhere", "specific", "nowhere: the path does not exist"),
        ("nowhere", "latest", "nowhere has no folder checkpoint_<step>"),
        ("empty", "specific", "holds no checkpoint: neither a file"),
        ("run", "specific", "a folder of 1; name one, such as .*checkpoint_1.*mode = 'latest'"),
        ("run/checkpoint_1", "latest", "is itself a checkpoint: set .*mode = 'specific'"),
        ("tf/model.ckpt-100", "specific", "TensorFlow checkpoint"),
    ],
)
def test_a_path_without_a_checkpoint_is_refused_with_the_reason(tmp_path, name, mode, message):
    saved(str(tmp_path / "run"), 1)
    for folder in ("empty", "tf"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tf/model.ckpt-100.index").write_text("")
    with pytest.raises(ValueError, match=message):
        checkpoint_paths(RestoreCheckpointConfig(str(tmp_path / name), mode=mode))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SaveCheckpointConfig(dtype="int8"), "dtype is 'int8'; set it to one of"),
        (lambda: RestoreCheckpointConfig("x", mode="newest"), "mode is 'newest'"),
        (lambda: RestoreCheckpointConfig("x", is_tensorflow=True), "is_tensorflow is not support"),
        (lambda: RestoreCheckpointConfig("x", state_transformation_fns=[len]), "not supported"),
        (lambda: RestoreCheckpointConfig("x", assignment_map=[("(", None)]), "not a regular expr"),
    ],
)
def test_a_configuration_that_means_nothing_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
