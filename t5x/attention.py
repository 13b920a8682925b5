"""Attention with its gradient written by hand: few passes over [B, H, Q, S], little kept.

  out_BQHK = attend(q_BQHK, k_BSHK, v_BSHK, mask, bias)

A TPU computes `product, exp, product` in one pass, if no array between them is wanted elsewhere. So
the sum of the weights is taken by the second product (a column of ones beside the values), and the
division comes last, on [B, Q, H, K]. Kept for the gradient are the output and the logarithm of the
softmax's divisor [B, H, Q]; the weights are computed again from them (Dao et al. 2022).

Shapes: B batch, Q queries, S keys, H heads, K head_dim.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from t5x.partitioning import batch_parts

NEGATIVE = -1e10  # a masked logit: a row where all is masked attends evenly, without gradient
KEPT = "attention"  # name of what the gradient wants kept, for rematerialization policies


def logits(q_BQHK, k_BSHK, mask, bias) -> jax.Array:
    """Float32 logits [B, H, Q, S], biased and masked."""
    logits = jnp.einsum("BQHK,BSHK->BHQS", q_BQHK, k_BSHK, preferred_element_type=jnp.float32)
    if bias is not None:
        logits = logits + bias.astype(jnp.float32)
    return logits if mask is None else jnp.where(mask, logits, NEGATIVE)


@jax.custom_vjp
def attend(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """Values [B, Q, H, K] weighted by the softmax over keys of q·k + bias.

    Args:
      q_BQHK: queries; nothing is divided by sqrt(K).
      k_BSHK: keys.
      v_BSHK: values.
      mask: bool [B or 1, 1, Q or 1, S], True may be looked at; None for all.
      bias: [1, H, Q, S], added to the logits; None for none.
    """
    return _forward(q_BQHK, k_BSHK, v_BSHK, mask, bias)[0]


def _forward(q, k, v, mask, bias):
    dtype, scores = v.dtype, logits(q, k, mask, bias)
    peaks_BHQ1 = scores.max(-1, keepdims=True)
    weights = jnp.exp(scores - peaks_BHQ1).astype(dtype)
    ones = jnp.ones((*v.shape[:-1], 1), dtype)
    values = jnp.concatenate([v, ones], -1)
    out = jnp.einsum("BHQS,BSHK->BQHK", weights, values, preferred_element_type=jnp.float32)
    out, sums_BQH1 = out[..., :-1], out[..., -1:]
    divisors_BHQ1 = peaks_BHQ1 + jnp.log(sums_BQH1).swapaxes(1, 2)
    # Where all is masked the weights of the gradient are then 0: nobody looks at such a row.
    divisors_BHQ1 = jnp.where(peaks_BHQ1 > NEGATIVE / 2, divisors_BHQ1, -NEGATIVE)
    return (out / sums_BQH1).astype(dtype), divisors_BHQ1[..., 0]


def _forward_keeping(q, k, v, mask, bias):
    out, divisors = _forward(q, k, v, mask, bias)
    out, divisors = checkpoint_name(out, KEPT), checkpoint_name(divisors, KEPT)
    return out, (q, k, v, mask, bias, out, divisors)


def _backward(kept, d_out):
    q, k, v, mask, bias, out, divisors_BHQ = kept
    dtype = q.dtype
    weights = jnp.exp(logits(q, k, mask, bias) - divisors_BHQ[..., None]).astype(dtype)
    d_v = jnp.einsum("BHQS,BQHK->BSHK", weights, d_out)
    d_weights = jnp.einsum("BQHK,BSHK->BHQS", d_out, v, preferred_element_type=jnp.float32)
    # The softmax's gradient: what a weight gains beyond the mean of its row.
    means_BQH = (d_out.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1)
    means_BHQ1 = means_BQH.swapaxes(1, 2)[..., None]
    d_logits = (weights * (d_weights - means_BHQ1)).astype(dtype)
    d_q = jnp.einsum("BHQS,BSHK->BQHK", d_logits, k)
    d_k = jnp.einsum("BHQS,BQHK->BSHK", d_logits, q)
    d_bias = None if bias is None else sum_rows(d_logits).astype(bias.dtype)
    return d_q, d_k, d_v, None, d_bias


attend.defvjp(_forward_keeping, _backward)


def sum_rows(x: jax.Array) -> jax.Array:
    """Float32 sum [1, …] over the leading axis of [B, …].

    Row is added to row: a TPU adds so three times faster than it reduces a leading axis. Devices
    first add the rows that they hold.
    """
    parts = batch_parts(x.shape[0])
    x = x.reshape(parts, x.shape[0] // parts, *x.shape[1:])
    total = sum(x[:, i].astype(jnp.float32) for i in range(x.shape[1]))
    return total.sum(0, keepdims=True)
