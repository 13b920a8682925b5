"""Wrong steps, batches, partitions and tasks are found, and valid ones pass."""

import dataclasses
import functools

import pytest

from common.tables import FAILS, OK, WARNING, run_check
from fakes import toy, valid_run
from preflight.checks import checklist
from preflight.checks import gin as checks
from t5x import optimizers
from t5x.checkpointing.config import CheckpointConfig, RestoreCheckpointConfig
from t5x.partitioning import PjitPartitioner
from t5x.schedules import create_learning_rate_scheduler
from t5x.trainer import Trainer

ALL = (checks.periods, checks.partitions, checks.batch, checks.task)


@pytest.mark.parametrize("check", ALL)
def test_a_valid_run_passes(check, tmp_path):
    assert run_check("check", check, valid_run.context(tmp_path)).verdict == OK


def save(**changes):
    return CheckpointConfig(valid_run.saving(**changes))


PINNED = save(period=None, checkpoint_steps=[50])


def trainer(parts):
    return functools.partial(Trainer, learning_rate_fn=toy.rate, num_microbatches=parts)


def best(metric):
    return CheckpointConfig(valid_run.saving(keep_best=1, metric=metric))


def late(**settings):
    """A run that starts at step 1,000,000, and its schedule."""
    rate = create_learning_rate_scheduler("constant * linear_warmup * decay_every", **settings)
    restore = RestoreCheckpointConfig("gs://bucket/checkpoint_1000000", "specific")
    return {
        "checkpoint_cfg": CheckpointConfig(valid_run.saving(), restore),
        "trainer_cls": functools.partial(Trainer, learning_rate_fn=rate),
        "total_steps": 1_000_100,
    }


def constant(rate, optimizer=None):
    """A run at a constant rate, with Adafactor or another optimizer."""
    model = valid_run.model()
    model.optimizer_def = optimizer or model.optimizer_def
    rate = create_learning_rate_scheduler("constant", rate)
    return {"model": model, "trainer_cls": functools.partial(Trainer, learning_rate_fn=rate)}


def data(**changes):
    return dataclasses.replace(valid_run.TRAIN, **changes)


FAULTS = [
    (checks.periods, {"total_steps": -1}, FAILS, "total_steps"),
    (checks.periods, {"total_steps": 0}, WARNING, "no steps are left to train"),
    (checks.periods, {"total_steps": 0, "relative_steps": 9}, WARNING, "RELATIVE above 9"),
    (checks.periods, {"checkpoint_cfg": save(period=None)}, WARNING, "no checkpoint is saved"),
    (checks.periods, {"checkpoint_cfg": PINNED}, OK, "saved at 1 step of checkpoint_steps and at"),
    (checks.periods, {"checkpoint_cfg": save(period=200)}, WARNING, "only the last step"),
    (checks.periods, late(), FAILS, "step_offset to 1000000"),
    (checks.periods, late(step_offset=10**6, warmup_steps=9, steps_per_cycle=91), OK, ""),
    (checks.periods, constant(9.0), WARNING, "is 9 at its peak, and adafactor.Adafactor usually"),
    (checks.periods, constant(0.01, optimizers.muon()), FAILS, "muon needs a rate that falls to"),
    (checks.partitions, {"partitioner": PjitPartitioner(3)}, FAILS, "num_partitions"),
    (checks.batch, {"train_dataset_cfg": data(batch_size=6)}, FAILS, "multiple of 4"),
    (checks.batch, {"train_eval_dataset_cfg": data(batch_size=6)}, FAILS, "train_eval"),
    (checks.batch, {"trainer_cls": trainer(3)}, FAILS, "multiple of 12"),
    (checks.batch, {"trainer_cls": trainer(4)}, OK, "1 at a time"),
    (checks.task, {"train_eval_dataset_cfg": data(split="test")}, FAILS, "does not have"),
    (checks.task, {"train_dataset_cfg": data(split="test")}, FAILS, "split is 'test'"),
    (checks.task, {"infer_eval_dataset_cfg": data()}, FAILS, "metric_fns"),
    (checks.task, {"checkpoint_cfg": best(f"training_eval/{valid_run.TASK}/los")}, FAILS, "'loss'"),
    (checks.task, {"eval_steps": 0}, FAILS, "EVAL_STEPS"),
    (
        checks.task,
        {"train_dataset_cfg": data(mixture_or_task_name="ro_mini_span_corruptoin")},
        FAILS,
        "ro_mini_span_corruption",
    ),
]


@pytest.mark.parametrize(("check", "changes", "verdict", "said"), FAULTS)
def test_a_fault_is_found(check, changes, verdict, said, tmp_path):
    row = run_check("check", check, valid_run.context(tmp_path, **changes))
    assert row.verdict == verdict, row
    assert said in f"{row.figure} {row.to_set}"


def test_a_missing_task_is_a_fault_of_one_check(tmp_path):
    unknown = data(mixture_or_task_name="nowhere")
    context = valid_run.context(tmp_path, train_dataset_cfg=unknown)
    found = {name: run_check(name, check, context).verdict for name, check in checklist.RUN}
    assert [name for name, verdict in found.items() if verdict == FAILS] == ["task"]
