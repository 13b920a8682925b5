"""The kernels for every device, left to XLA but for their gradients, which are written by hand.

Each function computes what its namesake in `reference` defines. What JAX derives by itself keeps
too much (the attention weights of all layers) or computes it again in every product that reads it
(the hidden units). Together with `tpu` they took a step of T5 1.1 base on a v4-8 from 0.2621 to
0.1600 G cycles, counted by the compiler (docs/log.md).

Shapes: B batch, I length (Q of queries, S of keys), D emb_dim, H heads, K head_dim, F mlp_dim,
V vocab, N distances.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from t5x.kernels.reference import NEGATIVE, Activations, hidden, logits
from t5x.partitioning import constrain, cuts

KEPT = "attention"  # checkpoint_name of what a gradient keeps, for remat policies
SAFE_LOG = 60.0  # e^±60 are far inside float32's range, e^±87
FALLBACK = "fallback"  # scope of work that is done only if the fast path fails
TERMS = 64  # rows added one by one; each is an instruction to compile

_once = jax.lax.optimization_barrier  # XLA computes the argument once, not per use


# Attention ----------------------------------------------------------------------------------------
#
# - XLA computes `product, exp, product` in one pass if nothing else reads the arrays between. So
#   the sum of the weights comes from the second product (a column of ones beside the values), and
#   the division comes last, on [B, Q, H, K].
# - The gradient keeps only the output and the logarithm of the softmax's divisor [B, H, Q], and
#   recomputes the weights from them (Dao et al. 2022).
# - Subtracting the maximum before `exp` needs a second pass. So exponentials are computed without
#   it first. Only if the sum of a row leaves float32's safe range is all computed again, less the
#   maximum of each row: the same numbers in one more pass.


def attend(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """See `reference.attend`."""
    return attend_with(gradients, q_BQHK, k_BSHK, v_BSHK, mask, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend_with(gradients: Callable, q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """Return what `attend` returns; `gradients` computes its gradient."""
    return _attend(q_BQHK, k_BSHK, v_BSHK, mask, bias)[0]


def _attend(q, k, v, mask, bias):
    out_BHKQ, divisors_BHQ = _weighted(logits(q, k, mask, bias), v)

    @jax.named_scope(FALLBACK)
    def carefully():
        scores = logits(q, k, mask, bias)
        peaks_BHQ = scores.max(-1)
        out_BHKQ, divisors_BHQ = _weighted(scores - peaks_BHQ[..., None], v)
        # In a fully masked row the gradient's weights are then 0; its output is unused.
        return out_BHKQ, jnp.where(peaks_BHQ > NEGATIVE / 2, divisors_BHQ + peaks_BHQ, -NEGATIVE)

    # The weights are rounded to the values' dtype, and float16 is fine only above e^-9.7.
    limit = 8.0 if v.dtype == jnp.float16 else SAFE_LOG
    safe = (jnp.abs(divisors_BHQ) < limit).all()
    out_BHKQ, divisors_BHQ = jax.lax.cond(safe, lambda: (out_BHKQ, divisors_BHQ), carefully)
    return out_BHKQ.transpose(0, 3, 1, 2), divisors_BHQ


def _weighted(logits_BHQS, v_BSHK) -> tuple[jax.Array, jax.Array]:
    """Return values [B, H, K, Q] weighted by exp(logits), and the log of the weights' sum."""
    dtype = v_BSHK.dtype
    weights = jnp.exp(logits_BHQS).astype(dtype)
    values = jnp.concatenate([v_BSHK, jnp.ones((*v_BSHK.shape[:-1], 1), dtype)], -1)
    sums = jnp.einsum("BHQS,BSHK->BHKQ", weights, values, preferred_element_type=jnp.float32)
    # One division a row instead of K, and a product, which is a single instruction.
    return (sums[:, :, :-1] * (1 / sums[:, :, -1:])).astype(dtype), jnp.log(sums[:, :, -1])


