"""Configure how checkpoints are saved, and from which one a run starts.

  CheckpointConfig(
      save=SaveCheckpointConfig(dtype="float32", period=10_000, keep=5),
      restore=RestoreCheckpointConfig(path="gs://bucket/model/checkpoint_1000000", mode="specific"),
  )

Names, arguments and defaults are T5X's.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal

from absl import logging

from common.errors import UserError
from t5x.checkpointing import layout, retention

AssignmentMap = Sequence[tuple[str, str | None]]


@dataclasses.dataclass
class SaveCheckpointConfig:
    """How a run saves."""

    # Of the parameters on disk, or 'bfloat16'; None leaves them as they are. The optimizer's state
    # is never rounded.
    dtype: Literal["float32", "bfloat16"] | None = "float32"
    period: int | None = None  # steps between two checkpoints
    keep: int | None = None  # number of newest checkpoints to keep, None for all
    keep_dataset_checkpoints: int | None = None  # number of newest that keep their data position
    save_dataset: bool = False  # save the data position with each checkpoint
    checkpoint_steps: Sequence[int] | None = None  # checkpoints of these steps are never deleted
    # The next five are not in T5X. `timeout` is the seconds after which a save has failed, None for
    # never; a quarter of them is reported.
    timeout: int | None = 1200
    # After a failed save; 'go_on' logs it and trains on to the next one.
    when_failed: Literal["stop", "go_on"] = "stop"
    # Number of best checkpoints to keep besides the `keep` newest; an evaluation that is among the
    # best by `metric` is saved too.
    keep_best: int | None = None
    metric: str | None = None  # 'inference_eval/<task>/<name>' or 'training_eval/<task>/<name>'
    # Whether greater or smaller values of the metric are better.
    mode: Literal["max", "min"] = "max"
    # Of T5X; must keep their defaults here.
    checkpointer_cls: Any = None
    state_transformation_fns: Sequence[Any] = ()
    checkpoint_manager_cls: Any = None

    def __post_init__(self):
        self._check_metric()
        _check_unset(self, "checkpointer_cls", "checkpoint_manager_cls", "state_transformation_fns")

    def _check_metric(self) -> None:
        kind, *rest = (self.metric or "").split("/", 2)
        names_one = kind in ("training_eval", "inference_eval") and len(rest) == 2
        if self.keep_best and not names_one:
            raise UserError(
                "SaveCheckpointConfig.keep_best",
                self.keep_best,
                f"but SaveCheckpointConfig.metric is {self.metric!r}, which names no metric",
                "set metric to 'inference_eval/<task>/<name>' or 'training_eval/<task>/<name>'",
            )
        if self.metric and not self.keep_best:
            raise UserError(
                "SaveCheckpointConfig.metric",
                self.metric,
                f"but SaveCheckpointConfig.keep_best is {self.keep_best}, so no checkpoint is kept",
                "set keep_best to 1 or more",
            )


@dataclasses.dataclass
class RestoreCheckpointConfig:
    """From which checkpoint a run starts, and how its names map to the model's."""

    # A checkpoint (mode 'specific') or a folder of checkpoints, or a list of either, in which
    # missing ones are skipped. Empty or None: start from scratch.
    path: str | Sequence[str] | None
    # 'specific', 'latest', 'best' (by `SaveCheckpointConfig.metric`; not in T5X), or 'all' (one
    # after the other, for evaluation).
    mode: Literal["specific", "latest", "best", "all"] = "latest"
    # (regex, replacement) pairs. The first regex that matches a name of the model's state dict
    # fully (`target/decoder/…`) gives its name in the checkpoint; None keeps the initial value.
    assignment_map: AssignmentMap | None = None
    strict: bool = True  # refuse a checkpoint that lacks parameters or has superfluous ones
    fallback_to_scratch: bool = False  # parameters that it lacks keep their initial values
    # Of the parameters in memory; None for the model's own.
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    restore_dataset: bool = False  # continue at the checkpoint's data position
    # Of T5X; must keep their defaults here.
    is_tensorflow: bool = False
    checkpointer_cls: Any = None
    state_transformation_fns: Sequence[Any] = ()
    checkpoint_manager_cls: Any = None

    def __post_init__(self):
        for pattern, _ in self.assignment_map or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise UserError(
                    "RestoreCheckpointConfig.assignment_map",
                    why=f"has {pattern!r}, which is not a regular expression: {error}",
                    to_set="correct it",
                ) from error
        _check_unset(self, "checkpointer_cls", "checkpoint_manager_cls", "state_transformation_fns")
        _check_unset(self, "is_tensorflow")

    @property
    def paths(self) -> list[str]:
        """The paths in `path`, none to start from scratch."""
        paths = [self.path] if isinstance(self.path, str) else self.path or ()
        return [path for path in paths if path]


