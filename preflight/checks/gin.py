"""Checks of the gin settings: periods, partitions, batch and task, without reading any data."""

import math

import seqio

from common.tables import CheckResult, counted, ok, warning
from preflight.aot import recipe_step
from preflight.run_context import RunContext
from t5x import schedules
from t5x import train as train_script
from t5x.inference import evaluator
from t5x.loop import cooldown, selection_metric, triggers

_PERIOD = "utils.SaveCheckpointConfig.period"


def periods(context: RunContext) -> CheckResult:
    """Check that periods and learning rate fit the steps, and that steps and saves are left."""
    run = context.run
    cfgs = {"train_eval": run.train_eval_dataset_cfg, "infer_eval": run.infer_eval_dataset_cfg}
    save = run.checkpoint_cfg.save
    evaluated, logged = run.eval_period, run.stats_period
    plan = train_script.training_plan(cfgs, save, run.total_steps, evaluated, logged)
    triggers.check_periods(plan, context.first_step)
    rate = recipe_step.bare_trainer(run).learning_rate_fn
    rate = cooldown.cooled(rate, run.cooldown_from, run.total_steps)
    if context.own_step is None:
        schedules.check_start(rate, context.restored_step, run.total_steps)
    first, left = context.first_step, context.steps_left
    figure = f"steps {first:,} to {run.total_steps:,}"
    if not left:
        return warning(f"{figure}: no steps are left to train", f"TRAIN_STEPS above {first}")
    if not (plan.save_period or plan.checkpoint_steps):
        return warning(f"{figure}, and no checkpoint is saved", f"{_PERIOD} = 10000")
    if plan.save_period and plan.save_period > left:
        return warning(
            f"{figure}, saved every {plan.save_period:,}: only the last step is saved",
            f"{_PERIOD} to less than {left}",
        )
    suits = None if context.own_step else getattr(run.model.optimizer_def, "usual_rates", None)
    if suits and (unusual := suits.unusual(rate, first, run.total_steps)):
        return warning(unusual)
    evaluated = f"evaluated every {plan.eval_period:,}" if plan.eval_period else "never evaluated"
    return ok(f"{figure}, saved every {plan.save_period or 0:,}, {evaluated}")


def partitions(context: RunContext) -> CheckResult:
    """Check that the slice's devices can be divided into copies of the model."""
    copies, count = _copies(context), context.run.partitioner.num_partitions
    return ok(
        f"{counted(context.tpu.device_count, 'device')} of {counted(context.tpu.chips, 'chip')}: "
        f"{counted(copies, 'copy')} of the model on {counted(count, 'device')} each"
    )


def _copies(context: RunContext) -> int:
    """Return the number of copies of the model, or raise ValueError if devices are left over."""
    count, devices = context.run.partitioner.num_partitions, context.tpu.device_count
    if devices % count:
        fitting = ", ".join(str(n) for n in range(1, devices + 1) if devices % n == 0)
        flag = "--gin.partitioning.PjitPartitioner.num_partitions"
        others = f" (one of {fitting})" if devices > 1 else ""
        raise ValueError(
            f"num_partitions is {count}, which does not divide the {counted(devices, 'device')} of "
            f"{context.tpu.name}; pass {flag}={math.gcd(count, devices)}{others}."
        )
    return devices // count


def batch(context: RunContext) -> CheckResult:
    """Check that copies of the model divide each batch, and microbatches a training batch."""
    copies = _copies(context)
    for scope, cfg in context.datasets.items():
        parts = context.microbatches if scope == "train" else 1
        if cfg.batch_size % (copies * parts):
            raise ValueError(
                f"{scope}/utils.DatasetConfig.batch_size is {cfg.batch_size}, not a multiple of "
                f"{copies} copies × {parts} microbatches; set BATCH_SIZE to a multiple of "
                f"{copies * parts}, or trainer.Trainer.num_microbatches or num_partitions."
            )
    rows, parts = context.data.batch_size, context.microbatches
    cut = f" in {parts} microbatches" if parts > 1 else ""
    return ok(f"{rows} rows{cut}: {rows // (copies * parts)} at a time for each copy of the model")


def task(context: RunContext) -> CheckResult:
    """Check that the task is registered and has the splits and metrics that the run uses."""
    missing = []
    for scope, cfg in context.datasets.items():
        for found in seqio.get_subtasks(cfg.provider):
            splits = found.splits or ()  # a slice of one is in them too
            if cfg.split in splits:
                continue
            fault = f"task {found.name} has no split {cfg.split!r}, only {', '.join(splits)}"
            if scope == "train":
                raise ValueError(f"{fault}; set train/utils.DatasetConfig.split to one of these.")
            missing.append((fault, f"{scope}/utils.DatasetConfig.split"))
        if scope == "infer_eval":
            selection_metric.check_split(scope, cfg)
            evaluator.check_metrics(cfg)
            evaluator.check_decoding(context.run.model)
    save = context.run.checkpoint_cfg.save
    scopes = dict.fromkeys(selection_metric.SCOPES.values())
    actions = getattr(context.run, "actions", None)
    selection_metric.check({**scopes, **context.datasets}, save, actions)
    if missing:
        fault, setting = missing[0]
        to_set = f"{setting}, or {selection_metric.HOLD_OUT}"
        return warning(f"{fault}: it is not evaluated", to_set)
    steps = context.run.eval_steps
    if context.run.train_eval_dataset_cfg and steps < 1:
        raise ValueError(f"train.eval_steps is {steps}; set EVAL_STEPS to at least 1.")
    datasets = context.datasets.values()
    return ok(", ".join(f"{cfg.provider.name} ({cfg.split})" for cfg in datasets))
