"""Attention to near keys only, by blocks: what the window excludes is not computed.

    window = local_attention.window(segment_ids_BL, radius=64)   # once for all layers
    out_BLHK = local_attention.attend(attention.attend, q, k, v, window)

A row is cut into blocks of `radius` tokens. The queries of a block attend to the keys of three
blocks, the one before, its own and the one after, under a mask of their distances: 3 x radius keys
a query, however long the row, where the window holds 2 x radius + 1 of them. Rows that are not
longer than these three blocks are not cut.

Shapes: B batch, L length, N blocks of a row, R radius, H heads, K head_dim.
"""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Window:
    """Which keys a query attends to: a mask [B * N, 1, R, 3 * R], or of uncut rows [B, 1, L, L]."""

    mask: jax.Array
    radius: int = flax.struct.field(pytree_node=False)
    blocks: int | None = flax.struct.field(pytree_node=False)  # of a row; None: not cut


def window(segments_BL: jax.Array, radius: int) -> Window:
    """Return the window of keys at most `radius` away, of the same segment; segment 0 is padding.

    A query without any key, which is padding, attends to all in reach: no softmax is empty. What it
    computes must not be used.
    """
    length = segments_BL.shape[1]
    if length <= 3 * radius:
        places = jnp.arange(length)
        near = jnp.abs(places[:, None] - places[None]) <= radius
        return Window(_filled(_same(segments_BL, segments_BL) & near), radius, None)
    blocks = -(-length // radius)
    queries = _cut(segments_BL, radius)
    keys = _neighbours(queries, blocks)
    places = jnp.arange(3 * radius)
    near = jnp.abs(places[radius : 2 * radius, None] - places[None]) <= radius
    return Window(_filled(_same(queries, keys) & near), radius, blocks)


def attend(
    attention: Callable[..., jax.Array],
    q_BLHK: jax.Array,
    k_BLHK: jax.Array,
    v_BLHK: jax.Array,
    window: Window,
) -> jax.Array:
    """Return `attention` (see `t5x.ops.attention`, logits unscaled) over the keys of the window."""
    if window.blocks is None:
        return attention(q_BLHK, k_BLHK, v_BLHK, window.mask, None)
    length, q = q_BLHK.shape[1], _cut(q_BLHK, window.radius)
    k, v = (_neighbours(_cut(x, window.radius), window.blocks) for x in (k_BLHK, v_BLHK))
    out = attention(q, k, v, window.mask, None)
    return out.reshape(q_BLHK.shape[0], -1, *q_BLHK.shape[2:])[:, :length]


def _same(queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Return bool [B, 1, Q, S], where segments [B, Q] and [B, S] are the same and not padding."""
    return ((queries[:, :, None] == keys[:, None]) & (queries > 0)[..., None])[:, None]


def _filled(mask: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(mask | ~mask.any(-1, keepdims=True))


def _cut(x: Any, radius: int) -> jax.Array:
    """Cut [B, L, …] into blocks [B * N, R, …], the last one filled up with 0."""
    rest = -x.shape[1] % radius
    x = jnp.pad(x, [(0, 0), (0, rest), *[(0, 0)] * (x.ndim - 2)])
    return x.reshape(-1, radius, *x.shape[2:])


def _neighbours(blocks: jax.Array, count: int) -> jax.Array:
    """Return each block with the one before and after it in its row, [B * N, 3 * R, …]."""
    rows = blocks.reshape(-1, count, *blocks.shape[1:])
    wide = jnp.pad(rows, [(0, 0), (1, 1), *[(0, 0)] * (rows.ndim - 2)])
    three = jnp.concatenate([wide[:, :-2], rows, wide[:, 2:]], 2)
    return three.reshape(blocks.shape[0], -1, *blocks.shape[2:])
