"""What upstream's trainer gets of a recipe; tests/launch/test_train.py runs it."""

import json
import os

import pytest

from launch import run_upstream
from t5x.checkpointing import layout


def test_local_paths_of_checkpoints_become_absolute():
    config = {
        ("INITIAL_CHECKPOINT_PATH", "gin.macro"): {"value": "runs/a/checkpoint_3"},
        ("", "t5x.utils.RestoreCheckpointConfig"): {"path": "gs://bucket/a", "mode": "specific"},
        ("x", "t5x.utils.RestoreCheckpointConfig"): {"path": "runs/b", "mode": "latest"},
        ("", "t5x.utils.DatasetConfig"): {"path": "left/alone"},
        ("MODEL_DIR", "gin.macro"): {"value": "left/alone"},
    }
    run_upstream.make_paths_absolute(config)
    assert [next(iter(values.values())) for values in config.values()] == [
        os.path.abspath("runs/a/checkpoint_3"),
        "gs://bucket/a",
        os.path.abspath("runs/b"),
        "left/alone",
        "left/alone",
    ]


# Of the newest checkpoint: the file of its data position, and what its writer added.
OURS = ("process_0.npz", {layout.HAS_POSITION: True})
THEIRS = ("train_ds-000-of-001.index", {})


@pytest.mark.parametrize(
    ("position", "saves"),
    [(None, True), (OURS, False), (("", {layout.HAS_POSITION: False}), False)]
    + [(THEIRS, True), (("", {}), False)],
)
def test_a_run_without_a_position_of_upstreams_is_resumed_without_it(
    position, saves, tmp_path, capsys
):
    for step, (file, metadata) in enumerate([THEIRS, position] if position else [], 1):
        folder = tmp_path / f"checkpoint_{step}"
        for name in ("state/_METADATA", file and f"dataset/{file}"):
            if name:
                (folder / name).parent.mkdir(parents=True)
                (folder / name).write_text("")
        content = {"custom_metadata": metadata, "commit_timestamp_nsecs": 1}
        (folder / "_CHECKPOINT_METADATA").write_text(json.dumps(content))
    settings = {"period": 100, "save_dataset": True}
    config = {("MODEL_DIR", "gin.macro"): {"value": str(tmp_path)}}
    config |= {("", "t5x.utils.SaveCheckpointConfig"): settings}
    run_upstream.resume_without_position(config)
    assert settings == {"period": 100, "save_dataset": saves}
    assert ("checkpoint_2" in capsys.readouterr().err) == (not saves)
