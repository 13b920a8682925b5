"""Finds where a run starts, and the step that its `relative_steps` count from.

    start = find_start("runs/tiny", restore)         # Start("runs/tiny/checkpoint_300", None)
    start, state = first_sound(start, read)          # an older one where `read` finds damage
    delete_damaged_after(start)

If the run has checkpoints of its own, it starts at the newest one that `read` can read. If all of
them are damaged, `first_sound` raises DamagedCheckpoint. If the run has none, it starts at the
checkpoint that `restore`, a RestoreCheckpointConfig, names, or else at step 0. Nothing here reads
an array: `read` does.

If a run sets `relative_steps`, `last_step` returns the step at which it ends. `record_first_step`
writes down the step that they count from, so that a resumed run ends at the same step.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
from absl import logging
from etils import epath

from common.errors import UserError
from common.small_files import read_json
from common.storage_wait import answer
from t5x.checkpointing import layout
from t5x.checkpointing.config import RestoreCheckpointConfig, checkpoint_paths
from t5x.checkpointing.lazy_array import DamagedCheckpoint, parsing
from t5x.multihost.broadcast import broadcast_from_first

T = TypeVar("T")
_FIRST_STEP = "first_step.json"


@dataclasses.dataclass(frozen=True)
class Start:
    """The checkpoint a run starts from."""

    path: str | None  # None to start from scratch
    # Set for another run's checkpoint; None for the run's own.
    config: RestoreCheckpointConfig | None
    has_position: bool = True  # whether the run's own checkpoints hold a data position
    passed: tuple[str, ...] = ()  # why newer checkpoints of the run were skipped, each by name

    @property
    def is_own(self) -> bool:
        """Whether this run saved the checkpoint itself."""
        return self.path is not None and self.config is None

    @property
    def folder_and_step(self) -> tuple[str, int]:
        """Folder and step of a checkpoint that this run saved, and therefore named, itself."""
        assert self.path is not None
        assert self.known_step is not None
        return os.path.dirname(self.path), self.known_step

    @property
    def known_step(self) -> int | None:
        """The step at which training starts, None if the checkpoint's name does not show it."""
        return layout.step_of(self.path) if self.path else 0

    @property
    def step(self) -> int:
        """The step in the checkpoint's name, else 0."""
        return self.known_step or 0

    @property
    def dataset_folder(self) -> str | None:
        """The folder of the data position, None to start the corpus over."""
        is_restored = self.config.restore_dataset if self.config else self.has_position
        return layout.dataset_folder(self.path) if self.path and is_restored else None

    def check_data_position(self) -> None:
        """Raise DamagedCheckpoint, on all hosts, if the data position is not as saved."""

        def damage() -> dict[str, str] | None:
            try:
                if self.is_own and self.has_position:
                    layout.check_position(*self.folder_and_step)
                elif self.dataset_folder:
                    layout.check_checksums(self.dataset_folder)
            except DamagedCheckpoint as error:
                return error.as_fields
            return None

        if damaged := broadcast_from_first(damage):
            raise DamagedCheckpoint(**damaged)


def find_start(
    model_dir: str, restore: RestoreCheckpointConfig | None, has_position: bool = True
) -> Start:
    """Return the start of a run: a checkpoint or step 0.

    1. From the newest complete checkpoint in `model_dir`, which is this run's own.
    2. From the checkpoint that `restore` names.
    3. From scratch.

    Raise UserError if `restore` names no checkpoint that exists, or several; DamagedCheckpoint,
    which names all, if all of the run's own have lost what makes them complete.
    """
    newest, passed = broadcast_from_first(
        lambda: answer(f"MODEL_DIR {model_dir}", lambda: _newest(model_dir, None))
    )
    if newest or passed:
        return _own_start(model_dir, newest, passed, has_position)
    if restore is None or not restore.path:
        return Start(None, None)
    if restore.mode == "all":
        raise UserError(
            "RestoreCheckpointConfig.mode",
            "all",
            "which names many checkpoints, and training starts from one",
            "set it to 'specific' or 'latest'",
        )
    if restore.dtype not in (None, "float32"):
        raise UserError(
            "RestoreCheckpointConfig.dtype",
            restore.dtype,
            "but training keeps its parameters in float32",
            "set it to 'float32', and network.T5Config.dtype to the dtype of computations",
        )
    named = f"RestoreCheckpointConfig.path {restore.path}"
    find = lambda: answer(named, lambda: checkpoint_paths(restore))[0]
    return Start(broadcast_from_first(find), restore)


