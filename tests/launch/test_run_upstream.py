"""Upstream's trainer gets absolute paths of checkpoints; tests/launch/test_train.py runs it."""

import os

from launch import run_upstream


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
