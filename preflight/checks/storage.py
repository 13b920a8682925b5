"""Checks of folders: what the run starts from, what MODEL_DIR holds, is there room for more."""

import math
import os
import shutil
from pathlib import Path
from typing import Any

import jax

from preflight import reachability
from preflight.aot import recipe_step
from preflight.results import NotChecked, Row, fails, many, ok, warning
from preflight.run_context import Subject
from t5x import batches
from t5x.checkpointing import layout
from t5x.checkpointing.restore import match
from t5x.loop import model_dir as model_folder

GB = 1e9  # as disks and buckets are sold


def model_dir(s: Subject) -> Row:
    """MODEL_DIR can be written, and what it holds is known."""
    folder = s.run.model_dir
    reachability.require(folder, s.offline)
    made = None if reachability.is_remote(folder) else _first_missing(Path(folder))
    model_folder.check_writable(folder)
    steps = layout.all_steps(folder)
    if made:
        _remove_empty(made, Path(folder))
    figure = f"{folder} can be written and holds no checkpoint"
    if steps:
        held = many(len(steps), "checkpoint")
        newest = ", ".join(f"{step:,}" for step in steps[-3:])
        figure = f"{folder} can be written and holds {held}, up to {newest}"
    if s.tpu.hosts > 1 and not reachability.is_remote(folder):
        figure += f"; the {s.tpu.hosts} hosts of {s.tpu.name} must share it"
        return warning(figure, "MODEL_DIR to a bucket, gs://…")
    return ok(figure)


def _first_missing(folder: Path) -> Path | None:
    """The outermost folder on the way that is not there."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    return missing[-1] if missing else None


def _remove_empty(made: Path, folder: Path) -> None:
    """Takes away what the check alone has made."""
    for path in (folder, *folder.parents):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        if path == made:
            return


def start(s: Subject) -> Row:
    """What the run starts from is there, and its shapes are the model's."""
    run = s.run
    reachability.require(run.model_dir, s.offline)
    restore, save = run.checkpoint_cfg.restore, run.checkpoint_cfg.save
    if not layout.latest_checkpoint(run.model_dir) and restore and restore.path:
        paths = [restore.path] if isinstance(restore.path, str) else restore.path
        for path in paths:
            reachability.require(path, s.offline)
    found = model_folder.find_start(run.model_dir, restore, bool(save and save.save_dataset))
    if found.path is None:
        return ok("from scratch")
    matched = match(found.path, recipe_step.state_on_one_device(run).on_disk, found.config)
    saved = batches.saved_stream(found.dataset_folder)
    if saved and saved["shards"] != s.shards:
        raise ValueError(
            f"{found.path} holds the position of {saved['shards']} virtual shards and this run on "
            f"{s.tpu.name} has {s.shards}; set BATCH_SIZE as it was, or "
            "utils.SaveCheckpointConfig.save_dataset = False to begin the corpus again."
        )
    figure = f"{found.path}: {len(matched.sources)} arrays fit the model"
    absent = [name for name in matched.wanted if name not in matched.sources]
    parameters = [name for name in absent if name.startswith("target/")]
    if parameters or matched.ignored:
        left = [f"{len(parameters)} start from scratch"] if parameters else []
        left += [f"{len(matched.ignored)} of its own are left out"] if matched.ignored else []
        return warning(f"{figure}, {' and '.join(left)}")
    if matched.why_no_optimizer:
        return warning(f"{figure}; the optimizer starts afresh: {matched.why_no_optimizer}")
    return ok(figure)


def checkpoints(s: Subject) -> Row:
    """How much room the kept checkpoints take."""
    save = s.run.checkpoint_cfg.save
    each = checkpoint_bytes(s)
    count = kept(s)
    figure = f"{each / GB:.3g} GB each, {count} kept: {count * each / GB:.3g} GB"
    numbers = {"bytes_each": each, "kept": count, "bytes": count * each}
    if count and save.keep is None:
        todo = "utils.SaveCheckpointConfig.keep = 5"
        return warning(f"{figure}, since none is deleted", todo, numbers=numbers)
    return ok(figure, numbers=numbers)


def checkpoint_bytes(s: Subject) -> int:
    """Bytes of one checkpoint, before compression."""
    save = s.run.checkpoint_cfg.save
    on_disk = recipe_step.state_on_one_device(s.run).on_disk
    width = {"bfloat16": 2, "float32": 4}.get(save.dtype if save else None)
    return _bytes(on_disk["target"], width) + _bytes(on_disk["state"])


def _bytes(tree: Any, width: int | None = None) -> int:
    return sum(math.prod(x.shape) * (width or x.dtype.itemsize) for x in jax.tree.leaves(tree))


def kept(s: Subject) -> int:
    """How many checkpoints there will be at the end."""
    save = s.run.checkpoint_cfg.save
    if not save:
        return 0
    lasting = {at for at in save.checkpoint_steps or () if s.first_step < at <= s.run.total_steps}
    if not save.period and not lasting:
        return 0
    by_period = 1
    if save.period:
        by_period = s.run.total_steps // save.period - s.first_step // save.period
        by_period = max(by_period, 1)
    return min(save.keep or by_period, by_period) + len(lasting)


def disk(s: Subject) -> Row:
    """The disk has room for the checkpoints, and for one more while it is written."""
    folder = s.run.model_dir
    if reachability.is_remote(folder):
        raise NotChecked(f"{folder} is a bucket, which has room as long as it is paid for")
    if not kept(s):
        return ok("nothing is saved")
    there = Path(os.path.abspath(folder))
    there = next(path for path in (there, *there.parents) if path.exists())
    free = shutil.disk_usage(there).free
    # What is there already will make room for what comes.
    held = len(layout.all_steps(folder))
    needed = max(kept(s) + 1 - held, 1) * checkpoint_bytes(s)
    figure = f"{free / GB:,.1f} GB free of {needed / GB:,.1f} GB needed at {there}"
    numbers = {"free": free, "needed": needed}
    if free < needed:
        todo = "utils.SaveCheckpointConfig.keep lower, or MODEL_DIR on a larger disk"
        return fails(figure, todo, numbers=numbers)
    if free < 1.2 * needed:
        figure += ", little to spare"
        return warning(figure, "MODEL_DIR on a larger disk", numbers=numbers)
    return ok(figure, numbers=numbers)