def first_sound(start: Start, read: Callable[[Start], T]) -> tuple[Start, T]:
    """Return the first start that `read` can read, from `start` to older ones, and its result.

    `read` raises DamagedCheckpoint on all hosts or on none. Raise it if there is no start: it names
    all checkpoints of the run, or the one of another run.
    """
    while True:
        try:
            return start, read(start)
        except DamagedCheckpoint as damage:
            if not start.is_own:
                raise
            folder, damaged = start.folder_and_step
            newest, older = broadcast_from_first(functools.partial(_newest, folder, damaged))
            passed = [damage.fault, *older]
            start = _own_start(folder, newest, passed, start.has_position, start.passed)


def _newest(model_dir: str, before: int | None) -> tuple[str | None, list[str]]:
    """Return the newest complete checkpoint, or None, and why newer ones are not complete."""
    complete, damaged = layout.all_steps(model_dir), layout.damaged_steps(model_dir)
    if before is not None:
        complete, damaged = ([s for s in steps if s < before] for steps in (complete, damaged))
    newest = complete[-1] if complete else None
    passed = [layout.step_folder(model_dir, s) for s in damaged if newest is None or s > newest]
    reasons = [layout.no_checkpoint(path).fault for path in reversed(passed)]
    return None if newest is None else layout.step_folder(model_dir, newest), reasons


def _own_start(
    model_dir: str,
    newest: str | None,
    passed: Sequence[str],
    has_position: bool,
    before: tuple[str, ...] = (),
) -> Start:
    """Return the start from the checkpoint `newest`.

    Later checkpoints are damaged. `before` has the reasons of those that earlier attempts found,
    `passed` the reasons of those found since, which are logged. Together they run from the newest
    checkpoint to the oldest. Raise DamagedCheckpoint, which names all, if `newest` is None.
    """
    if newest:
        for reason in passed:
            logging.warning("%s; resuming from %s instead.", reason, newest)
        return Start(newest, None, has_position, (*before, *passed))
    passed = (*before, *passed)
    if len(passed) == 1:
        raise DamagedCheckpoint(
            why=passed[0],
            to_set="it is the only one of this run: remove it, and the same command starts over",
        )
    raise DamagedCheckpoint(
        f"All {len(passed)} checkpoints in {model_dir}",
        why=f"are damaged: {', and '.join(passed)}",
        to_set="put one back from a copy, or remove them, and the same command starts over",
    )


def delete_damaged_after(start: Start) -> None:
    """Delete the run's checkpoints after `start`, which were found damaged.

    Call it only after `start` was read completely. Then the storage could be reached, and the
    others are really damaged.
    """
    if not start.is_own or jax.process_index():
        return
    model_dir, intact = start.folder_and_step
    for step in layout.all_steps(model_dir):
        if step > intact:
            folder = layout.step_folder(model_dir, step)
            logging.warning("Deleting %s, which is damaged.", folder)
            layout.remove(folder)


def last_step(
    model_dir: str,
    total_steps: int,
    relative_steps: int | None,
    restore: RestoreCheckpointConfig | None,
) -> int:
    """Return the step at which a run ends: `total_steps`, or `relative_steps` after its first.

    Upstream counts `relative_steps` from the newest checkpoint, so a run gets longer each time it
    is resumed. Here they count from the checkpoint of `restore`, or from 0. If `restore` names a
    folder whose newest checkpoint is taken, a run that resumes counts from the one that it began
    with (`record_first_step`). Raise UserError if the checkpoint's name does not say its step, or
    if it has to be searched for and does not exist.
    """
    if not relative_steps:
        return total_steps
    if restore is None or not restore.path:
        return relative_steps
    return broadcast_from_first(lambda: _first_step(model_dir, restore)) + relative_steps


def record_first_step(model_dir: str, step: int) -> None:
    """Write the step that a run's `relative_steps` count from; other hosts write nothing.

    When this run resumes, the source run may have newer checkpoints or no longer exist.
    """
    if jax.process_index() == 0:
        (epath.Path(model_dir) / _FIRST_STEP).write_text(json.dumps({"step": step}))


def _first_step(model_dir: str, restore: RestoreCheckpointConfig) -> int:
    """Return what `record_first_step` wrote for a run that resumes, else the step of `restore`."""
    path, record = restore.path, epath.Path(model_dir) / _FIRST_STEP
    if restore.mode != "specific" or not isinstance(path, str) or layout.step_of(path) is None:
        if layout.latest_step(model_dir) is not None and record.exists():
            with parsing(record):
                return int(read_json(record)["step"])
        path = checkpoint_paths(restore)[0]
    # By name alone, since the checkpoint may be deleted when the run resumes.
    first = layout.step_of(path)
    if first is None:
        raise UserError(
            "train.relative_steps",
            why=f"is set, but the name of {path} does not say its step",
            to_set="rename it to checkpoint_<step>, or set TRAIN_STEPS and leave relative_steps "
            "at None",
        )
    return first
