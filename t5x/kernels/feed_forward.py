"""The feed-forward product with a hand-written gradient.

  y_BID = feed_forward((gelu, linear), x_BID, keep_B1F, (wi_0, wi_1), wo)
  y_BID = feed_forward((gelu,), x_BID, None, (wi,), wo, (bias_F,))

Left to itself, the compiler recomputes the hidden units inside every product that reads them. Here
they and their gradients are computed once, fused with the product before them. Its share of the
gain is counted with it; `plain_feed_forward` is the reference.

Shapes: B batch, I length, D emb_dim, F mlp_dim.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from t5x.kernels.product import contract, kernel_gradient
from t5x.partitioning import constrain, platform

Activations = Sequence[Callable[[jax.Array], jax.Array]]
_once = jax.lax.optimization_barrier  # its argument is computed once, not again in each reader


# Odd polynomial z, with x * sigmoid(z) the exact GELU, fitted by least squares to |x| < 6: off by
# at most 1.2e-4, and by 1.6e-3 of values above 1e-4, where bfloat16 rounds by up to 3.9e-3.
_GELU = (1.59343113, 7.55346984e-2, -9.57906113e-4, 8.18442815e-6)


def gelu(x: jax.Array) -> jax.Array:
    """Return x times the normal distribution function (Hendrycks and Gimpel 2016), in x's dtype.

    In bfloat16 it is computed by one sigmoid, to less than bfloat16's rounding: erf takes a TPU
    longer than the products around it (3.21 to 2.68 M cycles for BERT base's layer, 32 x 512).
    """
    if x.dtype != jnp.bfloat16:
        return jax.nn.gelu(x, approximate=False)
    wide = x.astype(jnp.float32)
    square = jnp.square(wide)
    a, b, c, d = _GELU
    z = wide * (a + square * (b + square * (c + square * d)))
    return (wide * jax.nn.sigmoid(z)).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def feed_forward(activations: Activations, x_BID, keep_B1F, wi_DF, wo_FD, bias_F=None) -> jax.Array:
    """Map [B, I, D] to [B, I, D] through the product of one projection per activation.

    `x_BID` is in the dtype of all products; `keep_B1F` is a factor of the hidden units (dropout),
    None for 1; `wi_DF` has a kernel for each activation, and `bias_F`, unless it is None, a bias.
    """
    return _forward(activations, x_BID, keep_B1F, wi_DF, wo_FD, bias_F)[0]


def _projected(x_BID, wi_DF, bias_F):
    found = tuple(contract("BID,DF->BIF", x_BID, w) for w in wi_DF)
    return found if bias_F is None else tuple(y + b for y, b in zip(found, bias_F, strict=True))


def _hidden(activations, keep_B1F, *projected):
    product = functools.reduce(
        jnp.multiply, (f(y) for f, y in zip(activations, projected, strict=True))
    )
    return product if keep_B1F is None else product * keep_B1F


def _forward(activations, x, keep, wi, wo, bias=None):
    projected = _projected(x, wi, bias)
    projected = tuple(constrain(y, "batch", "length", "mlp") for y in projected)
    hidden_BIF = _once(_hidden(activations, keep, *projected))
    # A GPU reads the hidden units sooner than it computes them again from both projections.
    kept = hidden_BIF if platform() == "gpu" else None
    return contract("BIF,FD->BID", hidden_BIF, wo), (x, keep, wi, wo, bias, projected, kept)


def _backward(activations, kept, d_out_BID):
    x, keep, wi, wo, bias, projected, kept_BIF = kept
    if kept_BIF is not None:
        projected = _once(projected)  # or XLA keeps more of the activation than its inputs
    hidden_BIF, pull = jax.vjp(functools.partial(_hidden, activations, keep), *projected)
    d_hidden_BIF = contract("BID,FD->BIF", d_out_BID, wo)
    hidden_BIF = hidden_BIF if kept_BIF is None else kept_BIF
    hidden_BIF, d_projected = _once((hidden_BIF, pull(d_hidden_BIF)))
    d_x = sum(contract("BIF,DF->BID", d, w) for d, w in zip(d_projected, wi, strict=True))
    d_wo = kernel_gradient(hidden_BIF, d_out_BID)
    if bias is None:
        d_wi = tuple(kernel_gradient(x, d) for d in d_projected)
        return d_x, None, d_wi, d_wo, None
    # A column of ones sums the rows in the product that reads them anyway: a TPU takes 3.21 M
    # instead of 3.65 M cycles for BERT base (32 x 512).
    x = jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], -1)
    found = [kernel_gradient(x, d, jnp.float32) for d in d_projected]
    d_wi = tuple(d[:-1].astype(w.dtype) for d, w in zip(found, wi, strict=True))
    d_bias = tuple(d[-1].astype(b.dtype) for d, b in zip(found, bias, strict=True))
    return d_x, None, d_wi, d_wo, d_bias


feed_forward.defvjp(_forward, _backward)


def plain_feed_forward(
    activations: Activations, x_BID, keep_B1F, wi_DF, wo_FD, bias_F=None
) -> jax.Array:
    """Compute the same as `feed_forward`, its gradients left to JAX."""
    return jnp.dot(_hidden(activations, keep_B1F, *_projected(x_BID, wi_DF, bias_F)), wo_FD)
