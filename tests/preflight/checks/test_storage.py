"""The start checkpoint fits the model, and the disk holds the checkpoints to come."""

import collections
import dataclasses
import os
import shutil

import jax
import pytest

from common.tables import FAILS, NOT_CHECKED, OK, WARNING, run_check
from fakes import toy, valid_run
from preflight import run_context
from preflight.aot import recipe_step
from preflight.checks import storage
from t5x.checkpointing import layer_stacking
from t5x.checkpointing.config import CheckpointConfig, RestoreCheckpointConfig
from t5x.checkpoints import Checkpointer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run's folder with a checkpoint at step 20."""
    folder = tmp_path_factory.mktemp("saved")
    specs = recipe_step.trainer_of(valid_run.run(folder)).specs
    state = toy.state(specs, step=20)
    with Checkpointer(str(folder), valid_run.saving()) as checkpointer:
        checkpointer.save(20, layer_stacking.unstack_layers(state.state_dict()))
        checkpointer.wait()
    return folder


def restoring(path, **settings):
    restore = RestoreCheckpointConfig(str(path), **{"mode": "specific", **settings})
    return CheckpointConfig(valid_run.saving(), restore)


def row(check, *arguments, **changes):
    return run_check("check", check, valid_run.context(*arguments, **changes))


def test_a_run_resumes_from_its_own_checkpoint(saved, tmp_path):
    found = row(storage.start, saved)
    assert (found.verdict, "checkpoint_20" in found.figure) == (OK, True)
    assert valid_run.context(saved).start.step == 20
    found = row(storage.model_dir, saved)
    assert (found.verdict, "up to 20" in found.figure) == (OK, True)
    assert "from scratch" in row(storage.start, tmp_path).figure


LARGER = {"num_encoder_layers": 2}


@pytest.mark.parametrize(
    ("restore", "network", "verdict", "said"),
    [
        ({}, {}, OK, "fit the model"),
        ({}, {"mlp_dim": 64}, FAILS, "is of another shape"),
        ({}, LARGER, FAILS, ""),
        ({"fallback_to_scratch": True}, LARGER, WARNING, "start from scratch"),
        ({"path": "absent/checkpoint_7"}, {}, FAILS, "does not exist"),
    ],
)
def test_the_checkpoint_of_another_run_is_matched(saved, restore, network, verdict, said, tmp_path):
    config = restoring(**{"path": saved / "checkpoint_20", **restore})
    changes = {"checkpoint_cfg": config, "model": valid_run.model(**network)}
    found = row(storage.start, tmp_path, **changes)
    assert (found.verdict, said in found.figure) == (verdict, True)


def test_a_state_of_another_optimizer_is_reported(saved, tmp_path):
    shutil.copytree(saved / "checkpoint_20", tmp_path / "checkpoint_20")
    (tmp_path / "model-info.txt").write_text("optimizer: optimizers.adamw\n")
    config = restoring(tmp_path / "checkpoint_20")
    found = row(storage.start, tmp_path / "new", checkpoint_cfg=config)
    assert (found.verdict, "optimizers.adamw" in found.figure) == (WARNING, True)


def test_an_unreachable_bucket_is_not_checked(tmp_path, monkeypatch):
    config = restoring("gs://bucket/checkpoint_1000000")
    found = row(storage.start, tmp_path, checkpoint_cfg=config, offline=True)
    assert (found.verdict, "--offline" in found.figure) == (NOT_CHECKED, True)

    def refuse(*_):
        raise OSError("planted")

    monkeypatch.setattr(run_context.socket, "create_connection", refuse)
    assert row(storage.start, tmp_path, checkpoint_cfg=config).verdict == NOT_CHECKED
    for check in (storage.model_dir, storage.disk):
        assert row(check, "gs://bucket/run").verdict == NOT_CHECKED


def test_a_data_position_must_have_shards_that_divide_the_batch(saved, monkeypatch, tmp_path):
    cfg = valid_run.TRAIN
    place = {"shards": 48, "seed": 0, "batch_size": 96, "pack": cfg.pack}
    place["TASK_FEATURE_LENGTHS"] = dict(cfg.task_feature_lengths)
    monkeypatch.setattr(storage.position, "saved", lambda folder: place)
    of_another = {"checkpoint_cfg": restoring(saved / "checkpoint_20", restore_dataset=True)}
    for folder, changes, setting in (
        (saved, {}, "utils.SaveCheckpointConfig.save_dataset = False"),
        (tmp_path, of_another, "utils.RestoreCheckpointConfig.restore_dataset = False"),
    ):
        found = row(storage.start, folder, **changes)
        assert found.verdict == FAILS
        assert "48 virtual shards" in found.figure
        assert "Misfit(" not in found.figure
        assert found.to_set.startswith("set BATCH_SIZE to a multiple of 48")
        assert setting in found.to_set
    place["shards"] = cfg.batch_size  # another number than a new run would have
    assert row(storage.start, saved).verdict == OK


