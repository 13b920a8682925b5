"""Beam operations on key-value caches: pick rows, repeat them for decodes, reorder them.

A cache is a pytree of the model. The batch is the same axis of all its leaves.
"""

from typing import Any

import jax
import jax.numpy as jnp

from common.errors import UserError
from t5x.array_types import Cache

# Leaves without a batch in upstream's caches. The first has one if rows start at other positions.
_CACHE_INDEX = "cache_index"
_SHARED_LEAVES = (_CACHE_INDEX, "cached_bias", "position_embedder_index")


def pick(x: jax.Array, which: jax.Array) -> jax.Array:
    """Return the entries `which` [B, N] of x [B, M, ...] as [B, N, ...]."""
    # Mapped over the batch instead of indexed by it, so that a sharded batch is not gathered.
    return jax.vmap(lambda row, index: jnp.take(row, index, axis=0, mode="clip"))(x, which)


def _map_rows(fn, cache: Cache, offset: int, per_row_index: bool = False) -> Cache:
    """Apply `fn` to the leaves of the cache that have a batch, at axis `offset`."""

    def apply(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        name = getattr(path[-1], "key", getattr(path[-1], "name", None)) if path else None
        shared = name in _SHARED_LEAVES and not (per_row_index and name == _CACHE_INDEX)
        return leaf if shared or jnp.ndim(leaf) <= offset else fn(leaf)

    return jax.tree_util.tree_map_with_path(apply, cache)


def repeat_rows(cache, rows: int, times: int, offset: int, per_row_index=False) -> Cache:
    """Return the cache with each of its `rows` repeated, the copies of a row adjacent."""

    def repeat(leaf: jax.Array) -> jax.Array:
        if leaf.shape[offset] != rows:
            raise UserError(
                f"A cache leaf of shape {leaf.shape}",
                why=f"has {leaf.shape[offset]} rows at axis {offset}, but {rows} rows are decoded",
                to_set="set cache_offset to its batch axis",
            )
        return jnp.repeat(leaf, times, axis=offset)

    return _map_rows(repeat, cache, offset, per_row_index)


def reorder_rows(cache: Cache, parent_BN: jax.Array, offset: int) -> Cache:
    """Copy each beam's part of the cache [..., B*N, ...] to the beams that continue it."""
    if parent_BN.shape[1] == 1:
        return cache

    def reorder(leaf: jax.Array) -> jax.Array:
        split = leaf.reshape(*leaf.shape[:offset], *parent_BN.shape, *leaf.shape[offset + 1 :])
        take = lambda row, parent: jnp.take(row, parent, axis=offset, mode="clip")
        moved = jax.vmap(take, in_axes=(offset, 0), out_axes=offset)(split, parent_BN)
        return moved.reshape(leaf.shape)

    return _map_rows(reorder, cache, offset)
