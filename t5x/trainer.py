"""Steps over a mesh: compiled once, fed with the rows of this host, never waited for.

trainer = Trainer(model, state, partitioner, specs, rng, learning_rate_fn=rate)
for step, sums in trainer.training_steps(stream, until=1000):
    ...                                  # sums of the step before: the device is a step ahead
"""

import collections
import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from t5x import metrics
from t5x.actions import EarlyStoppingAction as EarlyStoppingAction  # upstream's place
from t5x.bad_steps import Recent, skipping_step
from t5x.partitioning import PjitPartitioner
from t5x.train_state import StateSpecs, TrainState
from t5x.train_step import eval_step, train_step

Batch = Mapping[str, np.ndarray]


class Trainer:
    """Holds the state of a run and applies compiled steps to it.

    Args:
      model: see `models.EncoderDecoderModel`.
      train_state: where training goes on; may be set later, as `state`.
      partitioner: of parameters and batches.
      train_state_axes: `train_state.StateSpecs` of the state.
      rng: key of dropout, the same at every start of a run.
      learning_rate_fn: step to rate, see `schedules`.
      num_microbatches: parts of a batch whose gradients are added; None or 1 for the whole.
      bad_steps: what to do where loss or gradients are NaN or infinite. 'stop' ends the run;
        'skip' leaves such a step out, and one far off the others too (see `skipping`); 'go_back'
        takes up the last checkpoint and goes on with the data behind. None is 'skip' with an
        optimizer that has `skip_nan_updates`, else 'stop'. Not in T5X.

    Raises:
      ValueError: another `bad_steps`.
    """

    def __init__(
        self,
        model: Any,
        train_state: TrainState | None,
        partitioner: PjitPartitioner,
        train_state_axes: StateSpecs,
        rng: jax.Array,
        *,
        learning_rate_fn: Callable[[jax.Array], jax.Array],
        num_microbatches: int | None = None,
        bad_steps: str | None = None,
    ):
        self.model, self.state = model, train_state
        self.partitioner, self.specs = partitioner, train_state_axes
        self.learning_rate_fn = learning_rate_fn
        self.num_microbatches = num_microbatches or 1
        self.rng = rng
        skips = getattr(getattr(model, "optimizer_def", None), "skip_nan_updates", False)
        self.bad_steps = bad_steps or ("skip" if skips else "stop")
        if self.bad_steps not in ("stop", "skip", "go_back"):
            raise ValueError(
                f"trainer.Trainer.bad_steps is {bad_steps!r}; set it to 'stop', 'skip' or "
                "'go_back'."
            )
        self.wait_seconds = 0.0  # spent waiting for data; who reads it sets it back
        self.leaves = False  # set between two steps, it makes the step on its way the last

    def check_batch(self, batch_size: int) -> None:
        """Refuses, with a ValueError, a batch that devices × microbatches do not divide."""
        name = "train/utils.DatasetConfig.batch_size"
        self.partitioner.check_batch(batch_size, self.num_microbatches, name)

    @functools.cached_property
    def _train_step(self):
        step = functools.partial(
            train_step,
            loss_fn=self.model.loss_fn,
            optimizer=self.model.optimizer_def,
            axes=self.specs.axes,
            learning_rate_fn=self.learning_rate_fn,
            num_microbatches=self.num_microbatches,
        )
        carried, replicated = self.specs.shardings, self.partitioner.replicated
        if self._skips:
            step = functools.partial(skipping_step, step=step)
            carried = (carried, replicated)
        return jax.jit(
            self._with_activations(step), donate_argnums=0, out_shardings=(carried, replicated)
        )

    @property
    def _skips(self) -> bool:
        return self.bad_steps == "skip"

    @functools.cached_property
    def _recent(self) -> Recent:
        return jax.jit(Recent.begin, out_shardings=self.partitioner.replicated)()

    def _advance(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        carried = (self.state, self._recent) if self._skips else self.state
        carried, sums = self._train_step(carried, batch, self._rng)
        self.state, self._recent = carried if self._skips else (carried, None)
        return sums

    @functools.cached_property
    def _rng(self) -> jax.Array:
        # `device_put` takes no key to the devices of other hosts.
        return jax.jit(lambda key: key, out_shardings=self.partitioner.replicated)(self.rng)

    def compile(self, batch: Mapping[str, jax.ShapeDtypeStruct]) -> None:
        """Compiles the train step for global batches of these shapes, unless JIT is off."""
        if jax.config.jax_disable_jit:
            return
        self._train_step = self.lower(batch).compile()

    @functools.cached_property
    def _eval_step(self):
        step = functools.partial(eval_step, loss_fn=self.model.eval_fn)
        return jax.jit(self._with_activations(step), out_shardings=self.partitioner.replicated)

    def _with_activations(self, step: Callable) -> Callable:
        @functools.wraps(step.func)
        def traced(*args):
            with self.partitioner.activations():
                return step(*args)

        return traced

    def lower(self, batch: Mapping[str, jax.ShapeDtypeStruct]) -> jax.stages.Lowered:
        """The train step lowered for arrays that need not exist, to be compiled or looked at."""
        whole = lambda x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=self.partitioner.replicated
        )
        carried = self.specs.state
        if self._skips:
            carried = (carried, jax.tree.map(whole, jax.eval_shape(Recent.begin)))
        return self._train_step.lower(carried, self._placed(batch), whole(self.rng))

    def lower_eval(self, batch: Mapping[str, jax.ShapeDtypeStruct]) -> jax.stages.Lowered:
        """The evaluation step, likewise."""
        return self._eval_step.lower(self.specs.state.params, self._placed(batch))

    def _placed(self, batch: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, Any]:
        sharding = self.partitioner.batch_sharding
        place = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
        return jax.tree.map(place, dict(batch))

    def training_steps(self, batches: Iterator[Batch], until: int) -> Iterator[tuple[int, Any]]:
        """Trains to step `until`, or until `leaves` is set, yielding after each step.

        Yields:
          The step now reached (its arithmetic may still run) and the sums of the step before it,
          None for the first: they are read only after the next step is on its way.
        """
        pending = None
        for step in range(int(self.state.step) + 1, until + 1):
            started = time.monotonic()
            batch = self.put(next(batches))
            self.wait_seconds += time.monotonic() - started
            sums = self._advance(batch)
            yield step, None if pending is None else jax.device_get(pending)
            pending, until = sums, step
            if self.leaves:
                break
        if pending is not None:
            yield until, jax.device_get(pending)

    def evaluate(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Metrics over evaluation batches, all of this host's rows of each."""
        total = None
        for batch in batches:
            total = metrics.add(total, self._eval_step(self.state.params, self.put(batch)))
        return metrics.summarize(jax.device_get(total), None, self.partitioner.mesh.size)

    def put(self, batch: Batch) -> dict[str, jax.Array]:
        """This host's rows as parts of global arrays."""
        sharding = self.partitioner.batch_sharding
        return jax.tree.map(
            lambda x: jax.make_array_from_process_local_data(sharding, x), dict(batch)
        )


class TerminateOnNanAction:
    """Stops training when a metric is not a finite number.

    Args:
      task: key of the metrics it looks at, 'train' for training itself.
      metric: name of the metric.
    """

    def __init__(self, task: str, metric: str = "loss"):
        self.task, self.metric = task, metric

    def run(self, train_state: TrainState, metrics_by_task: Mapping[str, Mapping]) -> bool:
        """True to stop.

        Raises:
          ValueError: the task or metric is unknown.
        """
        if self.task not in metrics_by_task or self.metric not in metrics_by_task[self.task]:
            known = {task: sorted(values) for task, values in metrics_by_task.items()}
            raise ValueError(
                f"TerminateOnNanAction looks for {self.metric!r} of {self.task!r}, but there are "
                f"only {known}; set its task and metric to some of these."
            )
        value = metrics_by_task[self.task][self.metric]
        if math.isfinite(value):
            return False
        logging.warning("%s of %s is %s: training stops.", self.metric, self.task, value)
        return True


class Totals(collections.UserDict):
    """Sums of the steps since the last reading, on the host."""

    def add(self, sums: Mapping[str, np.ndarray] | None) -> None:
        """Adds one step."""
        for key, value in (sums or {}).items():
            self.data[key] = self.data.get(key, 0.0) + float(value)

    def take(self) -> dict[str, float]:
        """Reads and starts again."""
        taken, self.data = self.data, {}
        return taken