def test_model_dir_is_tried_and_left_as_it_was(tmp_path):
    (tmp_path / "file").write_text("")
    found = row(storage.model_dir, tmp_path / "file" / "run")
    assert (found.verdict, "cannot be written" in found.figure) == (FAILS, True)
    assert row(storage.model_dir, tmp_path / "a" / "b").verdict == OK
    assert os.listdir(tmp_path) == ["file"]
    found = row(storage.model_dir, tmp_path, "v4-32")
    assert (found.verdict, "gs://" in found.to_set) == (WARNING, True)  # four hosts must share it


def parameter_count(folder):
    params = recipe_step.trainer_of(valid_run.run(folder)).specs.state.params
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def test_a_checkpoint_is_as_large_as_it_is_counted(saved):
    counted = storage.checkpoint_bytes(valid_run.context(saved))
    files = (p for p in (saved / "checkpoint_20" / "state").rglob("*") if p.is_file())
    parameters = 4 * parameter_count(saved)
    # Of arrays as small as these Adafactor keeps the full second moment.
    assert counted == pytest.approx(2 * parameters, rel=0.01)
    # The optimizer's state is zeros here, which take no space; their index does.
    assert 0.9 * parameters < sum(p.stat().st_size for p in files) < counted


BEST = {"keep_best": 2, "metric": "training_eval/a_task/loss"}


@pytest.mark.parametrize(
    ("save", "kept"),
    [
        ({}, 3),
        ({"keep": None}, 10),
        ({"keep": 20}, 10),
        ({"keep": 20, "period": 30}, 4),
        ({"period": None}, 0),
        ({"period": 1000}, 1),
        ({"checkpoint_steps": [50, 500]}, 4),
        (BEST, 5),
        (BEST | {"checkpoint_steps": [50]}, 6),
        (BEST | {"period": None}, 5),
    ],
)
def test_kept_checkpoints_are_counted(save, kept, tmp_path):
    config = CheckpointConfig(valid_run.saving(**save), None)
    context = valid_run.context(tmp_path, checkpoint_cfg=config)
    assert storage.checkpoints_kept(context) == kept
    found = run_check("check", storage.checkpoints, context)
    assert found.numbers["bytes"] == kept * storage.checkpoint_bytes(context)
    assert found.verdict == (WARNING if save == {"keep": None} else OK)


def test_bfloat16_takes_half(tmp_path):
    config = CheckpointConfig(valid_run.saving(dtype="bfloat16"), None)
    half = storage.checkpoint_bytes(valid_run.context(tmp_path, checkpoint_cfg=config))
    full = storage.checkpoint_bytes(valid_run.context(tmp_path))
    assert full - half == 2 * parameter_count(tmp_path)


def test_a_full_disk_is_found(tmp_path, monkeypatch):
    usage = collections.namedtuple("Usage", "total used free")
    each = storage.checkpoint_bytes(valid_run.context(tmp_path))
    for free, verdict in ((3.9, FAILS), (4.1, WARNING), (5.0, OK)):
        found = usage(0, 0, free * each)
        monkeypatch.setattr(storage.shutil, "disk_usage", lambda path, found=found: found)
        assert row(storage.disk, tmp_path / "not" / "made").verdict == verdict
    unsaved = dataclasses.replace(valid_run.saving(), period=None)
    config = CheckpointConfig(unsaved, None)
    assert row(storage.disk, tmp_path, checkpoint_cfg=config).verdict == OK


def test_checkpoints_that_are_there_make_no_room_where_none_is_deleted(
    saved, tmp_path, monkeypatch
):
    for step in range(10, 80, 10):
        shutil.copytree(saved / "checkpoint_20", tmp_path / f"checkpoint_{step}")
    usage = collections.namedtuple("Usage", "total used free")
    each = storage.checkpoint_bytes(valid_run.context(tmp_path))
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: usage(0, 0, 2 * each))
    for keep, verdict in ((3, OK), (None, FAILS)):  # three more are saved, at steps 80 to 100
        config = CheckpointConfig(valid_run.saving(keep=keep), None)
        assert row(storage.disk, tmp_path, checkpoint_cfg=config).verdict == verdict
