"""Attention for TPUs: the gradient of `xla`, computed for a few heads at a time.

A v4 has 128 MiB of fast memory (CMEM) next to its HBM. The attention weights of a batch do not fit
in it, but those of one or two heads do, with their gradients. Then they are never written to HBM: a
step of T5 1.1 base takes 0.1665 to 0.1592 G cycles.

Shapes: B batch, Q queries, S keys, H heads, K head_dim.
"""

import jax
import jax.numpy as jnp

from t5x.kernels import xla
from t5x.partitioning import cuts

CMEM_BYTES = 70e6  # bytes of weights that fit in CMEM together with their gradients

_once = jax.lax.optimization_barrier  # its argument is computed once, not again in each reader


def attend(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """See `reference.attend`."""
    return xla.attend_with(gradients, q_BQHK, k_BSHK, v_BSHK, mask, bias)


def gradients(q_BQHK, k_BSHK, v_BSHK, mask, bias, d_out_BQHK, means_BHQ, divisors_BHQ):
    """See `xla.gradients`."""
    if bias is None:
        output = d_out_BQHK, means_BHQ, divisors_BHQ
        return xla.gradients(q_BQHK, k_BSHK, v_BSHK, mask, None, *output, twice=True)
    (batch, queries, heads, _), keys = q_BQHK.shape, k_BSHK.shape[1]
    parts = cuts("heads", heads)
    heads_per_part = heads // parts
    weight_bytes = 4 * batch // cuts("batch", batch) * queries * keys
    turn = xla.divisor(heads_per_part, max(int(CMEM_BYTES // weight_bytes), 1))

    def turn_gradients(xs):
        q, k, v, d_out, means, divisors, bias = xs
        return xla.gradients(q, k, v, mask, bias, d_out, means, divisors)

    # Otherwise every reader changes their layout again.
    d_out, means = _once((d_out_BQHK, means_BHQ))
    inputs = (q_BQHK, 2), (k_BSHK, 2), (v_BSHK, 2), (d_out, 2), (means, 1), (divisors_BHQ, 1)
    turns = [_split(x, axis, parts, turn) for x, axis in (*inputs, (bias, 1))]
    results = jax.lax.map(turn_gradients, turns)
    return [_join(y, axis, parts) for y, axis in zip(results, (2, 2, 2, 1), strict=True)]


def _split(x: jax.Array, axis: int, parts: int, size: int) -> jax.Array:
    """Return [turns, ...] with `size` of an axis of each of its `parts`.

    Each device has its own part, so no head is moved to another device.
    """
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    x = jnp.moveaxis(x.reshape(*before, parts, -1, size, *after), axis + 1, 0)
    return x.reshape(-1, *before, parts * size, *after)


def _join(x: jax.Array, axis: int, parts: int) -> jax.Array:
    """Undo `_split`."""
    turns, before, after = x.shape[0], x.shape[1 : axis + 1], x.shape[axis + 2 :]
    x = jnp.moveaxis(x.reshape(turns, *before, parts, -1, *after), 0, axis + 1)
    return x.reshape(*before, -1, *after)
