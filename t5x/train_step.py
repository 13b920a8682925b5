"""The train step: one pure function from (state, batch) to (state, sums).

B batch rows are cut into `num_microbatches` equal parts whose gradients are added before the one
update. Metrics are sums (see `t5x.metrics`). Nothing here knows of jit, shardings or data.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from t5x.optimizers import OptimizerDef
from t5x.train_state import TrainState

Batch = Mapping[str, jax.Array]
LossFn = Callable[[Any, Batch, jax.Array | None], tuple[jax.Array, tuple[jax.Array, dict]]]


def train_step(
    state: TrainState,
    batch: Batch,
    rng: jax.Array,
    *,
    loss_fn: LossFn,
    optimizer: OptimizerDef,
    axes: Any,
    learning_rate_fn: Callable[[jax.Array], jax.Array],
    num_microbatches: int = 1,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Applies one update.

    Args:
      state: before the update; `state.step` chooses learning rate and dropout.
      batch: arrays [B, …] of one global batch.
      rng: key of the run, the same every step.
      loss_fn: (params, batch, rng) to (loss, (weight sum, sums)); see `models`.
      optimizer: see `optimizers.OptimizerDef`.
      axes: logical axes of the parameters.
      learning_rate_fn: step to float32 rate.
      num_microbatches: equal parts of the batch, one after the other.

    Returns:
      The state after the update and the sums of the step.
    """
    rng = jax.random.fold_in(rng, state.step)
    grads, sums = gradients(loss_fn, state.params, batch, rng, num_microbatches)
    learning_rate = learning_rate_fn(state.step)
    params, param_states = optimizer.update(
        grads, state.param_states, state.params, axes, state.step, learning_rate
    )
    squares = [jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)]
    sums["gradient_norm"] = jnp.sqrt(sum(squares))
    sums["learning_rate"] = jnp.asarray(learning_rate, jnp.float32)
    sums["steps"] = jnp.ones((), jnp.float32)
    return TrainState(state.step + 1, params, param_states), sums


def eval_step(params: Any, batch: Batch, *, loss_fn: LossFn) -> dict[str, jax.Array]:
    """Sums of one batch, without dropout."""
    loss, (_, sums) = loss_fn(params, batch, None)
    return {**sums, "loss": loss, "steps": jnp.ones((), jnp.float32)}


def gradients(
    loss_fn: LossFn, params: Any, batch: Batch, rng: jax.Array, num_microbatches: int
) -> tuple[Any, dict[str, jax.Array]]:
    """Gradients and sums of a batch, computed part by part and added."""

    def one(part: Batch, rng: jax.Array):
        value_and_grad = jax.value_and_grad(loss_fn, has_aux=True)
        (loss, (_, sums)), grads = value_and_grad(params, part, rng)
        return grads, {**sums, "loss": loss}

    if num_microbatches == 1:
        return one(batch, rng)
    parts = jax.tree.map(lambda x: interleaved(x, num_microbatches), batch)
    shapes = jax.eval_shape(one, jax.tree.map(lambda x: x[0], parts), rng)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def body(total, numbered):
        index, part = numbered
        return jax.tree.map(jnp.add, total, one(part, jax.random.fold_in(rng, index))), None

    total, _ = jax.lax.scan(body, zeros, (jnp.arange(num_microbatches), parts))
    return total


def interleaved(x: jax.Array, parts: int) -> jax.Array:
    """[B, …] to [parts, B / parts, …], every part taking rows from every device's share."""
    return jnp.swapaxes(x.reshape(x.shape[0] // parts, parts, *x.shape[1:]), 0, 1)
