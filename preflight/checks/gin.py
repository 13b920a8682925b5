"""Checks of the gin settings: periods, partitions, batch and task, without reading any data.

They call what `t5x.train` calls before it starts.
"""

import seqio

from common.errors import UserError
from common.tables import CheckResult, counted, ok, warning
from preflight.run_context import RunContext
from t5x.cli import dry_run
from t5x.loop import triggers
from t5x.start import cooldown, preconditions, selection_metric

_PERIOD = "utils.SaveCheckpointConfig.period"


def periods(context: RunContext) -> CheckResult:
    """Check that periods and learning rate fit the steps, and that steps and saves are left."""
    run, start, left = context.run, context.start, context.steps_left
    evaluates = bool(run.train_eval_dataset_cfg or run.infer_eval_dataset_cfg)
    plan = triggers.training_plan(
        run.total_steps, run.eval_period, run.stats_period, run.checkpoint_cfg.save, evaluates
    )
    triggers.check_end(plan, start.step)
    rate, optimizer = context.trainer.learning_rate_fn, run.model.optimizer_def
    cooldown.check_optimizer(run.cooldown_from, optimizer)
    unusual = None
    if not start.is_own:
        unusual = preconditions.check_rate(rate, optimizer, start, run.total_steps)
    figure = f"steps {start.step:,} to {run.total_steps:,}"
    if not left:
        to_set = f"set TRAIN_STEPS above {start.step}"
        if run.relative_steps:  # `TRAIN_STEPS` is not used then
            to_set = f"set TRAIN_STEPS_RELATIVE above {run.relative_steps}"
        return warning(f"{figure}: no steps are left to train", to_set)
    if not (plan.save_period or plan.checkpoint_steps):
        return warning(f"{figure}, and no checkpoint is saved", f"set {_PERIOD} = 10000")
    if plan.save_period and plan.save_period > left:
        return warning(
            f"{figure}, saved every {plan.save_period:,}: only the last step is saved",
            f"set {_PERIOD} to less than {left}",
        )
    if unusual:
        return warning(unusual)
    evaluated = f"evaluated every {plan.eval_period:,}" if plan.eval_period else "never evaluated"
    return ok(f"{figure}, saved {dry_run.saves(plan, start.step)}, {evaluated}")


def partitions(context: RunContext) -> CheckResult:
    """Check that the slice's devices can be divided into copies of the model."""
    copies, count = context.partitioner.mesh.devices.shape
    return ok(
        f"{counted(context.tpu.device_count, 'device')} of {counted(context.tpu.chips, 'chip')}: "
        f"{counted(copies, 'copy')} of the model on {counted(count, 'device')} each"
    )


def batch(context: RunContext) -> CheckResult:
    """Check that copies of the model divide each batch, and microbatches a training batch."""
    rows, parts = context.data.batch_size, context.trainer.num_microbatches
    for scope, cfg in context.datasets.items():
        name = f"{scope}/utils.DatasetConfig.batch_size"
        context.partitioner.check_batch(cfg.batch_size, parts if scope == "train" else None, name)
    at_a_time = rows // (context.partitioner.mesh.shape["data"] * parts)
    cut = f" in {parts} microbatches" if parts > 1 else ""
    return ok(f"{rows} rows{cut}: {at_a_time} at a time for each copy of the model")


def task(context: RunContext) -> CheckResult:
    """Check that the task is registered and has the splits and metrics that the run uses."""
    missing = []
    for scope, cfg in context.datasets.items():
        setting = f"{scope}/utils.DatasetConfig.split"
        for part in seqio.get_subtasks(cfg.provider):
            splits = context.splits(part)
            if cfg.split in splits:
                continue
            why = f"which task {part.name} does not have, only {', '.join(splits)}"
            error = UserError(setting, cfg.split, why, "set it to one of these")
            if scope == "train":
                raise error
            missing.append(error)
        if scope != "train":
            selection_metric.check_split(scope, cfg)
        if scope == "infer_eval":
            preconditions.check_metrics(cfg)
            preconditions.check_decoding(context.run.model)
    save = context.run.checkpoint_cfg.save
    scopes = dict.fromkeys(selection_metric.SCOPES.values())
    selection_metric.check({**scopes, **context.datasets}, save, context.run.actions)
    if missing:
        to_set = f"{missing[0].to_set}, or {selection_metric.HOLD_OUT}"
        return warning(f"{missing[0].fault}: it is not evaluated", to_set)
    if context.run.train_eval_dataset_cfg:
        preconditions.check_eval_steps(context.run.eval_steps)
    datasets = context.datasets.values()
    figure = ", ".join(f"{cfg.provider.name} ({cfg.split})" for cfg in datasets)
    if (count := len(context.tasks(context.data))) > 1:
        figure += f"; the corpus below is {context.task.name}, the first of {count} tasks"
    return ok(figure)
