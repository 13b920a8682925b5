"""What a recipe says of checkpoints: when and how they are saved, and from which one a run starts.

  CheckpointConfig(
      save=SaveCheckpointConfig(dtype="float32", period=10_000, keep=5),
      restore=RestoreCheckpointConfig(path="gs://bucket/model/checkpoint_1000000", mode="specific"),
  )

Names, arguments and defaults are T5X's.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from absl import logging

from t5x.checkpointing import best, layout

AssignmentMap = Sequence[tuple[str, str | None]]


@dataclasses.dataclass
class SaveCheckpointConfig:
    """How a run saves.

    Attributes:
      dtype: of the parameters on disk, 'float32' or 'bfloat16'; None leaves them as they are. The
        optimizer's state is never rounded.
      period: steps between two checkpoints.
      keep: so many newest checkpoints stay, None keeps all.
      keep_dataset_checkpoints: so many newest checkpoints keep their place in the data.
      save_dataset: save the place in the data with each checkpoint.
      checkpoint_steps: steps whose checkpoints are never deleted.
      timeout: seconds after which a save that hangs counts as failed, None for never; after a
        quarter of them it is reported. Not in T5X.
      keep_best: so many checkpoints stay that are the best by `metric`, beside the `keep` newest;
        an evaluation that is among the best is saved too. Not in T5X.
      metric: 'inference_eval/<task>/<name>' or 'training_eval/<task>/<name>'.
      mode: 'max' or 'min', what is better of the metric.
      when_failed: 'stop' ends the run where a save has failed, 'go_on' says so and trains on to
        the next one. Not in T5X.
      checkpointer_cls, state_transformation_fns, use_gda, checkpoint_manager_cls: known to T5X;
        here they must keep their defaults.
    """

    dtype: str | None = "float32"
    period: int | None = None
    keep: int | None = None
    keep_dataset_checkpoints: int | None = None
    save_dataset: bool = False
    checkpoint_steps: Sequence[int] | None = None
    timeout: int | None = 1200
    when_failed: str = "stop"
    keep_best: int | None = None
    metric: str | None = None
    mode: str = "max"
    checkpointer_cls: Any = None
    state_transformation_fns: Sequence[Any] = ()
    use_gda: bool = True
    checkpoint_manager_cls: Any = None

    def __post_init__(self):
        _one_of(self, "dtype", (None, "float32", "bfloat16"))
        _one_of(self, "when_failed", ("stop", "go_on"))
        best.check(self.keep_best, self.metric, self.mode)
        for name in ("period", "keep", "keep_dataset_checkpoints", "timeout", "keep_best"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(
                    f"SaveCheckpointConfig.{name} is {value}; set it to 1 or more, or to None."
                )
        _refuse(self, "checkpointer_cls", "checkpoint_manager_cls", "state_transformation_fns")


@dataclasses.dataclass
class RestoreCheckpointConfig:
    """From which checkpoint a run starts, and how that one's names answer to the model's.

    Attributes:
      path: a checkpoint (mode 'specific') or a folder of checkpoints, or a list of either; what
        is not there is passed over for the next in the list. Empty: start from scratch.
      mode: 'specific', 'latest', 'best' (by `SaveCheckpointConfig.metric`; not in T5X), or 'all'
        (one after the other, for evaluation).
      assignment_map: (regex, replacement) pairs. The first regex that matches a name of the
        model's state dict fully (`target/decoder/…`) says under which name the checkpoint holds
        it; a replacement of None keeps the initial value.
      strict: refuse a checkpoint that lacks parameters or has others besides.
      fallback_to_scratch: give parameters that the checkpoint lacks their initial values.
      dtype: of the parameters in memory, None for the model's own.
      restore_dataset: go on at the checkpoint's place in the data.
      is_tensorflow, checkpointer_cls, state_transformation_fns, use_gda, checkpoint_manager_cls:
        known to T5X; here they must keep their defaults.
    """

    path: str | Sequence[str]
    mode: str = "latest"
    assignment_map: AssignmentMap | None = None
    strict: bool = True
    fallback_to_scratch: bool = False
    dtype: str | None = None
    restore_dataset: bool = False
    is_tensorflow: bool = False
    checkpointer_cls: Any = None
    state_transformation_fns: Sequence[Any] = ()
    use_gda: bool = True
    checkpoint_manager_cls: Any = None

    def __post_init__(self):
        _one_of(self, "mode", ("specific", "latest", "best", "all"))
        _one_of(self, "dtype", (None, "float32", "bfloat16", "float16"))
        for pattern, _ in self.assignment_map or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"RestoreCheckpointConfig.assignment_map has {pattern!r}, which is no regular "
                    f"expression: {error}."
                ) from error
        _refuse(
            self,
            "is_tensorflow",
            "checkpointer_cls",
            "checkpoint_manager_cls",
            "state_transformation_fns",
        )


@dataclasses.dataclass
class CheckpointConfig:
    """How a run saves and from what it starts; None leaves either out."""

    save: SaveCheckpointConfig | None = None
    restore: RestoreCheckpointConfig | None = None


def checkpoint_paths(config: RestoreCheckpointConfig) -> list[str]:
    """The checkpoints that `config` names, at least one.

    Returns:
      'specific': those of `config.path` that are there, in its order (to start from: the first).
      'best': that of the first folder that has one.
      'latest', 'all': the newest, or all in ascending order, of the first folder that has any.

    Raises:
      ValueError: none is there.
    """
    paths = [config.path] if isinstance(config.path, str) else list(config.path)
    paths = [path.rstrip("/").removesuffix("/checkpoint") for path in paths]
    if config.mode == "specific":
        found = [path for path in paths if layout.kind(path)]
    elif config.mode == "best":
        found = list(filter(None, map(best.best_checkpoint, paths)))[:1]
    else:
        found = next(filter(None, map(_all_in, paths)), [])
        found = found[-1:] if config.mode == "latest" else found
    if not found:
        raise ValueError(_none_found(config.mode, paths))
    if config.mode == "specific":
        for path in paths:
            if path not in found:
                logging.warning("Passing over %s: it is not there or no checkpoint.", path)
    return found


def _all_in(folder: str) -> list[str]:
    steps = layout.all_steps(folder)
    return [layout.step_folder(folder, step) for step in steps]


def _none_found(mode: str, paths: Sequence[str]) -> str:
    if mode == "specific":
        return " ".join(map(layout.why_no_checkpoint, paths))
    reasons = []
    for path in paths:
        if mode == "best" and _all_in(path):
            reasons.append(
                f"{path} has checkpoints but no note of which is the best; train with "
                "utils.SaveCheckpointConfig.keep_best, or set RestoreCheckpointConfig.mode = "
                "'latest'."
            )
        elif layout.kind(path):
            reasons.append(
                f"{path} is itself a checkpoint: set RestoreCheckpointConfig.mode = 'specific'."
            )
        else:
            reasons.append(
                f"RestoreCheckpointConfig.path {path} has no folder checkpoint_<step> that is "
                f"whole, so mode {mode!r} finds nothing."
            )
    return " ".join(reasons)


def _one_of(config: Any, name: str, allowed: Sequence[Any]) -> None:
    value = getattr(config, name)
    if value not in allowed:
        raise ValueError(
            f"{type(config).__name__}.{name} is {value!r}; set it to one of "
            f"{', '.join(map(repr, allowed))}."
        )


def _refuse(config: Any, *names: str) -> None:
    for name in names:
        if getattr(config, name):
            raise ValueError(
                f"{type(config).__name__}.{name} is not supported here; leave it out, or run the "
                "recipe with T5X itself (T5X_DIR)."
            )
