"""The training loop: train to the next trigger, do what is due there, until the end.

It writes metrics under `train/` and `training_eval/<task>/`, checkpoints, events with their times
(`events.jsonl`), and progress lines for the user. Ctrl-C or a preemption notice saves and exits,
also during an evaluation.
"""

import collections
import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import tensorflow as tf
from etils import epath

from common.errors import Failure, class_and_line
from common.metric_names import BASELINE
from t5x import bad_steps, metrics
from t5x.actions import mode_name, recall
from t5x.array_types import HostBatch
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.checkpointing.layout import latest_checkpoint
from t5x.checkpointing.lease import Lease
from t5x.checkpointing.restore import restore
from t5x.checkpoints import Checkpointer, NonFiniteStateError, reason_of
from t5x.inference.evaluator import InferenceEvaluator, publish_predictions
from t5x.inference.filling import Filling
from t5x.input_pipeline.record_counts import data_metrics, sum_over_hosts
from t5x.input_pipeline.stream import TrainStream
from t5x.loop import triggers
from t5x.monitoring import compile_stats, flops
from t5x.monitoring.event_log import EventLog, numeric_metrics
from t5x.monitoring.metric_writers import MetricWriters
from t5x.monitoring.progress_bar import Progress
from t5x.monitoring.throughput import StallDetector
from t5x.multihost.broadcast import broadcast_from_first, raise_together
from t5x.multihost.preemption import Interrupted, Interruption
from t5x.train_state import from_disk, to_disk
from t5x.trainer import Trainer
from t5x.watch import Watch

_LINE = 150  # characters of metrics on a line of the log
_LAST_WAIT_SECONDS = 15.0  # wait for data that is being read, of the 30 s that a preemption leaves