def _keep(x: jax.Array) -> jax.Array:
    """Name `x` for the gradient, as integers.

    JAX rounds floats that it keeps once more, which costs a pass over them: with the division in
    `_weighted` 0.1629 instead of 0.1600 G cycles for T5 1.1 base on a v4-8.
    """
    bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
    return jax.lax.bitcast_convert_type(checkpoint_name(bits, KEPT), x.dtype)


def _attend_keeping(_, q, k, v, mask, bias):
    out, divisors = (_keep(x) for x in _attend(q, k, v, mask, bias))
    return out, (q, k, v, mask, bias, out, divisors)


def _attend_backward(gradients, residuals, d_out_BQHK):
    q, k, v, mask, bias, out_BQHK, divisors_BHQ = residuals
    # The softmax's gradient is each weight's gradient less the weighted mean of its row.
    means_BQH = (d_out_BQHK.astype(jnp.float32) * out_BQHK.astype(jnp.float32)).sum(-1)
    means_BHQ = means_BQH.swapaxes(1, 2)
    d_q, d_k, d_v, d_bias = gradients(q, k, v, mask, bias, d_out_BQHK, means_BHQ, divisors_BHQ)
    d_bias = None if bias is None else d_bias.sum(0)[None].astype(bias.dtype)
    return d_q, d_k, d_v, None, d_bias


attend_with.defvjp(_attend_keeping, _attend_backward)


def gradients(
    q_BQHK, k_BSHK, v_BSHK, mask, bias, d_out_BQHK, means_BHQ, divisors_BHQ, twice: bool = False
):
    """Return the gradients of q, k, v, and of the bias or None.

    `means_BHQ` are the weighted means of each row's gradients of weights, `divisors_BHQ` the logs
    of the softmax's divisors, both float32. The gradient of the bias is float32 [P, H, Q, S], for
    each of P parts of the batch: added up here, in a loop over heads or layers, the parts would be
    a collective in every turn.

    With `twice`, the gradients of logits are computed inside of both products that read them, and
    never written to memory.
    """
    dtype = q_BQHK.dtype
    weights = jnp.exp(logits(q_BQHK, k_BSHK, mask, bias) - divisors_BHQ[..., None])
    weights = weights.astype(dtype) if bias is None else _once(weights)
    d_v = jnp.einsum("BHQS,BQHK->BSHK", weights.astype(dtype), d_out_BQHK)

    def d_logits(d_out_BQHK):
        wide = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
        d_weights = wide("BQHK,BSHK->BHQS", d_out_BQHK, v_BSHK)
        return (weights * (d_weights - means_BHQ[..., None])).astype(dtype)

    of_queries = d_logits(d_out_BQHK)
    of_keys = d_logits(_once(d_out_BQHK)) if twice else of_queries
    d_q = jnp.einsum("BHQS,BSHK->BQHK", of_queries, k_BSHK)
    d_k = jnp.einsum("BHQS,BQHK->BSHK", of_keys, q_BQHK)
    return d_q, d_k, d_v, None if bias is None else _sum_rows(of_keys)


def _sum_rows(x: jax.Array) -> jax.Array:
    """Return float32 sums [P, ...] over the rows [B, ...] in each of P parts of the batch.

    Rows are added one by one: on a TPU three times faster than reducing an axis.
    """
    parts = cuts("batch", x.shape[0])
    rows = x.shape[0] // parts
    terms = divisor(rows, TERMS)
    x = x.reshape(parts, terms, rows // terms, *x.shape[1:])
    sums = functools.reduce(jnp.add, (x[:, i].astype(jnp.float32) for i in range(terms)))
    return sums.sum(1)


def divisor(number: int, most: int) -> int:
    """Return the largest divisor of `number` that is at most `most`."""
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)


# Bias and dense layers ----------------------------------------------------------------------------


def by_positions(bias_HN: jax.Array, queries: int) -> jax.Array:
    """See `reference.by_positions`; the gradient is a product, where a lookup's is a scatter."""
    heads, distances = bias_HN.shape
    padded = jnp.pad(bias_HN, ((0, 0), (0, 1)))[:, None]
    repeated = (jnp.ones((heads, queries, 1), padded.dtype) @ padded).reshape(heads, -1)
    # Cut one shorter than the repeated row, each row begins one distance earlier than the last.
    rows = repeated[:, queries - 1 : -1].reshape(heads, queries, distances)
    return rows[None, :, :, : distances - queries + 1]


