"""Sums in the form in which XLA computes them well where they run.

On a CPU XLA takes several times as long as a product with ones to add up
the rows of an array of more than 2^14 columns, and of one with few rows as adding them one by one.
"""

import functools

import jax
import jax.numpy as jnp

from t5x.kernels.splitting import divisor
from t5x.partitioning import cuts, is_divided, platform

WIDE = 1 << 14  # columns up to which XLA sums the rows of an array quickly on a CPU
TERMS = 64  # rows added one by one; each is an instruction to compile


def mean(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Return the means of float32 `x` over `axes`."""
    return column_sums(x) / x.shape[-2] if axes == (x.ndim - 2,) else x.mean(axes)


def column_sums(x: jax.Array) -> jax.Array:
    """Return float32 sums [..., C] of [..., R, C] over R."""
    if platform() != "cpu" or is_divided() or x.shape[-1] <= WIDE:
        return x.sum(-2, dtype=jnp.float32)
    ones = jnp.ones((*x.shape[:-2], 1, x.shape[-2]), x.dtype)
    return jnp.matmul(ones, x, preferred_element_type=jnp.float32)[..., 0, :]


def sum_rows(x: jax.Array) -> jax.Array:
    """Return float32 sums [P, …] over the rows [B, …] in each of P parts of the batch.

    But for GPUs, rows are added one by one: on a TPU three times faster than reducing an axis.
    """
    parts = cuts("batch", x.shape[0])
    rows = x.shape[0] // parts
    if platform() == "gpu":
        return x.reshape(parts, rows, *x.shape[1:]).sum(1, dtype=jnp.float32)
    terms = divisor(rows, TERMS)
    x = x.reshape(parts, terms, rows // terms, *x.shape[1:])
    sums = functools.reduce(jnp.add, (x[:, i].astype(jnp.float32) for i in range(terms)))
    return sums.sum(1)
