"""Products in the form in which XLA computes them well where they run.

On a CPU:

- XLA uses the processor's instructions for bfloat16 only if the result is float32: 371 GF/s for a
  product of tokens and a kernel. For a bfloat16 result it converts both factors first: 153 GF/s.
- The gradient of a kernel, a sum over tokens, is computed from a transposed copy of the tokens: 330
  instead of 160 GF/s in bfloat16. Left to itself, XLA makes no copy and multiplies slowly. The copy
  is made as one long row, since as a matrix it would keep the layout of the tokens, for which XLA
  converts both factors.

A TPU does better with three axes: a step of T5 1.1 base takes 0.1592 G cycles, flattened 0.1854 G.
"""

import functools

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from t5x.partitioning import is_divided, platform

_once = jax.lax.optimization_barrier  # without it XLA makes the transposition part of the product


def contract(
    equation: str, a: jax.Array, b: jax.Array, dtype: DTypeLike | None = None
) -> jax.Array:
    """Return `jnp.einsum(equation, a, b)` in `dtype` (default a's)."""
    dtype = dtype or a.dtype
    computed = jnp.float32 if platform() == "cpu" else dtype
    return jnp.einsum(equation, a, b, preferred_element_type=computed).astype(dtype)


def product(x: jax.Array, kernel_DF: jax.Array, dtype: DTypeLike | None = None) -> jax.Array:
    """Return `x @ kernel_DF` [..., F] of [..., D], in `dtype` (default x's)."""
    dtype = dtype or x.dtype
    if platform() == "tpu" or (platform() == "gpu" and dtype == x.dtype):
        return jnp.dot(x, kernel_DF, preferred_element_type=dtype)
    out_NF = _product(dtype, x.reshape(-1, x.shape[-1]), kernel_DF)
    return out_NF.reshape(*x.shape[:-1], kernel_DF.shape[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(dtype, x_ND, kernel_DF):
    return contract("ND,DF->NF", x_ND, kernel_DF, dtype)


def _forward(dtype, x_ND, kernel_DF):
    return _product(dtype, x_ND, kernel_DF), (x_ND, kernel_DF)


def _backward(dtype, kept, d_out_NF):
    x_ND, kernel_DF = kept
    d_out_NF = d_out_NF.astype(x_ND.dtype)
    d_x_ND = contract("NF,DF->ND", d_out_NF, kernel_DF)
    return d_x_ND, kernel_gradient(x_ND, d_out_NF, kernel_DF.dtype)


_product.defvjp(_forward, _backward)


def copied(x: jax.Array) -> jax.Array:
    """Return a copy of `x` in this layout, made as one long row, for a product on a CPU.

    One device must hold all of it: several would move such a row between them.
    """
    return _once(x.reshape(-1)).reshape(x.shape)


def kernel_gradient(
    x_BID: jax.Array, d_out_BIF: jax.Array, dtype: DTypeLike | None = None
) -> jax.Array:
    """Return the gradient [D, F] of a kernel from its inputs and its outputs' gradient."""
    if platform() != "cpu" or is_divided():
        return contract("...D,...F->DF", x_BID, d_out_BIF, dtype)
    x_ND = x_BID.reshape(-1, x_BID.shape[-1])
    return contract("DN,NF->DF", copied(x_ND.T), d_out_BIF.reshape(-1, d_out_BIF.shape[-1]), dtype)


@jax.custom_vjp
def scaled(x: jax.Array, scale_D: jax.Array) -> jax.Array:
    """Return `x * scale_D` [..., D] of [..., D] in the dtype of both.

    The gradient of the scale, a sum over tokens, is added up in float32. JAX would add it up in
    bfloat16, on a CPU in a tree of small sums.
    """
    return x * scale_D


def _scaled_keeping(x, scale_D):
    return scaled(x, scale_D), (x, scale_D)


def _scaled_gradients(kept, d_out):
    x, scale_D = kept
    d_scale_D = (d_out * x).sum(tuple(range(x.ndim - 1)), dtype=jnp.float32)
    return d_out * scale_D, d_scale_D.astype(scale_D.dtype)


scaled.defvjp(_scaled_keeping, _scaled_gradients)