def dense(x: jax.Array, kernel_DF: jax.Array, dtype: DTypeLike | None = None) -> jax.Array:
    """See `reference.dense`; a wider gradient is rounded to x's dtype before it is multiplied."""
    return _dense(dtype or x.dtype, x, kernel_DF)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _dense(dtype, x, kernel_DF):
    return jnp.dot(x, kernel_DF, preferred_element_type=dtype)


def _dense_backward(_, residuals, d_out):
    x, kernel_DF = residuals
    d_out = d_out.astype(x.dtype)
    d_x = jnp.einsum("...F,DF->...D", d_out, kernel_DF)
    return d_x, jnp.einsum("...D,...F->DF", x, d_out)


_dense.defvjp(lambda dtype, x, w: (_dense(dtype, x, w), (x, w)), _dense_backward)


# Feed-forward -------------------------------------------------------------------------------------
#
# Left to itself, XLA recomputes the hidden units inside every product that reads them. Here they
# and their gradients are computed once, fused with the product before them.


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def feed_forward(activations: Activations, x_BID, keep_B1F, wi_DF, wo_FD, bias_F=None) -> jax.Array:
    """See `reference.feed_forward`."""
    return _feed_forward(activations, x_BID, keep_B1F, wi_DF, wo_FD, bias_F)[0]


def _feed_forward(activations, x, keep, wi, wo, bias=None):
    products = [jnp.dot(x, w) for w in wi]
    if bias is not None:
        products = [y + b for y, b in zip(products, bias, strict=True)]
    projected = tuple(constrain(y_BIF, "batch", "length", "mlp") for y_BIF in products)
    hidden_BIF = _once(hidden(activations, keep, *projected))
    return jnp.dot(hidden_BIF, wo), (x, keep, wi, wo, bias, projected)


def _feed_forward_backward(activations, residuals, d_out_BID):
    x, keep, wi, wo, bias, projected = residuals
    hidden_BIF, pull = jax.vjp(functools.partial(hidden, activations, keep), *projected)
    d_hidden_BIF = jnp.einsum("BID,FD->BIF", d_out_BID, wo)
    hidden_BIF, d_projected = _once((hidden_BIF, pull(d_hidden_BIF)))
    d_x = sum(jnp.einsum("BIF,DF->BID", d, w) for d, w in zip(d_projected, wi, strict=True))
    gradient = functools.partial(jnp.einsum, "BID,BIF->DF")
    d_wo = gradient(hidden_BIF, d_out_BID)
    if bias is None:
        return d_x, None, tuple(gradient(x, d) for d in d_projected), d_wo, None
    # A column of ones sums the rows in the product that reads them anyway: a TPU takes 3.21 M
    # instead of 3.65 M cycles for BERT base (32 x 512).
    x = jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], -1)
    sums = [gradient(x, d, preferred_element_type=jnp.float32) for d in d_projected]
    d_wi = tuple(d[:-1].astype(w.dtype) for d, w in zip(sums, wi, strict=True))
    d_bias = tuple(d[-1].astype(b.dtype) for d, b in zip(sums, bias, strict=True))
    return d_x, None, d_wi, d_wo, d_bias


feed_forward.defvjp(_feed_forward, _feed_forward_backward)

# Odd polynomial z, with x * sigmoid(z) the exact GELU, fitted by least squares to |x| < 6: off by
# at most 1.2e-4, and by 1.6e-3 of values above 1e-4, where bfloat16 rounds by up to 3.9e-3.
_GELU = (1.59343113, 7.55346984e-2, -9.57906113e-4, 8.18442815e-6)


