"""Ends a run whose metric gets no better, as an action of the training loop.

  from t5x import trainer
  train.actions = {'INFER_EVAL': [@trainer.EarlyStoppingAction()]}
  trainer.EarlyStoppingAction.metric = ('quality', 'accuracy')
  trainer.EarlyStoppingAction.mode = 'max'
  trainer.EarlyStoppingAction.patience = 3

Under 'TRAIN_EVAL' it looks at losses and accuracies of `training_eval/`, under 'INFER_EVAL' at the
tasks' own metrics. Name and arguments are T5X's. A run that starts again tells it what was measured
before, so that it ends where it would have ended without the pause.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import logging

MODES = ("TRAIN", "TRAIN_EVAL", "INFER_EVAL")
EVENTS = {"TRAIN_EVAL": "evaluate", "INFER_EVAL": "infer"}  # of the run's log, see `run_log`
Metrics = Mapping[str, Mapping[str, Any]]  # by task


class EarlyStoppingAction:
    """Stops training after `patience` evaluations in a row that were no better than the best.

    Args:
      metric: task and name of the metric, ('quality', 'accuracy').
      mode: 'max' or 'min', what is better.
      patience: evaluations to wait for a better one.
      atol: a value must be better than the best by more than this,
      rtol: and by more than this share of the best.

    Raises:
      ValueError: a setting that names nothing.
    """

    def __init__(
        self,
        metric: Sequence[str],
        mode: str,
        patience: int = 3,
        atol: float = 0.0,
        rtol: float = 0.0,
    ):
        gin_name = "trainer.EarlyStoppingAction"
        if isinstance(metric, str) or len(metric) != 2:
            raise ValueError(
                f"{gin_name}.metric is {metric!r}; set it to a task and a metric of it, "
                "('<task>', '<name>')."
            )
        if mode not in ("max", "min"):
            raise ValueError(f"{gin_name}.mode is {mode!r}; set it to 'max' or 'min'.")
        for name, value, least in (("patience", patience, 1), ("atol", atol, 0), ("rtol", rtol, 0)):
            if value < least:
                raise ValueError(f"{gin_name}.{name} is {value}; set it to {least} or more.")
        self.task, self.metric = metric
        self.mode, self.patience, self.atol, self.rtol = mode, patience, atol, rtol
        self._best, self._since = None, 0

    def run(self, train_state: Any, metrics_by_task: Metrics) -> bool:
        """True to stop.

        Raises:
          ValueError: there is no such task or metric.
        """
        value = metrics_by_task.get(self.task, {}).get(self.metric)
        if value is None:
            known = [(t, name) for t, values in metrics_by_task.items() for name in values]
            raise ValueError(
                f"trainer.EarlyStoppingAction.metric is {(self.task, self.metric)!r}, which is not "
                f"measured; set it to one of {known}."
            )
        return self._ends_with(float(value))

    def recall(self, past: Iterable[Metrics]) -> bool:
        """Begins anew with what was measured before, oldest first; True to stop."""
        self._best, self._since = None, 0
        values = (metrics_by_task.get(self.task, {}).get(self.metric) for metrics_by_task in past)
        ends = [self._ends_with(float(value)) for value in values if value is not None]
        return any(ends)

    def _ends_with(self, value: float) -> bool:
        if self._is_better(value):
            self._best, self._since = value, 0
            return False
        self._since += 1
        if self._since < self.patience:
            return False
        logging.warning(
            "%s of %s has been no better than %s for %d evaluations: training stops.",
            self.metric, self.task, self._best, self._since,
        )  # fmt: skip
        return True

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self._best is None:
            return True
        gain = value - self._best if self.mode == "max" else self._best - value
        return gain > self.atol + self.rtol * abs(self._best)


def check_actions(actions: Mapping[Any, Sequence[Any]] | None, evaluates: Sequence[str]) -> None:
    """Refuses actions that would never be asked.

    Args:
      actions: `train.actions`; keys are names of modes, or enum members so named.
      evaluates: the modes that the run has.

    Raises:
      ValueError: a mode that is unknown, or for which nothing is evaluated.
    """
    for mode in actions or {}:
        name = getattr(mode, "name", mode)
        if name not in MODES:
            raise ValueError(
                f"train.actions has {name!r}, which is no time to act; set it to one of "
                f"{', '.join(map(repr, MODES))}."
            )
        if name not in evaluates:
            cfg = {"TRAIN_EVAL": "train_eval", "INFER_EVAL": "infer_eval"}[name]
            raise ValueError(
                f"train.actions has {name!r}, but nothing is evaluated so; set "
                f"train.{cfg}_dataset_cfg, or leave these actions out."
            )


def recall(
    actions: Mapping[str, Sequence[Any]],
    measured: Callable[[str], Mapping[int, Metrics]],
    step: int,
) -> bool:
    """Tells the actions that want to know what was measured up to a step.

    Args:
      actions: by mode.
      measured: name of an event of the run's log to what was measured, by step.
      step: what was measured later is forgotten.

    Returns:
      Whether one of them had ended the run.
    """
    ended = False
    for mode, event in EVENTS.items():
        for action in actions.get(mode, ()):
            if hasattr(action, "recall"):
                past = [metrics for at, metrics in sorted(measured(event).items()) if at <= step]
                ended |= action.recall(past)
    return ended
