"""Actions: objects in `train.actions` that may end the run after an evaluation.

  from t5x import trainer
  train.actions = {'INFER_EVAL': [@trainer.EarlyStoppingAction()]}
  trainer.EarlyStoppingAction.metric = ('quality', 'accuracy')
  trainer.EarlyStoppingAction.mode = 'max'
  trainer.EarlyStoppingAction.patience = 3

Under 'TRAIN_EVAL' an action sees losses and accuracies of `training_eval/`, under 'INFER_EVAL' the
tasks' own metrics. Names and arguments are T5X's. A resumed run replays earlier measurements to
its actions, so that it ends where it would have ended without the interruption.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import clu.values
import numpy as np
from absl import logging

from common.errors import UserError

EVENTS = {"TRAIN_EVAL": "evaluate", "INFER_EVAL": "infer"}  # mode to event of `events.jsonl`
MODES = ("TRAIN", *EVENTS)
Metrics: TypeAlias = Mapping[str, Mapping[str, Any]]  # {task: {metric: value}}
_METRIC = "trainer.EarlyStoppingAction.metric"


@dataclasses.dataclass(eq=False)
class EarlyStoppingAction:
    """Stops training once each of the last `patience` values is no better than the one before.

    The first of them is only compared with. So 3 means two evaluations without an improvement, and
    1 ends at the first evaluation.
    """

    metric: Sequence[str]  # its task and name, ('quality', 'accuracy')
    mode: Literal["max", "min"]  # whether greater or smaller values are better
    patience: int = 3  # values to look at
    atol: float = 0.0  # an improvement must be greater than this
    rtol: float = 0.0  # plus this share of the value before

    def __post_init__(self):
        if isinstance(self.metric, str) or len(self.metric) != 2:
            raise UserError(
                _METRIC,
                self.metric,
                to_set="set it to a task and one of its metrics, ('<task>', '<name>')",
            )
        self._last: list[float] = []

    def run(self, train_state: Any, metrics_by_task: Metrics) -> bool:
        """Return True to stop; raise a UserError if the metric does not exist.

        A value that is no floating-point number does not count, with a warning, as upstream.
        """
        value = _measured(self.metric, metrics_by_task)
        if value is None:
            raise UserError(_METRIC, tuple(self.metric), *_not_measured(metrics_by_task))
        if not isinstance(value, float):
            logging.warning("%s is %r, no float, which does not count.", self.metric, value)
        return self._ends_with(value)

    def recall(self, past: Iterable[Metrics]) -> bool:
        """Start over with earlier measurements, oldest first; return True to stop."""
        self._last = []
        values = (_measured(self.metric, metrics_by_task) for metrics_by_task in past)
        return any(self._ends_with(value) for value in values)

    def _ends_with(self, value: Any) -> bool:
        if not isinstance(value, float):
            return False
        self._last = [*self._last, value][-self.patience :]
        steps = itertools.pairwise(self._last)
        if len(self._last) < self.patience or not all(self._is_no_better(*step) for step in steps):
            return False
        task, metric = self.metric
        logging.warning(
            "%s of %s has not improved in %d evaluations, %s: training stops.",
            metric, task, self.patience, self._last,
        )  # fmt: skip
        return True

    def _is_no_better(self, before: float, value: float) -> bool:
        least = self.atol + self.rtol * abs(before)
        return value <= before + least if self.mode == "max" else value >= before - least


@dataclasses.dataclass
class TerminateOnNanAction:
    """Stops training when a metric of a task ('train' for training) is not a finite number."""

    task: str
    metric: str = "loss"

    def run(self, train_state: Any, metrics_by_task: Metrics) -> bool:
        """Return True to stop; warn if the task or metric is unknown."""
        value = _measured((self.task, self.metric), metrics_by_task)
        if value is None:
            names = (self.task, self.metric)
            unknown = UserError(
                "trainer.TerminateOnNanAction", names, *_not_measured(metrics_by_task)
            )
            logging.warning("%s", unknown)
            return False
        if not isinstance(value, float) or math.isfinite(value):
            return False
        logging.warning("%s of %s is %s: training stops.", self.metric, self.task, value)
        return True


def _measured(metric: Sequence[str], metrics_by_task: Metrics) -> Any:
    """Return the value of a task's metric, a float for a `clu.values.Scalar`; None for none."""
    task, name = metric
    value: Any = metrics_by_task.get(task, {}).get(name)
    is_scalar = isinstance(value, clu.values.Scalar | np.floating)
    return float(getattr(value, "value", value)) if is_scalar else value


def _not_measured(metrics_by_task: Metrics) -> tuple[str, str]:
    """Return why a metric does not serve, and what does."""
    names = [(task, name) for task, values in metrics_by_task.items() for name in values]
    return "which is not measured", f"set it to one of {names}"


def mode_name(mode: Any) -> str:
    """Return the name of a key of `train.actions`: a string, or an enum member."""
    return getattr(mode, "name", mode)


def check_actions(actions: Mapping[Any, Sequence[Any]] | None, evaluates: Sequence[str]) -> None:
    """Raise UserError for an action of a mode that is unknown or not among `evaluates`."""
    for name in map(mode_name, actions or {}):
        if name not in MODES:
            raise UserError(
                "train.actions",
                why=f"has the unknown mode {name!r}",
                to_set=f"set it to one of {', '.join(map(repr, MODES))}",
            )
        if name not in evaluates:
            raise UserError(
                "train.actions",
                why=f"has {name!r}, but nothing is evaluated in that mode",
                to_set=f"set train.{name.lower()}_dataset_cfg, or leave these actions out",
            )


def recall(
    actions: Mapping[str, Sequence[Any]],
    measured: Callable[[str], Mapping[int, Metrics]],
    step: int,
) -> bool:
    """Replay measurements up to `step` to actions with a method `recall`; return whether one ended.

    `actions` are by mode; `measured` maps an event of `events.jsonl` to its metrics, by step.
    """
    ended = False
    for mode, event in EVENTS.items():
        for action in actions.get(mode, ()):
            if hasattr(action, "recall"):
                past = [metrics for at, metrics in sorted(measured(event).items()) if at <= step]
                ended |= action.recall(past)
    return ended