def gelu(x: jax.Array) -> jax.Array:
    """See `reference.gelu`.

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


# Norms --------------------------------------------------------------------------------------------


def rms_norm(
    x_BID: jax.Array, y_BID: jax.Array | None, scale_D: jax.Array, epsilon: float
) -> tuple[jax.Array, jax.Array]:
    """See `reference.rms_norm`."""
    x = x_BID if y_BID is None else constrain(x_BID + y_BID, "batch", "length", "embed")
    wide = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + epsilon)
    return x, _scaled((wide * inverse).astype(scale_D.dtype), scale_D)


@jax.custom_vjp
def _scaled(x: jax.Array, scale_D: jax.Array) -> jax.Array:
    return x * scale_D


def _scaled_backward(residuals, d_out):
    x, scale_D = residuals
    # A sum over all tokens, in float32: JAX would add them up in bfloat16.
    d_scale_D = (d_out * x).sum(tuple(range(x.ndim - 1)), dtype=jnp.float32)
    return d_out * scale_D, d_scale_D.astype(scale_D.dtype)


_scaled.defvjp(lambda x, scale_D: (_scaled(x, scale_D), (x, scale_D)), _scaled_backward)


def layer_norm(
    x: jax.Array, scale_D: jax.Array, bias_D: jax.Array | None, epsilon: float
) -> jax.Array:
    """See `reference.layer_norm`.

    It keeps two numbers a token, without which the gradient reads all of x twice more (9.80 to 9.54
    M cycles for one layer of BERT base, 32 x 512).
    """
    keep = lambda statistic: checkpoint_name(statistic, KEPT)[..., None]
    x = x.astype(jnp.float32)
    x = x - keep(x.mean(-1))
    x = x * keep(jax.lax.rsqrt(jnp.square(x).mean(-1) + epsilon)) * scale_D
    return x if bias_D is None else x + bias_D


# Embeddings and loss ------------------------------------------------------------------------------

# The gradient of a table of at most FEW rows is a product. If a GPU's threads added to so few
# rows one token at a time, they would queue.
FEW = 8


def lookup(table_VD: jax.Array, ids: jax.Array) -> jax.Array:
    """See `reference.lookup`; the gradient is summed in float32.

    JAX adds up the gradient of a bfloat16 table in bfloat16, token by token. A sum of more than 256
    like terms then hardly grows: one of 65,536 tokens that share a row was a thirtieth of the true
    one. A batch has as many of a token type, and thousands of a comma.
    """
    return _lookup(table_VD.shape[0], table_VD, ids)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _lookup(_rows, table_VD, ids):
    return jnp.take(table_VD, ids, axis=0)


def _lookup_backward(rows, ids, d_out):
    wide = functools.partial(jnp.einsum, preferred_element_type=jnp.float32, precision="highest")
    if rows <= FEW:
        table = wide("...V,...D->VD", jax.nn.one_hot(ids, rows, dtype=d_out.dtype), d_out)
    else:
        zeros = jnp.zeros((rows, d_out.shape[-1]), jnp.float32)
        table = zeros.at[ids].add(d_out.astype(jnp.float32))
    return table.astype(d_out.dtype), None


_lookup.defvjp(lambda rows, table, ids: (_lookup(rows, table, ids), ids), _lookup_backward)


@jax.custom_vjp
def log_normalizer(logits_BTV: jax.Array) -> jax.Array:
    """See `reference.log_normalizer`.

    The usual maximum to subtract would need a second pass over the logits; without it the sum is
    fused with the product that makes them. z-loss keeps the normalizer near 1, so sums normally
    stay in float32's range. If one leaves it, all are computed again with the maximum.
    """
    log_z = jnp.log(jnp.exp(logits_BTV).sum(-1))
    carefully = jax.named_scope(FALLBACK)(lambda: jax.nn.logsumexp(logits_BTV, axis=-1))
    return jax.lax.cond((jnp.abs(log_z) < SAFE_LOG).all(), lambda: log_z, carefully)


def _log_normalizer_keeping(logits_BTV):
    log_z = log_normalizer(logits_BTV)
    return log_z, (logits_BTV, log_z)


def _log_normalizer_backward(residuals, d_log_z):
    logits_BTV, log_z = residuals
    return (d_log_z[..., None] * jnp.exp(logits_BTV - log_z[..., None]),)


log_normalizer.defvjp(_log_normalizer_keeping, _log_normalizer_backward)