@dataclasses.dataclass(eq=False)
class TrainingRun:
    """A run from the state of its trainer to the end of its plan."""

    trainer: Trainer  # holds the state
    stream: TrainStream  # training batches of this host
    plan: triggers.TrainingPlan  # when to log, evaluate and save
    model_dir: str  # folder to write to
    save_cfg: SaveCheckpointConfig | None  # how checkpoints are saved; None for no checkpoints
    eval_sets: Mapping[str, Sequence[HostBatch]]  # batches to evaluate, by task
    infer_evaluator: InferenceEvaluator | None  # decodes and measures at evaluations
    actions: Mapping[Any, Sequence[Any]]  # may end the run; by mode, see `actions.MODES`
    watch: Watch  # where metrics go, and what else shows whether the model learns
    begun_from: str | None = None  # the checkpoint of another run; None for its own, or none
    # Lease of `model_dir`: nothing is saved without it; None for no check.
    lease: Lease | None = None

    def __post_init__(self):
        self.actions = {mode_name(k): list(v) for k, v in self.actions.items()}
        self.log = EventLog(self.model_dir)
        # Returns the writer of a folder, which is silent on all hosts but the first.
        self.writer = MetricWriters(self.watch.writers, self.model_dir)
        self._stalls = StallDetector()
        self._infilled = int(self.trainer.state.step)
        self._infill: Filling | None = None
        if sentences := self.watch.infill_sentences:
            model, partitioner = self.trainer.model, self.trainer.partitioner
            self._infill = Filling(sentences, model, partitioner, self.stream.global_batch)
        self._checkpointer: Checkpointer | None = None
        if self.save_cfg:
            self._checkpointer = Checkpointer(self.model_dir, self.save_cfg, self.lease)
        self._saving: int | None = None  # step of the checkpoint being written
        self._interruption = Interruption()
        self.stream.interrupted = self._is_interrupted
        self._watchman = bad_steps.Watchman()
        # Sums of metrics, and seconds of training and waiting, since the last report.
        self._totals: dict[str, float] = collections.defaultdict(float)
        self._trained: dict[str, float] = collections.defaultdict(float)  # since the start
        self._returns: list[str | None] = []  # checkpoints that the run went back to

    def _is_interrupted(self) -> bool:
        """Return whether to wait for data no longer; other hosts may be in the next step."""
        return jax.process_count() == 1 and self._interruption.reason is not None

    def run(self, evaluate_first: bool) -> int:
        """Run to the end and return the last step.

        Raise FloatingPointError if the loss or its gradients are not finite (see
        `t5x.bad_steps`), `checkpoints.SaveError` if a checkpoint could not be written.
        """
        step = int(self.trainer.state.step)
        share = flops.peak_share(
            self.trainer.model,
            self.stream.global_batch,
            jax.device_count(),
            jax.devices()[0].device_kind,
        )
        self.progress = Progress(self.plan.total_steps, step, peak_share=share)
        self._start(step)
        if is_finished(self.model_dir, step, self.plan):
            self.progress.note(nothing_left(self.model_dir, step))
        elif 0 < step < self.plan.total_steps:
            saved = self._checkpointer.last_complete if self._checkpointer else None
            if self.begun_from:
                self.progress.note(f"Starting from {self.begun_from}, at step {step:,}.")
            else:
                self.progress.note(f"Resuming from step {step:,}.")
            if saved is not None:
                self.progress.saved(saved)
        try:
            with self._interruption:  # until the end: a notice must not cut the last save short
                return self._run(step, evaluate_first)
        # Writing metrics raised it; reading data has its own errors.
        except tf.errors.OpError as error:
            raise Failure(
                self.model_dir,
                why=f"cannot be written ({reason_of(error)})",
                to_set="once that is fixed, the same command resumes from the last checkpoint",
            ) from error

    def _run(self, step: int, evaluate_first: bool) -> int:
        try:
            with self.progress:
                step = self._train(step, evaluate_first)
                if not self._interruption.ending:
                    self.log.write("end", step=step)
        except BaseException as error:
            reason = class_and_line(error)
            with contextlib.suppress(Exception):  # the state is lost if another host is gone
                step = int(self.trainer.state.step)
            diverged = isinstance(error, FloatingPointError)
            self.log.write("failed", step=step, reason=reason, diverged=diverged)
            # All hosts see the same loss; the others may not know of any other error.
            self._close(hurry=not diverged)
            raise
        self._close()
        return step

    def _start(self, step: int) -> None:
        """Log the start, with the configuration in `config.gin`."""
        path = epath.Path(self.model_dir) / "config.gin"
        self.log.start(
            path.read_text() if jax.process_index() == 0 and path.exists() else None,
            step=step,
            begun_from=self.begun_from,
            total_steps=self.plan.total_steps,
            devices=jax.device_count(),
            device=jax.devices()[0].device_kind,
            hosts=jax.process_count(),
            expected_loss=self.watch.known_losses(self.eval_sets),
            phases=self.stream.phases(step),
        )

    def _train(self, step: int, evaluate_first: bool) -> int:
        """Train from trigger to trigger; return the step at which the run ends."""
        with contextlib.suppress(Interrupted):
            missed = missed_evaluation(self.model_dir, step, self.plan)
            # What is measured here again must not count twice.
            ended = self._recall(step - 1 if evaluate_first or missed else step)
            if evaluate_first:
                ended |= self._measure(step)[1]
                self._fill_in(step, evaluates=True)
            elif missed:
                ended |= self._handle(missed, None)
            if not ended and step < self.plan.total_steps:
                self._compile()  # waits for the thread that has compiled since the start
                with self.progress.busy("reading the first batch"):
                    while not self.stream.wait(1.0) and not self._is_interrupted():
                        pass
            while not ended and (trigger := triggers.next_trigger(step, self.plan)):
                try:
                    step, figures = self._train_until(step, trigger.step)
                    if self._interruption.ending:
                        self._report(step, figures)
                        break
                    ended = self._handle(trigger, figures)
                except FloatingPointError as error:
                    step = self._go_back(error)
            if ended and step:
                self._save_at_end(step)
        if self._interruption.ending:
            self._save(step)
            reason = self._interruption.reason
            self.log.write("interrupted", step=step, reason=reason)
            message = f"Stopped by {reason} at step {step:,}; the same command resumes from here."
            self.progress.note(message)
            if jax.process_index():  # the progress of other hosts is silent
                print(message, file=sys.stderr)
        return step

    def _recall(self, step: int) -> bool:
        """Replay measurements up to `step` to the actions; True if one had ended the run."""
        return broadcast_from_first(lambda: recall(self.actions, self.log.metrics_by_step, step))

    def _save_at_end(self, step: int) -> None:
        """Save where an action ended the run, unless it did because the state is not finite."""
        try:
            self._save(step)
        except NonFiniteStateError as error:
            self.progress.note(f"step {step:,} is not saved: {error}")

    def _go_back(self, error: FloatingPointError) -> int:
        """Restore the newest checkpoint, and continue with the data that comes next.

        Raise `error` if `bad_steps` is not 'go_back' or going back cannot help.
        """
        self._totals.clear()
        if self.trainer.bad_steps != "go_back" or not self._checkpointer:
            raise error
        self._checkpointer.wait()
        self._note_save()
        path = broadcast_from_first(lambda: latest_checkpoint(self.model_dir))
        self._returns.append(path)
        if path is None or self._returns.count(path) > bad_steps.MOST_RETURNS:
            raise error
        self.progress.note(f"Going back to {path}, with the data that comes next: {error}")
        del self.trainer.state  # frees its memory
        specs = self.trainer.specs
        self.trainer.state = from_disk(restore(path, specs.on_disk).state, specs)
        step = int(self.trainer.state.step)
        self.log.write("returned", step=step, reason=str(error))
        self.progress.returned(step)
        self._recall(step)
        return step

    def _close(self, hurry: bool = False) -> None:
        lines = self.stream.data_summary(self._trained)
        if self.infer_evaluator:
            lines += self.infer_evaluator.data_summary()
        for line in lines:
            self.progress.note(line)
        if self._checkpointer:
            with self.progress.busy("finishing the checkpoint"):
                self._checkpointer.close(hurry and jax.process_count() > 1)
            self._note_save()
        if not hurry:
            with self.progress.busy("finishing the compilation"):
                self.trainer.close()
        self.log.close()
        self.stream.close()
        self.writer.close()

    def _compile(self) -> None:
        step = int(self.trainer.state.step)
        with self.progress.busy("compiling the train step"):
            self.trainer.compile(self.stream.global_batch)
            self.trainer.wait_compiled()
        seconds = self.trainer.compile_seconds
        self.log.write("compile", seconds=round(seconds, 3), step=step)
        self.writer("train").write_scalars(step, {"timing/compilation_seconds": seconds})
        self.progress.note(f"The train step is compiled ({seconds:.0f} s).")

    def _train_until(self, step: int, until: int) -> tuple[int, dict[str, float] | None]:
        """Train; return the step reached, and metrics since the last report if there are any."""
        totals = self._totals
        self.trainer.wait_seconds = 0.0
        started = before = time.monotonic()
        waited, checked = 0.0, step
        for reached, sums in self.trainer.training_steps(self.stream, until):
            step, now = reached, time.monotonic()
            if sums is not None:
                checked += 1
                if self._watchman.check(checked, sums):
                    self.log.write("skipped", step=checked)
                for name, value in sums.items():
                    totals[name] += float(value)
                    self._trained[name] += float(value)
            seconds, wait = now - before, self.trainer.wait_seconds - waited
            before, waited = now, self.trainer.wait_seconds
            self.progress.step(step, sums, wait)
            if stall := self._stalls.step(seconds, wait):
                self.log.write("stall", step=step, seconds=seconds, reason=stall)
            if self._checkpointer:
                self._checkpointer.check()
                self._note_save()
            self.trainer.stop_requested = self._interruption.requested()
        if step < until:  # perhaps interrupted while it waited for data
            self._interruption.requested()
        totals["seconds"] += time.monotonic() - started
        totals["wait"] += self.trainer.wait_seconds
        if not totals["steps"]:  # none, or all of them were skipped
            return step, None
        figures = metrics.summarize(totals, totals["seconds"], self.trainer.partitioner.mesh.size)
        figures["data/wait_share"] = totals["wait"] / totals["seconds"]
        if self.progress.peak_share:
            rate = figures["timing/steps_per_second"]
            figures["device/mfu"] = rate * self.progress.peak_share
        if (held := compile_stats.peak_bytes()) is not None:
            figures["device/peak_bytes"] = float(held)
        return step, figures

    def _handle(self, trigger: triggers.Trigger, figures: dict[str, float] | None) -> bool:
        """Do what is due at a trigger; return True if an action ends the run."""
        step, ended = trigger.step, False
        if figures:
            if trigger.log:
                self._report(step, figures)
            ended = self._act("TRAIN", {"train": figures})
        if trigger.save:
            self._save(step)
        results, over = self._measure(step) if trigger.evaluate else ({}, False)
        best = self._checkpointer.best if self._checkpointer else None
        if best and best.record(step, results):
            self.progress.note(f"step {step:,}  the best so far by {best.metric}")
            if not trigger.save:
                self._save(step)
        decoded = results.get("inference_eval") if jax.process_index() == 0 else None
        if decoded and (not (best and best.keep) or best.is_best_so_far(step)):
            publish_predictions(self.model_dir, decoded, step)
        if trigger.evaluate:
            self.log.write("measured", step=step)
        self._fill_in(step, trigger.evaluate)
        if trigger.log:
            self.writer.flush()
        return ended or over

    def _report(self, step: int, figures: dict[str, float] | None) -> None:
        """Write the metrics since the last report, before a checkpoint can be complete."""
        self._totals.clear()
        if figures:
            data = data_metrics(sum_over_hosts(self.stream.counts(), self.stream.rows[0]))
            epochs = self.stream.epochs(self._trained)
            data |= {f"data/epoch/{task}": value for task, value in epochs.items()}
            self.writer("train").write_scalars(step, {**figures, **data})
            self.writer.flush()
            self.progress.report(step, figures)

    def _measure(self, step: int) -> tuple[dict[str, dict], bool]:
        """Return the results of evaluations, by kind, and whether an action ends the run."""
        results: dict[str, dict] = {"training_eval": self._evaluate(step)}
        ended = self._act("TRAIN_EVAL", results["training_eval"])
        if self.infer_evaluator:
            results["inference_eval"] = self._infer(self.infer_evaluator, step)
            ended |= self._act("INFER_EVAL", results["inference_eval"])
        return results, ended

    def _save(self, step: int) -> None:
        if not self._checkpointer:
            return
        state = to_disk(self.trainer.state, self.trainer.specs)
        with self.progress.busy(f"saving checkpoint_{step}"):
            started = time.monotonic()
            self._checkpointer.wait()  # wait for the previous save
            self._note_save()
            saves = self._checkpointer.save(step, state, self._position_writer(step))
            seconds = time.monotonic() - started
        if saves:
            self._saving = step
            self.log.write("save", step=step, seconds=round(seconds, 3))
            self.progress.note(f"step {step:,}  saving checkpoint_{step}")

    def _position_writer(self, step: int) -> Callable[[str], None] | None:
        """Return what saves the data position; raise if the data of the next step cannot be read.

        Where no data is needed any more the state is saved all the same, without a position. An
        interrupted run waits for data at most `_LAST_WAIT_SECONDS`.
        """
        if not (self.save_cfg and self.save_cfg.save_dataset):
            return None
        while not self._interruption.ending and not self.stream.wait(1.0):
            if self._is_interrupted():
                self._interruption.requested()  # now it is `ending`
        ends = self._interruption.ending or step >= self.plan.total_steps
        is_over = self.stream.wait(_LAST_WAIT_SECONDS if self._interruption.ending else None)

        def check() -> None:
            self.stream.check()
            if not is_over:
                raise RuntimeError("The data of the next step is still being read")

        try:
            raise_together(check, RuntimeError, ValueError)
        except (RuntimeError, ValueError) as error:
            if not ends:
                raise
            self.progress.note(f"checkpoint_{step} has no data position. {error}")
            return None
        return self.stream.save

    def _note_save(self) -> None:
        """Report the checkpoint being written once it is complete."""
        checkpointer = self._checkpointer
        if checkpointer and self._saving is not None and not checkpointer.saving:
            step, self._saving = self._saving, None
            if step == checkpointer.last_complete:
                self.progress.saved(step)
                self.log.write("saved", step=step)

    def _evaluate(self, step: int) -> dict[str, dict[str, float]]:
        results = {}
        for task, batches in self.eval_sets.items():
            with (
                self.progress.busy(f"evaluating {task}"),
                self.log.timed("evaluate", step=step, task=task) as noted,
            ):
                results[task] = values = self.trainer.evaluate(self._interruptible(batches))
                noted["metrics"] = numeric_metrics({task: values})
            self.writer(f"training_eval/{task}").write_scalars(step, values)
            loss = values[metrics.UNNORMALIZED_LOSS]
            self.progress.note(
                f"step {step:,}  validation of {task}: loss {loss:.3f}  "
                f"accuracy {values['accuracy']:.3f}{self.watch.reference(step, task)}"
            )
        return results

    def _interruptible(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items; raise Interrupted after one if all hosts are to exit."""
        for item in items:
            yield item
            self._interruption.ask()

    def _fill_in(self, step: int, evaluates: bool) -> None:
        """Fill in the user's sentences, if that is due."""
        if self._infill is None or not self.watch.fills_in(step, self._infilled, evaluates):
            return
        self._infilled, started = step, time.monotonic()
        with self.progress.busy("filling in sentences"):
            filled = self._infill(self.trainer.state.params)
        seconds = round(time.monotonic() - started, 3)
        pairs = dict(zip(self._infill.sentences, filled, strict=True))
        self.log.write("infill", step=step, seconds=seconds, sentences=pairs)
        texts = {f"infill/{i}": text for i, text in enumerate(filled)}
        self.writer("train").write_texts(step, texts)
        for text in filled:
            self.progress.note(f"step {step:,}  {text}")

    def _infer(self, evaluator: InferenceEvaluator, step: int) -> dict[str, dict[str, Any]]:
        with self.progress.busy("decoding"), self.log.timed("infer", step=step) as noted:
            results = evaluator.evaluate(self.trainer.state.params, step, self._interruptible)
            noted["metrics"] = numeric_metrics(results)
        for task, values in results.items():
            self.progress.note(f"step {step:,}  {task}: {_listed(values)}")
        return results

    def _act(self, mode: str, results: Mapping[str, Mapping[str, float]]) -> bool:
        """Return whether an action ends the run; the first host asks, as it has all results."""
        actions, state = self.actions.get(mode), self.trainer.state
        if not actions:
            return False

        def ask() -> bool:
            # A list: each action must see the results, also after one that ends the run.
            asked = [action.run(state, metrics_by_task=results) for action in actions]
            return any(asked)

        return broadcast_from_first(ask)


def missed_evaluation(
    model_dir: str, step: int, plan: triggers.TrainingPlan
) -> triggers.Trigger | None:
    """Return the evaluation at `step` if the run was stopped in it, after the save."""
    trigger = triggers.next_trigger(step - 1, plan) if step else None
    if trigger is None or trigger.step != step or not trigger.evaluate:
        return None
    with contextlib.closing(EventLog(model_dir)) as log:
        missed = broadcast_from_first(lambda: log.saved_unmeasured(step))
    return dataclasses.replace(trigger, log=False, save=False) if missed else None


def is_finished(model_dir: str, step: int, plan: triggers.TrainingPlan) -> bool:
    """Return whether a run at `step` has been trained and evaluated to the end of its plan."""
    return step >= plan.total_steps and not missed_evaluation(model_dir, step, plan)


def nothing_left(model_dir: str, step: int) -> str:
    """Return the message of a run that is at its end."""
    return (
        f"{model_dir} is at step {step:,}: nothing is left to do. Raise TRAIN_STEPS above {step}, "
        "or TRAIN_STEPS_RELATIVE if it is set, to train on."
    )


def _listed(values: Mapping[str, Any]) -> str:
    """Return the numeric metrics as one line, as many as fit.

    First the overall metrics, then those of the baseline, then those of single classes.
    """
    rank = lambda name: 0 if "/" not in name else 1 if name.startswith(BASELINE) else 2
    numbers = {k: values[k] for k in sorted(values, key=rank) if isinstance(values[k], int | float)}
    number = lambda v: f"{v:,}" if isinstance(v, int) else f"{v:.4g}"
    line = ""
    for count, (name, value) in enumerate(numbers.items()):
        added = f"{line}  {name} {number(value)}" if line else f"{name} {number(value)}"
        if line and len(added) > _LINE:
            return f"{line}  and {len(numbers) - count} more in inference_eval/"
        line = added
    return line
