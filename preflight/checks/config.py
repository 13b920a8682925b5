"""Checks of what the gin files say: periods, batch and partitions, task, lengths.

Each takes a `subject.Subject` and gives a `verdicts.Row`; nothing is read but task definitions.
"""

import dataclasses

import seqio

from preflight.aot import recipe_step
from preflight.results import Row, many, ok, warning
from preflight.run_context import Subject
from t5x import schedules
from t5x import train as door
from t5x.inference import predictor
from t5x.loop import selection_metric, triggers

_PERIOD = "utils.SaveCheckpointConfig.period"


def periods(s: Subject) -> Row:
    """Steps, periods and learning rate fit; something is left to train, and something saved."""
    run = s.run
    plan = door.plan_of(run.checkpoint_cfg, run.total_steps, run.eval_period, run.stats_period)
    if not (run.train_eval_dataset_cfg or run.infer_eval_dataset_cfg):
        plan = dataclasses.replace(plan, eval_period=None)
    triggers.check_periods(plan, s.first_step)
    if s.own_step is None:
        rate = recipe_step.settings(run).learning_rate_fn
        schedules.check_start(rate, s.other_step, run.total_steps)
    figure = f"steps {s.first_step:,} to {run.total_steps:,}"
    if not s.steps_left:
        return warning(f"{figure}: nothing is left to train", f"TRAIN_STEPS above {s.first_step}")
    if not (plan.save_period or plan.checkpoint_steps):
        return warning(f"{figure}, and nothing is saved", f"{_PERIOD} = 10000")
    if plan.save_period and plan.save_period > s.steps_left:
        return warning(
            f"{figure}, saved every {plan.save_period:,}: only the end is saved",
            f"{_PERIOD} to less than {s.steps_left}",
        )
    evaluated = f"evaluated every {plan.eval_period:,}" if plan.eval_period else "never evaluated"
    return ok(f"{figure}, saved every {plan.save_period or 0:,}, {evaluated}")


def partitions(s: Subject) -> Row:
    """The slice's devices can be cut into copies of the model."""
    count, devices = s.run.partitioner.num_partitions, s.tpu.device_count
    if devices % count:
        fitting = ", ".join(str(n) for n in range(1, devices + 1) if devices % n == 0)
        raise ValueError(
            f"num_partitions is {count}, which does not divide the {devices} devices of "
            f"{s.tpu.name}; set partitioning.PjitPartitioner.num_partitions to one of {fitting}."
        )
    copies = many(devices // count, "copy")
    on = many(count, "device")
    return ok(f"{devices} devices of {s.tpu.chips} chips: {copies} of the model on {on} each")


def batch(s: Subject) -> Row:
    """Every batch can be cut over the copies of the model, and a training batch into its parts."""
    devices, count = s.tpu.device_count, s.run.partitioner.num_partitions
    if devices % count:
        raise ValueError(f"num_partitions {count} does not divide the {devices} devices.")
    copies = devices // count
    for scope, cfg in s.datasets.items():
        parts = s.microbatches if scope == "train" else 1
        if cfg.batch_size % (copies * parts):
            raise ValueError(
                f"{scope}/utils.DatasetConfig.batch_size is {cfg.batch_size}, not a multiple of "
                f"{copies} copies × {parts} microbatches; set BATCH_SIZE to a multiple of "
                f"{copies * parts}, or trainer.Trainer.num_microbatches or num_partitions."
            )
    rows = s.data.batch_size // (copies * s.microbatches)
    parts = f" in {s.microbatches} microbatches" if s.microbatches > 1 else ""
    return ok(f"{s.data.batch_size} rows{parts}: {rows} at a time for each copy of the model")


def task(s: Subject) -> Row:
    """The task is registered and has the splits and metrics that the run asks for."""
    missing = []
    for scope, cfg in s.datasets.items():
        for found in seqio.get_subtasks(cfg.provider):
            splits = tuple(found.splits or ())
            if cfg.split in splits:
                continue
            said = f"task {found.name} has no split {cfg.split!r}, only {', '.join(splits)}"
            if scope == "train":
                raise ValueError(f"{said}; set train/utils.DatasetConfig.split to one of these.")
            missing.append((said, f"{scope}/utils.DatasetConfig.split"))
        if scope == "infer_eval":
            selection_metric.check_split(scope, cfg)
            predictor.check_metrics(cfg)
            predictor.check_decoding(s.run.model)
    save = s.run.checkpoint_cfg.save
    scopes = dict.fromkeys(selection_metric.SCOPES.values())
    selection_metric.check({**scopes, **s.datasets}, save, getattr(s.run, "actions", None))
    if missing:
        said, setting = missing[0]
        return warning(f"{said}: it is not evaluated", f"{setting}, or {selection_metric.HOLD_OUT}")
    if s.run.train_eval_dataset_cfg and s.run.eval_steps < 1:
        raise ValueError(f"train.eval_steps is {s.run.eval_steps}; set EVAL_STEPS to at least 1.")
    return ok(", ".join(f"{cfg.provider.name} ({cfg.split})" for cfg in s.datasets.values()))
