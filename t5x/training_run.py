"""The course of a run: train to the next stop, do what is due there, until the end.

What is written: metrics to TensorBoard under `train/` and `training_eval/<task>/`, checkpoints, and
lines for the person who watches. Ctrl-C or a preemption notice saves and leaves.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from clu import metric_writers
from jax.experimental import multihost_utils

from t5x import metrics, stops
from t5x.batches import TrainStream
from t5x.checkpoint_config import SaveCheckpointConfig
from t5x.checkpoints import Checkpointer
from t5x.interruption import Interruption
from t5x.progress import LOSS, Progress
from t5x.train_state import to_disk
from t5x.trainer import Totals, Trainer


class TrainingRun:
    """One run from where its trainer stands to the end of its plan.

    Args:
      trainer: holds the state.
      stream: training batches of this host.
      plan: when things happen.
      model_dir: where they are written.
      save_cfg: how checkpoints are saved, None for not at all.
      eval_sets: batches to evaluate, by task.
      infer_evaluator: decodes and measures at evaluations, None for not at all.
      actions: may end the run; by mode 'TRAIN', 'TRAIN_EVAL', 'INFER_EVAL'.
    """

    def __init__(
        self,
        trainer: Trainer,
        stream: TrainStream,
        plan: stops.Plan,
        model_dir: str,
        save_cfg: SaveCheckpointConfig | None,
        eval_sets: Mapping[str, Sequence[Mapping]],
        infer_evaluator: Any | None,
        actions: Mapping[Any, Sequence[Any]],
    ):
        self.trainer, self.stream, self.plan = trainer, stream, plan
        self.model_dir, self.save_cfg = model_dir, save_cfg
        self.eval_sets, self.infer_evaluator = eval_sets, infer_evaluator
        self.actions = {getattr(k, "name", k): list(v) for k, v in actions.items()}
        self._writers: dict[str, metric_writers.MetricWriter] = {}
        self._checkpointer = Checkpointer(model_dir, save_cfg) if save_cfg else None

    def go(self, evaluate_first: bool) -> int:
        """Runs to the end; returns the last step.

        Raises:
          FloatingPointError: the loss is not finite.
          checkpoints.SaveError: a checkpoint could not be written.
        """
        step = int(self.trainer.state.step)
        self.progress = Progress(self.plan.total_steps, step)
        if step >= self.plan.total_steps:
            self.progress.note(
                f"{self.model_dir} is at step {step:,}: nothing is left to do. Raise TRAIN_STEPS "
                f"above {step} to train on."
            )
        elif step:
            self.progress.note(f"Going on from step {step:,}.")
        try:
            with Interruption() as interruption, self.progress:
                if step < self.plan.total_steps:
                    self._compile()
                if evaluate_first:
                    self._evaluate(step)
                    self._infer(step)
                return self._train(step, interruption)
        finally:  # whatever ends a run, the checkpoint on its way is still made whole
            self._close()

    def _train(self, step: int, interruption: Interruption) -> int:
        """Goes from stop to stop; returns the step at which it ends."""
        while stop := stops.next_stop(step, self.plan):
            step, totals = self._train_until(step, stop.step, interruption)
            if interruption.ending:
                self._save(step)
                self.progress.note(
                    f"Stopped by {interruption.reason} at step {step:,}; the same command "
                    "goes on from here."
                )
                break
            if self._arrive(stop, totals):
                break
        return step

    def _close(self) -> None:
        for task, counts in self.stream.counts().items():
            some = {name.replace("_", " "): n for name, n in counts.items() if n}
            self.progress.note(f"Data of {task}: {_listed(some)}")
        if self._checkpointer:
            self._checkpointer.close()
        for writer in self._writers.values():
            writer.close()
        self.stream.close()

    def writer(self, name: str) -> metric_writers.MetricWriter:
        """TensorBoard events under `<model_dir>/<name>`, silent on all hosts but the first."""
        if name not in self._writers:
            folder = os.path.join(self.model_dir, name)
            loud = jax.process_index() == 0
            self._writers[name] = (
                metric_writers.SummaryWriter(folder) if loud else metric_writers.MultiWriter([])
            )
        return self._writers[name]

    def _compile(self) -> None:
        started = time.monotonic()
        self.trainer.compile(self.stream.global_batch)
        self.progress.note(f"The train step is compiled ({time.monotonic() - started:.0f} s).")

    def _train_until(self, step: int, until: int, interruption: Interruption):
        """Trains; returns the step reached and its metrics since the last stop."""
        started, self.trainer.wait_seconds, totals = time.monotonic(), 0.0, Totals()
        for reached, sums in self.trainer.training_steps(self.stream, until):
            step = reached
            totals.add(sums)
            self.progress.step(step, sums)
            if self._checkpointer:
                self._checkpointer.check()
            if interruption.requested(step):
                break
        seconds = time.monotonic() - started
        if "steps" not in totals:
            return step, None
        figures = metrics.summarize(totals.data, seconds, self.trainer.partitioner.mesh.size)
        figures["data/wait_share"] = self.trainer.wait_seconds / seconds
        return step, figures

    def _arrive(self, stop: stops.Stop, figures: dict[str, float]) -> bool:
        """Does what is due at a stop; True if an action ends the run."""
        if stop.log:
            counts = self.stream.counts().items()
            data = {f"data/{t}/{name}": n for t, values in counts for name, n in values.items()}
            self.writer("train").write_scalars(stop.step, {**figures, **data})
            self.progress.report(stop.step, figures)
        ended = self._act("TRAIN", {"train": figures})
        if not math.isfinite(figures["loss"]):
            raise FloatingPointError(
                f"The loss at step {stop.step} is {figures['loss']}; no checkpoint is written. "
                "Lower utils.create_learning_rate_scheduler.base_learning_rate and start the same "
                "command again: it goes on from the last checkpoint."
            )
        if stop.save:
            self._save(stop.step)
        if stop.evaluate:
            ended |= self._act("TRAIN_EVAL", self._evaluate(stop.step))
        if stop.infer and self.infer_evaluator:
            ended |= self._act("INFER_EVAL", self._infer(stop.step))
        return ended

    def _save(self, step: int) -> None:
        if self._checkpointer:
            state = to_disk(self.trainer.state, self.trainer.specs)
            if self._checkpointer.save(step, state, self.stream.save):
                self.progress.note(f"step {step:,}  saving checkpoint_{step}")

    def _evaluate(self, step: int) -> dict[str, dict[str, float]]:
        results = {}
        for task, batches in self.eval_sets.items():
            results[task] = values = self.trainer.evaluate(batches)
            self.writer(f"training_eval/{task}").write_scalars(step, values)
            self.progress.note(
                f"step {step:,}  validation of {task}: loss {values[LOSS]:.3f}  "
                f"accuracy {values['accuracy']:.3f}"
            )
        return results

    def _infer(self, step: int) -> dict[str, dict[str, Any]]:
        results = {}
        if self.infer_evaluator:
            results = self.infer_evaluator.evaluate(self.trainer.state.params, step)
        for task, values in results.items():
            self.progress.note(f"step {step:,}  {task}: {_listed(values)}")
        return results

    def _act(self, mode: str, results: Mapping[str, Mapping[str, float]]) -> bool:
        """Whether an action ends the run: asked on the first host, which alone has all results."""
        actions = self.actions.get(mode, ())
        if not actions:
            return False
        ended = False
        if jax.process_index() == 0:
            for action in actions:
                ended |= action.run(self.trainer.state, metrics_by_task=results)
        return bool(multihost_utils.broadcast_one_to_all(np.int32(ended)))


def _listed(values: Mapping[str, Any]) -> str:
    numbers = {k: v for k, v in values.items() if isinstance(v, int | float)}
    shown = lambda v: f"{v:,}" if isinstance(v, int) else f"{v:.4g}"
    return "  ".join(f"{k} {shown(v)}" for k, v in numbers.items())
