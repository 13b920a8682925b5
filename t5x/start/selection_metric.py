"""Check the metric that chooses the best checkpoint or ends training early.

Its task must be evaluated, it must be measured there, and the split must not be the test split.
"""

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import seqio

from common.errors import UserError, nearest
from t5x import metrics
from t5x.actions import EarlyStoppingAction, check_actions, mode_name
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.input_pipeline.config import DatasetConfig, Datasets
from t5x.multihost.broadcast import broadcast_from_first

SCOPES = {"training_eval": "train_eval", "inference_eval": "infer_eval"}
# {mode of an action: kind of evaluation}.
KINDS = {"TRAIN_EVAL": "training_eval", "INFER_EVAL": "inference_eval"}
HOLD_OUT = 'write held_out={"validation": 0.01} in the source of its task'  # a share of 'train'


class Choice(NamedTuple):
    """A choice by metric `name` of `task`, made by the gin name `setting` with its `value`."""

    setting: str
    value: Any
    kind: str
    task: str
    name: str


def check(
    cfgs: Datasets,
    save: SaveCheckpointConfig | None,
    actions: Mapping[Any, Sequence[Any]] | None,
) -> None:
    """Check that choices use metrics that are measured, on another split than 'test'.

    `cfgs` are datasets by gin scope, `actions` those of `train`. Raise UserError with what to set.
    """
    check_actions(actions, ["TRAIN", *(m for m, kind in KINDS.items() if cfgs[SCOPES[kind]])])
    for choice in choices(save, actions):
        scope = SCOPES[choice.kind]
        cfg = cfgs[scope]
        if cfg is None:
            raise UserError(
                choice.setting,
                choice.value,
                f"but train.{scope}_dataset_cfg is None, so it is never measured",
                "set that config, or another metric",
            )
        broadcast_from_first(functools.partial(_check, choice, scope, cfg))


def choices(
    save: SaveCheckpointConfig | None, actions: Mapping[Any, Sequence[Any]] | None
) -> Iterable[Choice]:
    """Yield what a run chooses by a metric: its best checkpoint, and its end."""
    if save and save.metric:
        yield Choice("SaveCheckpointConfig.metric", save.metric, *save.metric.split("/", 2))
    for mode, several in (actions or {}).items():
        kind = KINDS.get(mode_name(mode))
        for action in several:
            if kind and isinstance(action, EarlyStoppingAction):
                task, name = action.metric
                setting = "trainer.EarlyStoppingAction.metric"
                yield Choice(setting, (task, name), kind, task, name)


def _check(choice: Choice, scope: str, cfg: DatasetConfig) -> None:
    split = f"{scope}/utils.DatasetConfig.split"
    by_loss = choice.kind == "training_eval"
    tasks = {t.name: t for t in cfg.tasks_with_split if by_loss or t.metric_objs}
    if choice.task not in tasks:
        raise UserError(
            choice.setting,
            choice.value,
            f"but {choice.task!r} is not evaluated",
            f"set it to a metric of {' or '.join(tasks)}",
        )
    if cfg.split.startswith("test"):
        raise UserError(
            choice.setting,
            choice.value,
            f"but {split} is {cfg.split!r}, and a result on the split that made a choice is biased",
            f"set {split} to 'validation', and if there is none {HOLD_OUT}",
        )
    measured = names(choice.kind, tasks[choice.task], choice.name, cfg)
    if measured is not None and choice.name not in measured:
        raise UserError(
            choice.setting,
            choice.value,
            f"but {choice.task} has no metric {choice.name!r}{nearest(choice.name, measured)}",
            f"set it to one of {', '.join(sorted(measured))}",
        )


def check_split(scope: str, cfg: DatasetConfig) -> None:
    """Raise UserError, with splits that may choose, if no task has this split."""
    if not cfg.tasks_with_split:
        others = sorted(s for s in cfg.splits if s != "train" and not s.startswith("test"))
        raise UserError(
            f"{scope}/utils.DatasetConfig.split",
            cfg.split,
            f"which {cfg.provider.name} does not have",
            f"set it to one of {others}, or {HOLD_OUT}" if others else HOLD_OUT,
        )


def names(kind: str, task: seqio.Task, name: str, cfg: DatasetConfig) -> set[str] | None:
    """Return the metric names of a task, None if they depend on the predictions.

    Metric functions are called with zero examples to learn their keys. If `name` is not among
    them, they are called with one example too: names that differ then may become `name`.
    """
    if kind == "training_eval":
        return _loss_metrics(task, cfg.pack)
    measured = _function_metrics(task, 0)
    if name in measured or not measured:
        return measured or None
    return measured if measured == _function_metrics(task, 1) else None


def _loss_metrics(task: seqio.Task, packed: bool) -> set[str]:
    sums = {"steps", "loss"}
    features: tuple[str, ...] = ("encoder_input_tokens", "decoder_target_tokens")
    if "loss_weights" in task.output_features:  # rows of an encoder always have segments
        sums |= _masked_sums(task)
        features = ("encoder_target_tokens", "encoder_segment_ids")
    elif packed:
        features += ("encoder_segment_ids", "decoder_segment_ids")
    ids = jax.ShapeDtypeStruct((1, 1), np.int32)
    losses = jax.ShapeDtypeStruct((1, 1), np.float32)
    logits = jax.ShapeDtypeStruct((1, 1, 1), np.float32)
    sums |= {*jax.eval_shape(metrics.token_sums, logits, ids, losses, losses, losses)}
    sums |= {*jax.eval_shape(metrics.row_sums, dict.fromkeys(features, ids))}
    return set(metrics.summarize(dict.fromkeys(sums, 1.0), None, 1))


def _masked_sums(task: seqio.Task) -> set[str]:
    """Return the names of the sums that `t5x.examples.encoder.model` adds."""
    vocabulary, sums = task.output_features["targets"].vocabulary, {"masked_tokens"}
    if "next_sentence_label" in task.output_features:
        sums |= {"next_sentences", "next_sentences_correct", "next_sentence_loss"}
    words = {"masked_words", "words_correct"} if hasattr(vocabulary, "word_starts") else set()
    return sums | words


def _function_metrics(task: seqio.Task, examples: int) -> set[str]:
    predicted, scored = list(task.predict_metric_fns), list(task.score_metric_fns)
    if len(predicted) + len(scored) < len(task.metric_objs):
        return set()  # other kinds of metrics need a model
    texts, scores = ["a"] * examples, [0.0] * examples
    calls = [(fn, (texts, texts)) for fn in predicted] + [(fn, (texts, scores)) for fn in scored]
    keys = [_keys(fn, arguments) for fn, arguments in calls]
    return set().union(*keys) if all(keys) else set()


def _keys(fn: Callable[..., Mapping[str, Any]], arguments: tuple[Any, ...]) -> set[str]:
    """Return the names of the numbers that a metric function returns; none if it fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mean of no examples is NaN
            metrics_by_name = fn(*arguments)
        return {
            k
            for k, value in metrics_by_name.items()
            if not isinstance(value, seqio.metrics.MetricValue)
        }
    except Exception:  # the user's function may not expect such a call
        return set()
