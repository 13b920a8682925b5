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
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from absl import logging

from common.errors import UserError

EVENTS = {"TRAIN_EVAL": "evaluate", "INFER_EVAL": "infer"}  # mode to event of `events.jsonl`
MODES = ("TRAIN", *EVENTS)
Metrics: TypeAlias = Mapping[str, Mapping[str, Any]]  # by task


@dataclasses.dataclass(eq=False)
class EarlyStoppingAction:
    """Stops training after `patience` evaluations in a row that did not improve on the best."""

    metric: Sequence[str]  # its task and name, ('quality', 'accuracy')
    mode: Literal["max", "min"]  # which is better
    patience: int = 3  # evaluations to wait for an improvement
    atol: float = 0.0  # an improvement must be greater than this,
    rtol: float = 0.0  # and greater than this share of the best value

    def __post_init__(self):
        gin_name = "trainer.EarlyStoppingAction"
        if isinstance(self.metric, str) or len(self.metric) != 2:
            raise UserError(
                f"{gin_name}.metric is {self.metric!r}; set it to a task and one of its metrics, "
                "('<task>', '<name>')."
            )
        self._best: float | None = None
        self._since = 0

    def run(self, train_state: Any, metrics_by_task: Metrics) -> bool:
        """Return True to stop; raise a UserError if the metric does not exist."""
        name = "trainer.EarlyStoppingAction.metric"
        return self._ends_with(float(_measured(name, self.metric, metrics_by_task)))

    def recall(self, past: Iterable[Metrics]) -> bool:
        """Start over with earlier measurements, oldest first; return True to stop."""
        self._best, self._since = None, 0
        task, metric = self.metric
        values = (metrics_by_task.get(task, {}).get(metric) for metrics_by_task in past)
        ends = [self._ends_with(float(value)) for value in values if value is not None]
        return any(ends)

    def _ends_with(self, value: float) -> bool:
        if self._is_better(value):
            self._best, self._since = value, 0
            return False
        self._since += 1
        if self._since < self.patience:
            return False
        task, metric = self.metric
        logging.warning(
            "%s of %s has not improved on %s for %d evaluations: training stops.",
            metric, task, self._best, self._since,
        )  # fmt: skip
        return True

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self._best is None:
            return True
        gain = value - self._best if self.mode == "max" else self._best - value
        return gain > self.atol + self.rtol * abs(self._best)


@dataclasses.dataclass
class TerminateOnNanAction:
    """Stops training when a metric of a task ('train' for training) is not a finite number."""

    task: str
    metric: str = "loss"

    def run(self, train_state: Any, metrics_by_task: Metrics) -> bool:
        """Return True to stop; raise a UserError if the task or metric is unknown."""
        name = "TerminateOnNanAction's task and metric"
        value = _measured(name, (self.task, self.metric), metrics_by_task)
        if math.isfinite(value):
            return False
        logging.warning("%s of %s is %s: training stops.", self.metric, self.task, value)
        return True


def _measured(setting: str, metric: Sequence[str], metrics_by_task: Metrics) -> Any:
    """Return the value of a metric, or raise UserError if there is none of that task and name."""
    task, name = metric
    value = metrics_by_task.get(task, {}).get(name)
    if value is None:
        known = [(t, each) for t, values in metrics_by_task.items() for each in values]
        raise UserError(
            f"{setting} is {(task, name)!r}, which is not measured; set it to one of {known}."
        )
    return value


def mode_name(mode: Any) -> str:
    """Return the name of a key of `train.actions`: a string, or an enum member."""
    return getattr(mode, "name", mode)


def check_actions(actions: Mapping[Any, Sequence[Any]] | None, evaluates: Sequence[str]) -> None:
    """Raise UserError for an action of a mode that is unknown or not among `evaluates`."""
    for name in map(mode_name, actions or {}):
        if name not in MODES:
            raise UserError(
                f"train.actions has the unknown mode {name!r}; set it to one of "
                f"{', '.join(map(repr, MODES))}."
            )
        if name not in evaluates:
            raise UserError(
                f"train.actions has {name!r}, but nothing is evaluated in that mode; set "
                f"train.{name.lower()}_dataset_cfg, or leave these actions out."
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
