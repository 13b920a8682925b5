"""Compiled train and evaluation steps over a mesh, which run ahead of the host."""

import concurrent.futures
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax

from common.errors import UserError, first_line
from common.threads import in_thread
from t5x import metrics
from t5x.actions import EarlyStoppingAction as EarlyStoppingAction  # upstream's place
from t5x.actions import TerminateOnNanAction as TerminateOnNanAction
from t5x.array_types import HostBatch
from t5x.bad_steps import StepStatistics, skipping_step
from t5x.bad_steps import policy as bad_steps_policy
from t5x.multihost.xla_options import options as default_xla_options
from t5x.partitioning import PjitPartitioner
from t5x.train_state import StateSpecs, TrainState
from t5x.train_step import eval_step, train_step

Shapes = Mapping[str, jax.ShapeDtypeStruct]


class Trainer:
    """Holds the state of a run and applies compiled steps to it.

    Args:
      train_state: the initial state; may be set later, as `state`.
      train_state_axes: `train_state.StateSpecs` of the state.
      rng: key of dropout, the same at every start of a run.
      learning_rate_fn: step to rate, see `schedules`.
      num_microbatches: parts of a batch whose gradients are added; None or 1 for one part.
      bad_steps: what to do about NaN, 'stop', 'skip' or 'go_back'; see `t5x.bad_steps`. None means
        'skip' for an optimizer with `skip_nan_updates`, else 'stop'. Not in T5X.
      xla_options: options of XLA for the train step, by name; None for the devices' own,
        `multihost.xla_options`. Not in T5X.
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
        xla_options: Mapping[str, str | int | bool] | None = None,
    ):
        self.model = model
        if train_state is not None:
            self.state = train_state
        self.partitioner, self.specs = partitioner, train_state_axes
        self.learning_rate_fn = learning_rate_fn
        self.num_microbatches = num_microbatches or 1
        self.rng = rng
        self.bad_steps = bad_steps_policy(bad_steps, getattr(model, "optimizer_def", None))
        if xla_options is not None:
            self.xla_options = dict(xla_options)
            _check_xla_options(self.xla_options)
        self.compile_seconds = 0.0  # compile time of the train step
        self._compile: Callable[[], jax.stages.Compiled] | None = None  # returns the step
        self._thread: concurrent.futures.Future[jax.stages.Compiled] | None = None
        self.wait_seconds = 0.0  # spent waiting for data since the loop last set it to 0
        self.stop_requested = False  # set between two steps, ends `training_steps`

    def check_batch(self, batch_size: int) -> None:
        """Check that devices × microbatches divide the batch; raise a UserError if not."""
        name = "train/utils.DatasetConfig.batch_size"
        self.partitioner.check_batch(batch_size, self.num_microbatches, name)

    @functools.cached_property
    def xla_options(self) -> dict[str, str | int | bool]:
        """The options of XLA for the train step."""
        return default_xla_options(list(self.partitioner.mesh.devices.flat))

    @functools.cached_property
    def _train_step(self):
        step = functools.partial(
            train_step,
            loss_fn=self.model.loss_fn,
            optimizer=self.model.optimizer_def,
            axes=self.specs.axes,
            learning_rate_fn=self.learning_rate_fn,
            num_microbatches=self.num_microbatches,
            normalizers=getattr(self.model, "normalizers", None),  # T5's are upstream's
        )
        traced = self._with_activations(functools.partial(skipping_step, step=step), train_step)
        replicated = self.partitioner.replicated
        carried = (self.specs.shardings, replicated)
        return jax.jit(
            traced,
            donate_argnums=0,
            out_shardings=(carried, replicated),
            compiler_options=self.xla_options or None,
        )

    @functools.cached_property
    def _statistics(self) -> StepStatistics | None:
        if self.bad_steps != "skip":
            return None
        return jax.jit(StepStatistics.initial, out_shardings=self.partitioner.replicated)()

    @functools.cached_property
    def _rng(self) -> jax.Array:
        # `device_put` cannot put a key on the devices of other hosts.
        return jax.jit(lambda key: key, out_shardings=self.partitioner.replicated)(self.rng)

    def compile(self, batch: Shapes) -> None:
        """Trace the train step for global batches of these shapes; compile it in a thread.

        `wait_compiled` waits for the thread. Do nothing if it compiles already, or jit is off. On
        GPUs XLA times kernels while it compiles, which a state that is restored meanwhile would
        disturb, so that `wait_compiled` does all of it.
        """
        if jax.config.jax_disable_jit or self._compile:  # type: ignore[attr-defined,unused-ignore]  # jax adds flags later
            return
        started = time.monotonic()
        lowered = self.lower(batch)  # here, since tracing holds Python's lock

        def compiled() -> jax.stages.Compiled:
            program = lowered.compile()
            self.compile_seconds = time.monotonic() - started
            return program

        self._compile = compiled
        if self.partitioner.mesh.devices.flat[0].platform != "gpu":
            self._thread = in_thread(compiled, "compile")
            self._compile = self._thread.result

    def wait_compiled(self) -> None:
        """Wait for what `compile` has begun, and use it; raise what it has raised."""
        if self._compile:
            self._train_step, self._compile = self._compile(), None

    def close(self) -> None:
        """Wait for the thread that compiles: one still inside XLA would abort Python's exit."""
        if self._thread:
            concurrent.futures.wait([self._thread])

    @functools.cached_property
    def _eval_step(self):
        step = functools.partial(eval_step, loss_fn=self.model.eval_fn)
        traced = self._with_activations(step, eval_step)
        return jax.jit(traced, out_shardings=self.partitioner.replicated)

    def _with_activations(self, step: Callable, named: Callable) -> Callable:
        @functools.wraps(named)  # the program's name in profiles and compilation caches
        def traced(*args):
            with self.partitioner.activations():
                return step(*args)

        return traced

    def lower(self, batch: Shapes) -> jax.stages.Lowered:
        """Return the train step lowered for shapes, to compile or inspect it."""

        def replicated(x):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.partitioner.replicated)

        statistics = None
        if self.bad_steps == "skip":
            statistics = jax.tree.map(replicated, jax.eval_shape(StepStatistics.initial))
        carried = (self.specs.state, statistics)
        return self._train_step.lower(carried, self._placed(batch), replicated(self.rng))

    def lower_eval(self, batch: Shapes) -> jax.stages.Lowered:
        """Return the evaluation step lowered for shapes."""
        return self._eval_step.lower(self.specs.state.params, self._placed(batch))

    def _placed(self, batch: Shapes) -> dict[str, jax.ShapeDtypeStruct]:
        sharding = self.partitioner.batch_sharding
        struct = functools.partial(jax.ShapeDtypeStruct, sharding=sharding)
        return {name: struct(x.shape, x.dtype) for name, x in batch.items()}

    def training_steps(self, batches: Iterator[HostBatch], until: int) -> Iterator[tuple[int, Any]]:
        """Train to step `until`, while there are batches and `stop_requested` is not set.

        After each yield the step, which may still be running, and the sums of the one before, first
        None.
        """
        pending = None
        for step in range(int(self.state.step) + 1, until + 1):
            started = time.monotonic()
            if (rows := next(batches, None)) is None:
                break
            batch = self.put(rows)
            self.wait_seconds += time.monotonic() - started
            carried = (self.state, self._statistics)
            (self.state, self._statistics), sums = self._train_step(carried, batch, self._rng)
            # Reading sums waits for their step. Those of the step before are read while this one
            # runs, so the device never waits for the host.
            yield step, None if pending is None else jax.device_get(pending)
            pending, until = sums, step
            if self.stop_requested:
                break
        if pending is not None:
            yield until, jax.device_get(pending)

    def evaluate(self, batches: Iterable[HostBatch]) -> dict[str, float]:
        """Return metrics over evaluation batches; `batches` are this host's rows."""
        parts = [self._eval_step(self.state.params, self.put(batch)) for batch in batches]
        total = metrics.total(jax.device_get(parts))
        return metrics.summarize(total, None, self.partitioner.mesh.size)

    def put(self, batch: HostBatch) -> dict[str, jax.Array]:
        """Return global arrays that contain this host's rows."""
        sharding = self.partitioner.batch_sharding
        put = functools.partial(jax.make_array_from_process_local_data, sharding)
        return {name: put(rows) for name, rows in batch.items()}


def _check_xla_options(options: Mapping[str, str | int | bool]) -> None:
    """Raise UserError for options that XLA does not have, or of another type."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except (jax.errors.JaxRuntimeError, TypeError, ValueError) as error:
        raise UserError(
            "trainer.Trainer.xla_options",
            dict(options),
            f"which XLA refuses: {first_line(error)}",
            "correct it or leave it out",
        ) from error
