"""Branch off a run: start at its checkpoint and data position, and lower the rate to 0.

`train.cooldown_from` names the checkpoint. The source run is not changed and may train on, so one
long run at a constant rate yields finished models of several lengths (Hägele et al. 2024, arXiv
2405.18392).
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax

from common.errors import UserError
from t5x import schedules
from t5x.checkpointing import layout
from t5x.checkpointing.config import CheckpointConfig, RestoreCheckpointConfig


def branch(
    cooldown_from: str | None,
    relative_steps: int | None,
    model_dir: str,
    checkpoint_cfg: CheckpointConfig,
    restore_dataset: bool = True,
) -> CheckpointConfig:
    """Return the configuration that starts at `cooldown_from`; None leaves it as it is.

    Without `restore_dataset` the branch begins its corpora, in the order of its own seed.

    When the branch resumes, the source's checkpoint is not needed any more: it has its own. Raise
    UserError if its name has no step, the branch has no end, or `model_dir` is the source run.
    """
    if cooldown_from is None:
        return checkpoint_cfg
    path = cooldown_from.rstrip("/")
    if layout.step_of(path) is None:
        raise UserError(
            "train.cooldown_from",
            cooldown_from,
            "whose name does not say its step",
            "set COOLDOWN_FROM to a checkpoint of a run, RUN/checkpoint_<step>",
        )
    if not relative_steps:
        raise UserError(
            "train.cooldown_from",
            cooldown_from,
            f"but train.relative_steps {relative_steps}, so that the cooldown has no end",
            "set TRAIN_STEPS_RELATIVE to its steps, a tenth to a fifth of those before it, say",
        )
    if _absolute(os.path.dirname(path)) == _absolute(model_dir):
        raise UserError(
            "MODEL_DIR",
            model_dir,
            "the run of train.cooldown_from, which would then train on from the cooldown",
            "set MODEL_DIR to another folder",
        )
    restore = RestoreCheckpointConfig(path, mode="specific", restore_dataset=restore_dataset)
    return dataclasses.replace(checkpoint_cfg, restore=restore)


def check_optimizer(cooldown_from: str | None, optimizer: Any) -> None:
    """Raise UserError if a branch is to lower the rate, and the optimizer has one of its own."""
    if cooldown_from is not None and getattr(optimizer, "has_own_rate", False):
        raise UserError(
            "train.cooldown_from",
            cooldown_from,
            f"but OPTIMIZER, a {type(optimizer).__name__}, has a learning rate of its own, which "
            "would not fall",
            "leave COOLDOWN_FROM at None, set RestoreCheckpointConfig.path to the checkpoint, and "
            "OPTIMIZER to one whose own rate falls",
        )


def cooled(
    rate: Callable[..., jax.Array], cooldown_from: str | None, total_steps: int
) -> Callable[..., jax.Array]:
    """Return `rate` times a straight line from 1 at the branch's first step to 0 at `total_steps`.

    Return `rate` itself if `cooldown_from`, which `branch` has checked, is None. Raise UserError if
    the schedule of the source run has ended before the branch.
    """
    if cooldown_from is None:
        return rate
    first = layout.step_of(cooldown_from.rstrip("/"))
    assert first is not None, "`branch` has refused it"
    return schedules.Cooldown.after(rate, first, total_steps)


def _absolute(folder: str) -> str:
    return folder.rstrip("/") if "://" in folder else os.path.realpath(folder)
