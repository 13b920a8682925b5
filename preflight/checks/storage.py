"""Checks of folders: the checkpoint to start from, MODEL_DIR, and disk space for checkpoints."""

import math
import os
import shutil
from pathlib import Path

import jax

from common.errors import UserError
from common.tables import CheckResult, NotChecked, counted, data_size, fails, ok, warning
from preflight.run_context import RunContext, is_remote
from t5x.array_types import PyTree
from t5x.checkpointing import layout
from t5x.cli import dry_run
from t5x.input_pipeline import position
from t5x.start.checkpoint import find_start
from t5x.start.model_dir import check_writable
from t5x.start.state import match


def model_dir(context: RunContext) -> CheckResult:
    """Check that MODEL_DIR can be written, and list its checkpoints."""
    folder = context.run.model_dir
    context.require_reachable(folder)
    check_writable(folder)
    steps = layout.all_steps(folder)
    content = "no checkpoint"
    if steps:
        newest = ", ".join(f"{step:,}" for step in steps[-3:])
        content = f"{counted(len(steps), 'checkpoint')}, up to {newest}"
    figure = f"{folder} can be written and holds {content}"
    if context.tpu.hosts > 1 and not is_remote(folder):
        figure += f"; the {context.tpu.hosts} hosts of {context.tpu.name} must share it"
        return warning(figure, "set MODEL_DIR to a bucket, gs://…")
    return ok(figure)


def start(context: RunContext) -> CheckResult:
    """Check that the checkpoint to start from exists and has the model's shapes."""
    run = context.run
    context.require_reachable(run.model_dir)
    restore = run.checkpoint_cfg.restore
    if restore and not layout.latest_checkpoint(run.model_dir):
        for path in restore.paths:
            context.require_reachable(path)
    origin = find_start(run.model_dir, restore, run.checkpoint_cfg.saves_position)
    if origin.path is None:
        return ok("from scratch")
    matched = match(origin, context.trainer)
    saved = position.saved(origin.dataset_folder)
    if saved and (unfit := position.misfit(saved, context.data)):
        setting = "SaveCheckpointConfig.save_dataset"
        if not origin.is_own:
            setting = "RestoreCheckpointConfig.restore_dataset"
        to_set = f"{unfit.to_set}, or set utils.{setting} = False to start the corpus over"
        raise UserError(origin.path, why=unfit.why, to_set=to_set)
    return dry_run.start(origin.path, matched)


def checkpoints(context: RunContext) -> CheckResult:
    """Check how much space the kept checkpoints take."""
    size, count = checkpoint_bytes(context), checkpoints_kept(context)
    figure = f"{data_size(size)} each, {count} kept: {data_size(count * size)}"
    numbers = {"bytes_each": size, "kept": count, "bytes": count * size}
    if count and context.run.checkpoint_cfg.save.keep is None:
        to_set = "set utils.SaveCheckpointConfig.keep = 5"
        return warning(f"{figure}, since none is deleted", to_set, numbers=numbers)
    return ok(figure, numbers=numbers)


def checkpoint_bytes(context: RunContext) -> int:
    """Return the bytes of one checkpoint, before compression."""
    save = context.run.checkpoint_cfg.save
    on_disk = context.trainer.specs.on_disk
    width = {"bfloat16": 2, "float32": 4}.get(save.dtype) if save and save.dtype else None
    return _bytes(on_disk["target"], width) + _bytes(on_disk["state"])


def _bytes(tree: PyTree, width: int | None = None) -> int:
    return sum(math.prod(x.shape) * (width or x.dtype.itemsize) for x in jax.tree.leaves(tree))


def checkpoints_kept(context: RunContext) -> int:
    """Return the number of checkpoints at the end."""
    save, first, last = context.run.checkpoint_cfg.save, context.start.step, context.run.total_steps
    if not save:
        return 0
    lasting = {step for step in save.checkpoint_steps or () if first < step <= last}
    best = save.keep_best or 0  # besides the newest
    if not save.period and not lasting:
        return best and best + (save.keep or 0)
    by_period = 1  # the last step is saved in any case
    if save.period:
        by_period = max(math.ceil(last / save.period) - first // save.period, 1)
    return min(save.keep or by_period, by_period) + len(lasting) + best


def disk(context: RunContext) -> CheckResult:
    """Check that the disk holds the checkpoints, and one more while it is written."""
    folder = context.run.model_dir
    if is_remote(folder):
        raise NotChecked(f"{folder} is a bucket, whose size is not limited")
    count = checkpoints_kept(context)
    if not count:
        return ok("no checkpoint is saved")
    path = Path(os.path.abspath(folder))
    existing = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    # Checkpoints of earlier steps are deleted as new ones are saved, unless all are kept.
    deleted = len(layout.all_steps(folder)) if context.run.checkpoint_cfg.save.keep else 0
    needed = max(count + 1 - deleted, 1) * checkpoint_bytes(context)
    figure = f"{data_size(free)} free at {existing}, {data_size(needed)} needed"
    numbers = {"free": free, "needed": needed}
    if free < needed:
        to_set = "set utils.SaveCheckpointConfig.keep lower, or MODEL_DIR on a larger disk"
        return fails(figure, to_set, numbers=numbers)
    if free < 1.2 * needed:
        to_set = "set MODEL_DIR on a larger disk"
        return warning(f"{figure}, little to spare", to_set, numbers=numbers)
    return ok(figure, numbers=numbers)
