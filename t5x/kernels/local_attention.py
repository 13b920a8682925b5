"""Attention to near keys only, by spans: most of what the window excludes is not computed.

    window = local_attention.window(segment_ids_BL, radius=64)   # once for all layers
    out_BLHK = local_attention.attend(xla.attend, q, k, v, window)

The queries of a span of 4 x radius tokens attend to the keys of that span and of a radius on each
side, under a mask of their distances: 6 x radius keys a query, however long the row, where the
window holds 2 x radius + 1 of them. Queries and keys are slices, which a TPU reads where they are;
blocks with their neighbours copied beside them took longer than attention to all 1,024 keys of a
row (docs/log.md). Rows of more than 8 spans are first cut into pieces of 8, side by side
in the batch, because each span is compiled.

Shapes: B batch, L length, N pieces of a row, Q queries and S keys of a span, H heads, K head_dim.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

_RADII, _SPANS = 4, 8  # radii in a span; spans in a piece


class _Layout(NamedTuple):
    """How rows are cut: into pieces of `size` tokens, each with `halo` keys on both sides."""

    radius: int
    pieces: int
    size: int
    halo: int

    @classmethod
    def of(cls, length: int, radius: int) -> "_Layout":
        largest = _RADII * _SPANS * radius
        if length <= largest:
            return cls(radius, 1, length, 0)
        return cls(radius, -(-length // largest), largest, radius)

    def spans(self) -> Iterator[tuple[slice, slice]]:
        """Yield the queries and the keys of each span of a piece."""
        for start in range(0, self.size, _RADII * self.radius):
            stop = min(start + _RADII * self.radius, self.size)
            first, last = start - self.radius + self.halo, stop + self.radius + self.halo
            yield slice(start, stop), slice(max(first, 0), min(last, self.size + 2 * self.halo))

    def queries(self, x: jax.Array) -> jax.Array:
        """Cut [B, L, …] into [B * N, size, …], the last piece filled up with 0."""
        if self.pieces == 1:
            return x
        rest = self.pieces * self.size - x.shape[1]
        return _padded(x, 0, rest).reshape(-1, self.size, *x.shape[2:])

    def keys(self, x: jax.Array) -> jax.Array:
        """Cut [B, L, …] into [B * N, size + 2 * halo, …], each piece with its neighbours' ends."""
        if self.pieces == 1:
            return x
        rows = self.queries(x).reshape(x.shape[0], self.pieces, self.size, *x.shape[2:])
        before = _padded(rows[:, :-1, -self.halo :], 1, 0)
        after = _padded(rows[:, 1:, : self.halo], 0, 1)
        joined = jnp.concatenate([before, rows, after], 2)
        return joined.reshape(-1, *joined.shape[2:])


@flax.struct.dataclass
class Window:
    """Which keys a query attends to: a mask [B * N, 1, Q, S] for each span of a piece."""

    masks: tuple[jax.Array, ...]
    layout: _Layout = flax.struct.field(pytree_node=False)


def window(segments_BL: jax.Array, radius: int) -> Window:
    """Return the window of keys at most `radius` away, of the same segment; segment 0 is padding.

    A query without any key, which is padding, attends to all in reach: no softmax is empty. What it
    computes must not be used.
    """
    layout = _Layout.of(segments_BL.shape[1], radius)
    queries, keys = layout.queries(segments_BL), layout.keys(segments_BL)
    at, key_at = jnp.arange(queries.shape[1]), jnp.arange(keys.shape[1]) - layout.halo
    masks = []
    for q, k in layout.spans():
        near = jnp.abs(at[q, None] - key_at[None, k]) <= radius
        same = (queries[:, q, None] == keys[:, None, k]) & (queries[:, q, None] > 0)
        mask = (same & near)[:, None]
        masks.append(jax.lax.optimization_barrier(mask | ~mask.any(-1, keepdims=True)))
    return Window(tuple(masks), layout)


def attend(
    attention: Callable[..., jax.Array],
    q_BLHK: jax.Array,
    k_BLHK: jax.Array,
    v_BLHK: jax.Array,
    window: Window,
) -> jax.Array:
    """Return what `attention` (`xla.attend`, say) gives over the keys of the window."""
    layout = window.layout
    queries, keys, values = layout.queries(q_BLHK), layout.keys(k_BLHK), layout.keys(v_BLHK)
    parts = [
        attention(queries[:, q], keys[:, k], values[:, k], mask, None)
        for (q, k), mask in zip(layout.spans(), window.masks, strict=True)
    ]
    out = parts[0] if len(parts) == 1 else jnp.concatenate(parts, 1)
    return out.reshape(q_BLHK.shape[0], -1, *q_BLHK.shape[2:])[:, : q_BLHK.shape[1]]


def _padded(x: jax.Array, before: int, after: int) -> jax.Array:
    """Return `x` with zeros before and after along axis 1."""
    return jnp.pad(x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
