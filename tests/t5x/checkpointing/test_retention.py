"""The best checkpoints are found by value, remembered over restarts, and never deleted."""

import json
import math

import numpy as np
import pytest

from fakes import toy
from t5x.checkpointing import retention
from t5x.checkpointing.config import RestoreCheckpointConfig, SaveCheckpointConfig, checkpoint_paths
from t5x.checkpointing.retention import BestCheckpoints
from t5x.checkpoints import Checkpointer

METRIC = "inference_eval/toy/exact"


def results(value):
    return {"inference_eval": {"toy": {"exact": value}}}


def saved(folder, *steps):
    """Make folders that count as complete checkpoints."""
    for step in steps:
        (folder / f"checkpoint_{step}").mkdir()
        (folder / f"checkpoint_{step}" / "checkpoint").write_bytes(b"")


@pytest.mark.parametrize(
    ("mode", "keep", "values", "best", "news"),
    [
        ("max", 1, [0.5, 0.9, 0.7], [2], [True, True, False]),
        ("min", 1, [0.5, 0.9, 0.7], [1], [True, False, False]),
        ("max", 2, [0.5, 0.9, 0.7], [2, 3], [True, True, True]),
        ("max", 1, [0.5, 0.5], [1], [True, False]),  # of equal ones the earlier
        ("max", 1, [math.nan, 0.1], [2], [False, True]),
    ],
)
def test_the_best_are_found_and_remembered(tmp_path, mode, keep, values, best, news):
    found = BestCheckpoints(str(tmp_path), keep, METRIC, mode)
    for step, (value, new) in enumerate(zip(values, news, strict=True), 1):
        saved(tmp_path, step)
        assert found.record(step, results(np.float32(value))) is new
        assert found.is_best_so_far(step) is (new and (keep == 1 or step < 3))
    assert found.steps() == best
    assert BestCheckpoints(str(tmp_path), keep, METRIC, mode).steps() == best
    assert retention.best_checkpoint(str(tmp_path)) == f"{tmp_path}/checkpoint_{best[0]}"
    assert BestCheckpoints(str(tmp_path), keep, "training_eval/toy/loss", mode).steps() == []
    record = json.loads((tmp_path / "best.json").read_text())
    assert (record["metric"], record["mode"], record["keep"]) == (METRIC, mode, keep)


def test_only_existing_checkpoints_count(tmp_path):
    found = BestCheckpoints(str(tmp_path), 1, METRIC, "max")
    found.record(1, results(0.9))
    found.record(2, results(0.8))
    assert found.steps() == []
    saved(tmp_path, 2)
    assert found.steps() == [2]


def test_evaluations_of_another_kind_are_ignored(tmp_path):
    found = BestCheckpoints(str(tmp_path), 1, METRIC, "max")
    assert not found.record(1, {"training_eval": {"toy": {"loss": 1.0}}})
    assert not found.record(1, {})
    assert not BestCheckpoints(str(tmp_path), None, None, "max").record(1, results(0.5))
    with pytest.raises(ValueError, match="inference_eval/toy/other"):
        found.record(1, {"inference_eval": {"toy": {"other": 1.0}}})


def test_the_best_outlives_newer_ones(tmp_path):
    config = SaveCheckpointConfig(keep=1, keep_best=1, metric=METRIC)
    state = {"target": {"w": np.ones(2, np.float32)}}
    for step, value in [(1, 0.5), (2, 0.9), (3, 0.7), (4, 0.6)]:
        with Checkpointer(str(tmp_path), config) as checkpointer:  # a restart each time
            checkpointer.save(step, state)
            checkpointer.best.record(step, results(value))
    assert sorted(p.name for p in tmp_path.glob("checkpoint_*")) == ["checkpoint_2", "checkpoint_4"]
    best = RestoreCheckpointConfig(str(tmp_path), mode="best")
    assert checkpoint_paths(best) == [f"{tmp_path}/checkpoint_2"]


def test_a_missing_record_is_refused(tmp_path):
    saved(tmp_path, 5)
    with pytest.raises(ValueError, match="best"):
        checkpoint_paths(RestoreCheckpointConfig(str(tmp_path), mode="best"))


def test_a_run_saves_its_best_evaluation_beside_its_newest(tmp_path, monkeypatch):
    """Evaluated at 2, 4, 6 and 8, saved at 8 alone: of the best, 4, there is a checkpoint."""
    values = {2: 3.0, 4: 1.0, 6: 2.0, 8: 2.5}
    seen = []

    def evaluate(self, batches):
        seen.append(int(self.state.step))
        loss = values[seen[-1]]
        return {"unnormalized_loss_per_target_token": loss, "accuracy": 0.0}

    monkeypatch.setattr("t5x.trainer.Trainer.evaluate", evaluate)
    metric = f"training_eval/{toy.TASK}/unnormalized_loss_per_target_token"
    save = {"period": 8, "keep": 1, "keep_best": 1, "metric": metric, "mode": "min"}
    toy.train(
        tmp_path, save, train_eval_dataset_cfg=toy.data("validation"), eval_period=2, stats_period=2
    )
    assert seen == [2, 4, 6, 8]
    assert sorted(p.name for p in tmp_path.glob("checkpoint_*")) == ["checkpoint_4", "checkpoint_8"]
