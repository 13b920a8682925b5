"""What the evaluations of a run will measure, known before it begins, and what is chosen by it.

  check({"train": …, "train_eval": None, "infer_eval": cfg}, save_cfg, actions)    # one sentence

A checkpoint is chosen as the best, or training ended early, by a metric of an evaluation. Its task
must be evaluated, its name measured, and its split not the one kept for the final figure.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import seqio

from t5x import metrics
from t5x.actions import EarlyStoppingAction, check_actions, mode_name
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.gin_utils import nearest
from t5x.input_pipeline.config import DatasetConfig
from t5x.multihost.broadcast import broadcast_from_first

SCOPES = {"training_eval": "train_eval", "inference_eval": "infer_eval"}
KINDS = {"TRAIN_EVAL": "training_eval", "INFER_EVAL": "inference_eval"}  # by mode of an action
HOLD_OUT = "hold a split out of 'train': tasks.rows.Rows(…, held_out={'validation': 0.05})"


class Choice(NamedTuple):
    """What is chosen by `name` of `task`, at the gin name `setting`, whose value is `value`."""

    setting: str
    value: Any
    kind: str
    task: str
    name: str


def check(
    cfgs: Mapping[str, DatasetConfig | None],
    save: SaveCheckpointConfig | None,
    actions: Mapping[Any, Sequence[Any]] | None,
) -> None:
    """Refuses to choose or act by what is never measured, and to choose by the test split.

    Args:
      cfgs: what is read, by gin scope.
      save: names the metric that checkpoints are kept by.
      actions: `train.actions`.

    Raises:
      ValueError: one sentence with what to set.
    """
    check_actions(actions, ["TRAIN", *(m for m, kind in KINDS.items() if cfgs[SCOPES[kind]])])
    for choice in choices(save, actions):
        scope = SCOPES[choice.kind]
        if cfgs[scope] is None:
            raise ValueError(
                f"{choice.setting} is {choice.value!r}, but train.{scope}_dataset_cfg is None, so "
                "it is never measured; set that one, or another metric."
            )
        broadcast_from_first(lambda choice=choice, scope=scope: _check(choice, scope, cfgs[scope]))


def choices(
    save: SaveCheckpointConfig | None, actions: Mapping[Any, Sequence[Any]] | None
) -> Iterable[Choice]:
    """By what a run chooses its best checkpoint and its end."""
    if save and save.metric:
        yield Choice("SaveCheckpointConfig.metric", save.metric, *save.metric.split("/", 2))
    for mode, several in (actions or {}).items():
        kind = KINDS.get(mode_name(mode))
        for action in several:
            if kind and isinstance(action, EarlyStoppingAction):
                value = (action.task, action.metric)
                yield Choice("trainer.EarlyStoppingAction.metric", value, kind, *value)


def _check(choice: Choice, scope: str, cfg: DatasetConfig) -> None:
    said = f"{choice.setting} is {choice.value!r}, but"
    tasks = {task.name: task for task in _evaluated(choice.kind, cfg)}
    if choice.task not in tasks:
        raise ValueError(
            f"{said} {choice.task!r} is not evaluated; the tasks that are: {', '.join(tasks)}."
        )
    if cfg.split.startswith("test"):
        raise ValueError(
            f"{said} {scope}/utils.DatasetConfig.split is {cfg.split!r}, and a choice made by the "
            "test split cannot be measured on it any more; set 'validation' there, and where there "
            f"is none {HOLD_OUT}."
        )
    known = names(choice.kind, tasks[choice.task], choice.name, cfg)
    if known is not None and choice.name not in known:
        raise ValueError(
            f"{said} {choice.task} is measured by no {choice.name!r}"
            f"{nearest(choice.name, known)}; set it to one of {', '.join(sorted(known))}."
        )


def check_split(scope: str, cfg: DatasetConfig) -> None:
    """Refuses a split that no task has.

    Raises:
      ValueError: one sentence, which names no split that training or the final figure needs.
    """
    splits = {split for task in seqio.get_subtasks(cfg.provider) for split in task.splits or ()}
    if cfg.split not in splits:
        others = sorted(s for s in splits if s != "train" and not s.startswith("test"))
        instead = f"set it to one of {others}, or " if others else ""
        raise ValueError(
            f"{scope}/utils.DatasetConfig.split is {cfg.split!r}, which {cfg.mixture_or_task_name} "
            f"does not have; {instead}{HOLD_OUT}."
        )


def _evaluated(kind: str, cfg: DatasetConfig) -> list[seqio.Task]:
    tasks = [task for task in seqio.get_subtasks(cfg.provider) if cfg.split in (task.splits or ())]
    return [task for task in tasks if kind == "training_eval" or task.metric_objs]


def names(kind: str, task: seqio.Task, wanted: str, cfg: DatasetConfig) -> set[str] | None:
    """The metrics of a task, None where they are not known before there are predictions.

    Metric functions are asked of no examples. Where `wanted` is not among the names that they give,
    they are asked of one too: what then are others may be `wanted` when it comes to that.
    """
    if kind == "training_eval":
        return _of_losses(cfg.pack)
    known = _of_functions(task, 0)
    if wanted in known or not known:
        return known or None
    return known if known == _of_functions(task, 1) else None


def _of_losses(packed: bool) -> set[str]:
    ids = jax.ShapeDtypeStruct((1, 1), np.int32)
    sides = ("encoder_segment_ids", "decoder_segment_ids") if packed else ()
    batch = dict.fromkeys(("encoder_input_tokens", "decoder_target_tokens", *sides), ids)
    losses = jax.ShapeDtypeStruct((1, 1), np.float32)
    logits = jax.ShapeDtypeStruct((1, 1, 1), np.float32)
    sums = jax.eval_shape(metrics.step_sums, logits, batch, losses, losses, losses)
    ones = dict.fromkeys((*sums, "steps", "loss"), 1.0)
    return set(metrics.summarize(ones, None, 1))


def _of_functions(task: seqio.Task, examples: int) -> set[str]:
    predicted, scored = list(task.predict_metric_fns), list(task.score_metric_fns)
    if len(predicted) + len(scored) < len(task.metric_objs):
        return set()  # others cannot be asked without a model
    texts, scores = ["a"] * examples, [0.0] * examples
    asked = [(fn, (texts, texts)) for fn in predicted] + [(fn, (texts, scores)) for fn in scored]
    found = [_keys(fn, arguments) for fn, arguments in asked]
    return set().union(*found) if all(found) else set()


def _keys(fn: Callable[..., Mapping[str, Any]], arguments: tuple[Any, ...]) -> set[str]:
    """Names of what a metric function gives; none where it cannot say."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mean of nothing is no number
            return set(fn(*arguments))
    except Exception:  # it is the user's own and was not asked for this
        return set()