@dataclasses.dataclass
class CheckpointConfig:
    """How a run saves and from what it starts; None for neither."""

    save: SaveCheckpointConfig | None = None
    restore: RestoreCheckpointConfig | None = None

    @property
    def saves_position(self) -> bool:
        """Whether checkpoints hold a data position."""
        return bool(self.save and self.save.save_dataset)


def checkpoint_paths(config: RestoreCheckpointConfig) -> list[str]:
    """Return the checkpoints that `config` names, at least one.

    Returns:
      'specific': the paths of `config.path` that exist, in its order (a run starts from the first).
      'best': the best one of the first folder that has one.
      'latest', 'all': the newest, or all in ascending order, of the first folder that has any.

    Raises:
      UserError: there is none.
    """
    paths = [path.rstrip("/").removesuffix("/checkpoint") for path in config.paths]
    if config.mode == "specific":
        checkpoints = [path for path in paths if layout.kind(path)]
    elif config.mode == "best":
        checkpoints = list(filter(None, map(retention.best_checkpoint, paths)))[:1]
    else:
        checkpoints = next(filter(None, map(_all_in, paths)), [])
        checkpoints = checkpoints[-1:] if config.mode == "latest" else checkpoints
    if not paths:
        raise UserError(
            "RestoreCheckpointConfig.path",
            config.path,
            "which names no checkpoint",
            "set CHECKPOINT_PATH to one",
        )
    if not checkpoints:
        errors = [_nothing_found(config.mode, path) for path in paths]
        if len(errors) == 1:
            raise errors[0]
        raise UserError(why="; ".join(error.fault for error in errors), to_set=errors[0].to_set)
    if config.mode == "specific":
        for path in paths:
            if path not in checkpoints:
                logging.warning("Skipping %s: it does not exist or is not a checkpoint.", path)
    return checkpoints


def _all_in(folder: str) -> list[str]:
    return [layout.step_folder(folder, step) for step in layout.all_steps(folder)]


def _nothing_found(mode: str, path: str) -> UserError:
    if mode == "specific":
        return layout.no_checkpoint(path)
    if mode == "best" and _all_in(path):
        return UserError(
            path,
            why="has checkpoints but no record of the best one",
            to_set="train with utils.SaveCheckpointConfig.keep_best, or set "
            "RestoreCheckpointConfig.mode = 'latest'",
        )
    if layout.kind(path):
        to_set = "set RestoreCheckpointConfig.mode = 'specific'"
        return UserError(path, why="is itself a checkpoint", to_set=to_set)
    return UserError(
        "RestoreCheckpointConfig.path",
        path,
        f"which has no folder checkpoint_<step> that is complete, so mode {mode!r} finds nothing",
        "set CHECKPOINT_PATH to a folder that has one",
    )


def _check_unset(config: Any, *names: str) -> None:
    for name in names:
        if getattr(config, name):
            raise UserError(
                f"{type(config).__name__}.{name}",
                why="is not supported here",
                to_set="leave it out, or run the recipe with T5X itself (T5X_DIR)",
            )
