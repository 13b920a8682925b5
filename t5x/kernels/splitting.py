"""Axes cut into equal turns, without moving parts between devices."""

import jax
import jax.numpy as jnp


def divisor(number: int, most: int) -> int:
    """Return the largest divisor of `number` that is at most `most`."""
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)


def split(x: jax.Array | None, axis: int, parts: int, size: int) -> jax.Array | None:
    """Return [turns, …] with `size` of an axis of each of its `parts`, so that none is moved."""
    if x is None:
        return None
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    x = jnp.moveaxis(x.reshape(*before, parts, -1, size, *after), axis + 1, 0)
    return x.reshape(-1, *before, parts * size, *after)


def join(x: jax.Array, axis: int, parts: int) -> jax.Array:
    """Undo `split`."""
    turns, before, after = x.shape[0], x.shape[1 : axis + 1], x.shape[axis + 2 :]
    x = jnp.moveaxis(x.reshape(turns, *before, parts, -1, *after), 0, axis + 1)
    return x.reshape(*before, -1, *after)
