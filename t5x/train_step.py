"""The train step: one pure function from (state, batch) to (state, sums).

The B rows of a batch are cut into `num_microbatches` equal parts, whose gradients are added up
before the update. Metrics are sums (see `t5x.metrics`). This module knows nothing of jit, shardings
or data, nor of what happens after a step with NaN (`t5x.bad_steps`).
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from t5x.array_types import Batch, Params, PyTree, Sums
from t5x.optimizers import OptimizerDef
from t5x.partitioning import constrain
from t5x.train_state import TrainState

LossFn: TypeAlias = Callable[..., tuple[jax.Array, tuple[jax.Array, Sums]]]


def train_step(
    state: TrainState,
    batch: Batch,
    rng: jax.Array,
    *,
    loss_fn: LossFn,
    optimizer: OptimizerDef,
    axes: PyTree,
    learning_rate_fn: Callable[[jax.Array], jax.Array],
    num_microbatches: int = 1,
    normalizers: Callable[[Batch], Any] | None = None,
) -> tuple[TrainState, Sums]:
    """Apply one update; return the state after it and the sums of the step.

    `state.step` chooses learning rate and dropout; `rng` is the key of the run, the same every
    step. `batch` has arrays [B, …] of one global batch, computed in `num_microbatches` equal parts
    sequentially. `loss_fn` maps (params, batch, rng) to (loss, (weight sum, sums)), see `models`;
    `axes` are the logical axes of the parameters, `normalizers` as in `gradients`. The sums have no
    learning rate if the optimizer has one of its own.
    """
    rng = jax.random.fold_in(rng, state.step)
    grads, sums = gradients(loss_fn, state.params, batch, rng, num_microbatches, normalizers)
    learning_rate = learning_rate_fn(state.step)
    params, param_states = optimizer.update(
        grads, state.param_states, state.params, axes, state.step, learning_rate
    )
    squares = [jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)]
    sums["gradient_norm"] = jnp.sqrt(sum(squares))
    if not getattr(optimizer, "has_own_rate", False):
        sums["learning_rate"] = jnp.asarray(learning_rate, jnp.float32)
    sums["steps"] = jnp.ones((), jnp.float32)
    return TrainState(state.step + 1, params, param_states), sums


def eval_step(params: Params, batch: Batch, *, loss_fn: LossFn) -> Sums:
    """Return the sums of one batch, without dropout."""
    loss, (_, sums) = loss_fn(params, batch, None)
    return {**sums, "loss": loss, "steps": jnp.ones((), jnp.float32)}


def gradients(
    loss_fn: LossFn,
    params: Params,
    batch: Batch,
    rng: jax.Array,
    num_microbatches: int,
    normalizers: Callable[[Batch], Any] | None = None,
) -> tuple[PyTree, Sums]:
    """Return gradients and sums of a batch, added up over its microbatches.

    What `normalizers` computes of the entire batch is given to `loss_fn` by that name, so that the
    loss of each part is divided by the same number. Without it parts divide by their own, and as
    in upstream a mean over the batch becomes the sum of their means.
    """

    def gradients_of(part: Batch, rng: jax.Array):
        value_and_grad = jax.value_and_grad(loss_fn, has_aux=True)
        (loss, (_, sums)), grads = value_and_grad(params, part, rng)
        return grads, {**sums, "loss": loss}

    if num_microbatches == 1:
        return gradients_of(batch, rng)
    if normalizers:
        loss_fn = functools.partial(loss_fn, normalizers=normalizers(batch))
    parts = jax.tree.map(lambda x: contiguous(x, num_microbatches), batch)
    shapes = jax.eval_shape(gradients_of, jax.tree.map(lambda x: x[0], parts), rng)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def add(total, numbered):
        index, part = numbered
        sums = gradients_of(part, jax.random.fold_in(rng, index))
        return jax.tree.map(jnp.add, total, sums), None

    total, _ = jax.lax.scan(add, zeros, (jnp.arange(num_microbatches), parts))
    return total


def contiguous(x: jax.Array, parts: int) -> jax.Array:
    """Reshape [B, …] to [parts, B / parts, …], each part spread over all devices.

    The parts have upstream's rows, since T5's loss may be normalized in each.
    """
    x = x.reshape(parts, x.shape[0] // parts, *x.shape[1:])
    return constrain(x, None, "batch", *(None,) * (x.ndim - 2))
