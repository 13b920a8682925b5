"""`argmax` and `top_k` for rows as long as a vocabulary."""

import jax
import jax.numpy as jnp
from jax import lax

_BLOCK = 128


def argmax(logits: jax.Array) -> jax.Array:
    """Return the lowest of the best ids, int32 [rows]."""
    # A maximum and a minimum use wide registers; XLA's argmax compares pair by pair.
    ids = jnp.arange(logits.shape[-1], dtype=jnp.int32)
    best = logits == logits.max(-1, keepdims=True)
    return jnp.where(best, ids, logits.shape[-1] - 1).min(-1)


def top_k(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Return `lax.top_k` of [..., V], the lowest of equal ids first.

    The k best are in the k blocks with the best maxima, so only a few hundred numbers are sorted,
    and gathered if the batch is sharded: XLA gathers the operand of `lax.top_k`.
    """
    size = x.shape[-1]
    if size <= 16 * k * _BLOCK:
        return lax.top_k(x, k)
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -size % _BLOCK)], constant_values=-jnp.inf)
    blocks = x.reshape(*x.shape[:-1], -1, _BLOCK)
    chosen = jnp.sort(lax.top_k(blocks.max(-1), k)[1], axis=-1)
    few = jnp.take_along_axis(blocks, chosen[..., None], axis=-2, mode="clip")
    best, where = lax.top_k(few.reshape(*few.shape[:-2], -1), k)
    block = jnp.take_along_axis(chosen, where // _BLOCK, axis=-1)
    return best, block * _BLOCK + where % _BLOCK
