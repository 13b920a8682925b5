"""The definition of every kernel, in plain jnp, its gradient left to JAX.

`xla`, `tpu` and the GPU's kernels compute the same numbers faster; `select` chooses among them. To
try a kernel of your own, give it the signature of its function here, name it in `select`, and add
it to the table of `tests/t5x/kernels/test_kernels.py`.

Shapes: B batch, I length (Q of queries, S of keys), D emb_dim, H heads, K head_dim, F mlp_dim,
V vocab, N distances.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

Activations = Sequence[Callable[[jax.Array], jax.Array]]
# A masked logit. It is finite, so that a row without any key attends evenly instead of to NaN.
NEGATIVE = -1e10


def by_positions(bias_HN: jax.Array, queries: int) -> jax.Array:
    """Return the bias [1, H, Q, S] of one by distance [H, Q + S - 1], from 1 - Q to S - 1."""
    keys = bias_HN.shape[1] + 1 - queries
    return bias_HN[:, jnp.arange(keys) - jnp.arange(queries)[:, None] + queries - 1][None]


def logits(q_BQHK: jax.Array, k_BSHK: jax.Array, mask, bias) -> jax.Array:
    """Return float32 logits [B, H, Q, S], biased and masked; not divided by sqrt(K)."""
    logits = jnp.einsum("BQHK,BSHK->BHQS", q_BQHK, k_BSHK, preferred_element_type=jnp.float32)
    if bias is not None:
        logits = logits + bias.astype(jnp.float32)
    return logits if mask is None else jnp.where(mask, logits, NEGATIVE)


def attend(q_BQHK: jax.Array, k_BSHK: jax.Array, v_BSHK: jax.Array, mask, bias) -> jax.Array:
    """Return values [B, Q, H, K] weighted by the softmax over keys of q·k + bias.

    `mask`, bool [B or 1, 1, Q or 1, S], is True where a query attends; `bias` is [1, H, Q, S].
    Either may be None. Weights are rounded to the dtype of values.
    """
    weights = jax.nn.softmax(logits(q_BQHK, k_BSHK, mask, bias)).astype(v_BSHK.dtype)
    return jnp.einsum("BHQS,BSHK->BQHK", weights, v_BSHK)


def hidden(activations: Activations, keep_B1F: jax.Array | None, *projected: jax.Array):
    """Return the product [B, I, F] of one activation per projection, times `keep_B1F` if given."""
    pairs = zip(activations, projected, strict=True)
    product = functools.reduce(jnp.multiply, (f(y_BIF) for f, y_BIF in pairs))
    return product if keep_B1F is None else product * keep_B1F


def feed_forward(
    activations: Activations,
    x_BID: jax.Array,
    keep_B1F: jax.Array | None,
    wi_DF: Sequence[jax.Array],
    wo_FD: jax.Array,
    bias_F: Sequence[jax.Array] | None = None,
) -> jax.Array:
    """Map [B, I, D] to [B, I, D] through the product of one projection per activation.

    `x_BID` is in the dtype of all products; `keep_B1F` is a factor of the hidden units (dropout),
    None for 1; `wi_DF` has a kernel for each activation, and `bias_F`, unless it is None, a bias.
    """
    projected = [jnp.dot(x_BID, w) for w in wi_DF]
    if bias_F is not None:
        projected = [y + b for y, b in zip(projected, bias_F, strict=True)]
    return jnp.dot(hidden(activations, keep_B1F, *projected), wo_FD)


def rms_norm(
    x_BID: jax.Array, y_BID: jax.Array | None, scale_D: jax.Array, epsilon: float
) -> tuple[jax.Array, jax.Array]:
    """Return `x_BID` plus `y_BID` if there is one, and that over its root mean square of D.

    The second is multiplied by `scale_D`, in the scale's dtype; statistics are float32 (Zhang and
    Sennrich 2019).
    """
    x = x_BID if y_BID is None else x_BID + y_BID
    wide = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + epsilon)
    return x, (wide * inverse).astype(scale_D.dtype) * scale_D


def layer_norm(
    x: jax.Array, scale_D: jax.Array, bias_D: jax.Array | None, epsilon: float
) -> jax.Array:
    """Return [..., D] less its mean, over its deviation, times the scale, plus any bias: float32.

    Source: Ba et al. 2016.
    """
    x = x.astype(jnp.float32)
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon) * scale_D
    return x if bias_D is None else x + bias_D


def dense(x: jax.Array, kernel_DF: jax.Array, dtype: DTypeLike | None = None) -> jax.Array:
    """Return `x @ kernel_DF` [..., F] of [..., D] in `dtype` (default x's)."""
    return jnp.dot(x, kernel_DF, preferred_element_type=dtype or x.dtype)


def lookup(table_VD: jax.Array, ids: jax.Array) -> jax.Array:
    """Return the rows [..., D] of int32 ids [...], NaN for an id beyond the table."""
    return jnp.take(table_VD, ids, axis=0)


def gelu(x: jax.Array) -> jax.Array:
    """Return x times the normal distribution function (Hendrycks and Gimpel 2016), in x's dtype."""
    return jax.nn.gelu(x, approximate=False)


def log_normalizer(logits_BTV: jax.Array) -> jax.Array:
    """Return the log of the sum of exponentials [...] of float32 [..., V]."""
    return jax.nn.logsumexp(logits_BTV, axis=-1)
