"""Attention with its gradient written by hand: few passes over [B, H, Q, S], little kept.

  out_BQHK = attend(q_BQHK, k_BSHK, v_BSHK, mask, bias)

A TPU computes `product, exp, product` in one pass, if no array between them is wanted elsewhere. So
the sum of the weights is taken by the second product (a column of ones beside the values), and the
division comes last, on [B, Q, H, K]. Kept for the gradient are the output and the logarithm of the
softmax's divisor [B, H, Q]; the weights are computed again from them (Dao et al. 2022).

A maximum to subtract before `exp` would have to be known before, which is a second pass. So the
exponentials are first taken as they are. Should the sum of a row have left float32's safe range,
all are taken again, less the maximum of their row: the same numbers, one pass more.

Shapes: B batch, Q queries, S keys, H heads, K head_dim.
"""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from t5x.losses import FALLBACK, SAFE_LOG
from t5x.partitioning import cuts, platform

NEGATIVE = -1e10  # a masked logit; a row where all is masked attends evenly, without gradient
TERMS = 64  # rows added one by one: each is an instruction to compile
NEAR = 70e6  # bytes of weights that stay in a v4's CMEM (128 MiB), their gradients beside them
KEPT = "attention"  # name of what the gradient wants kept, for rematerialization policies

_once = jax.lax.optimization_barrier  # what goes through it is computed once


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
    out_BHKQ, divisors_BHQ = _weighted(logits(q, k, mask, bias), v)

    @jax.named_scope(FALLBACK)
    def carefully():
        scores = logits(q, k, mask, bias)
        peaks_BHQ = scores.max(-1)
        out_BHKQ, divisors_BHQ = _weighted(scores - peaks_BHQ[..., None], v)
        # Where all is masked the weights of the gradient are then 0: nobody looks at such a row.
        return out_BHKQ, jnp.where(peaks_BHQ > NEGATIVE / 2, divisors_BHQ + peaks_BHQ, -NEGATIVE)

    safe = (jnp.abs(divisors_BHQ) < SAFE_LOG).all()
    out_BHKQ, divisors_BHQ = jax.lax.cond(safe, lambda: (out_BHKQ, divisors_BHQ), carefully)
    return out_BHKQ.transpose(0, 3, 1, 2), divisors_BHQ


def _weighted(logits_BHQS, v_BSHK) -> tuple[jax.Array, jax.Array]:
    """Values [B, H, K, Q] weighted by exp(logits), and the logarithm of the weights' sum."""
    dtype = v_BSHK.dtype
    weights = jnp.exp(logits_BHQS).astype(dtype)
    values = jnp.concatenate([v_BSHK, jnp.ones((*v_BSHK.shape[:-1], 1), dtype)], -1)
    sums = jnp.einsum("BHQS,BSHK->BHKQ", weights, values, preferred_element_type=jnp.float32)
    return (sums[:, :, :-1] * (1 / sums[:, :, -1:])).astype(dtype), jnp.log(sums[:, :, -1])


def _forward_keeping(q, k, v, mask, bias):
    out, divisors = _forward(q, k, v, mask, bias)
    # As integers: JAX rounds the floats that it keeps once more, which is one more pass.
    bits = jax.lax.bitcast_convert_type(out, jnp.dtype(f"uint{8 * out.dtype.itemsize}"))
    out = jax.lax.bitcast_convert_type(checkpoint_name(bits, KEPT), out.dtype)
    divisors = checkpoint_name(divisors, KEPT)
    return out, (q, k, v, mask, bias, out, divisors)


def _backward(kept, d_out_BQHK):
    q, k, v, mask, bias, out_BQHK, divisors_BHQ = kept
    on_tpu = platform() == "tpu"
    if bias is not None and on_tpu:  # or it is laid out anew for every reader
        d_out_BQHK = _once(d_out_BQHK)
    # The softmax's gradient is what a weight gains beyond the mean of its row.
    means_BQH = (d_out_BQHK.astype(jnp.float32) * out_BQHK.astype(jnp.float32)).sum(-1)
    means_BHQ = means_BQH.swapaxes(1, 2)
    if bias is None:
        return *_gradients(mask, q, k, v, d_out_BQHK, means_BHQ, divisors_BHQ)[:3], None, None
    gradients = functools.partial(_gradients, mask)
    of_heads = (q, k, v, d_out_BQHK, _once(means_BHQ), divisors_BHQ, bias)
    if on_tpu:
        d_q, d_k, d_v, d_bias_PHQS = _by_heads(gradients, of_heads)
    else:
        d_q, d_k, d_v, d_bias_PHQS = gradients(*of_heads)
    return d_q, d_k, d_v, None, d_bias_PHQS.sum(0)[None].astype(bias.dtype)


def _gradients(mask, q, k, v, d_out, means_BHQ, divisors_BHQ, bias=None):
    """Gradients of q, k, v, and float32 [parts of the batch, H, Q, S] of the bias, if there is one.

    On a TPU float32 is made faster than bfloat16, and read as fast where it stays near (CMEM).
    """
    dtype, on_tpu = q.dtype, platform() == "tpu"
    weights = jnp.exp(logits(q, k, mask, bias) - divisors_BHQ[..., None])
    weights = weights.astype(dtype) if bias is None else _once(weights)
    d_v = jnp.einsum("BHQS,BQHK->BSHK", weights.astype(dtype), d_out)

    def d_logits(d_out):
        d_weights = jnp.einsum("BQHK,BSHK->BHQS", d_out, v, preferred_element_type=jnp.float32)
        return (weights * (d_weights - means_BHQ[..., None])).astype(dtype)

    if bias is None and on_tpu:
        # Where only two products want them, a TPU makes them twice, each time inside of the
        # product, and they never lie in memory.
        mine, again = d_logits(d_out), d_logits(_once(d_out))
    else:
        mine = again = d_logits(d_out)
    d_q = jnp.einsum("BHQS,BSHK->BQHK", mine, k)
    d_k = jnp.einsum("BHQS,BQHK->BSHK", again, q)
    return d_q, d_k, d_v, None if bias is None else sum_rows(again)


def _by_heads(gradients, of_heads):
    """`gradients` of some heads after the others: as many as leave their weights in CMEM."""
    q_BQHK, k_BSHK = of_heads[:2]
    (batch, queries, heads, _), keys = q_BQHK.shape, k_BSHK.shape[1]
    parts = cuts("heads", heads)
    own, weight_bytes = heads // parts, 4 * batch // cuts("batch", batch) * queries * keys
    fits = lambda n: own % n == 0 and n * weight_bytes <= NEAR
    turn = max(filter(fits, range(1, own + 1)), default=1)
    given, made = (2, 2, 2, 2, 1, 1, 1), (2, 2, 2, 1)  # where the heads stand

    def split(x, axis):
        shape = (*x.shape[:axis], parts, own // turn, turn, *x.shape[axis + 1 :])
        return jnp.moveaxis(x.reshape(shape), axis + 1, 0)

    def join(x, axis):
        x = jnp.moveaxis(x, 0, axis + 1)
        return x.reshape(*x.shape[:axis], heads, *x.shape[axis + 3 :])

    def one_turn(xs):
        xs = [
            x.reshape(*x.shape[:a], -1, *x.shape[a + 2 :]) for x, a in zip(xs, given, strict=True)
        ]
        ys = zip(gradients(*xs), made, strict=True)
        return [y.reshape(*y.shape[:a], parts, turn, *y.shape[a + 1 :]) for y, a in ys]

    turns = jax.lax.map(one_turn, [split(x, a) for x, a in zip(of_heads, given, strict=True)])
    return [join(y, a) for y, a in zip(turns, made, strict=True)]


attend.defvjp(_forward_keeping, _backward)


def attend_by_cudnn(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """What `attend` gives, by NVIDIA's kernels (https://docs.nvidia.com/deeplearning/cudnn).

    Args:
      q_BQHK: bfloat16 or float16, as keys and values.
      k_BSHK: keys.
      v_BSHK: values.
      mask: as `attend` has it; with it the bias is as large as the weights, [B, H, Q, S].
      bias: as `attend` has it.

    Raises:
      ValueError: there is no such GPU, or a length is odd.
    """
    lengths = q_BQHK.shape[1], k_BSHK.shape[1]
    if platform() != "gpu":
        raise ValueError(
            f"T5Config.attention is 'cudnn', which works on GPUs alone, not on a {platform()}; set "
            "network.T5Config.attention to 'xla', or for a TPU to 'flash'."
        )
    if any(length % 2 for length in lengths):
        raise ValueError(
            f"T5Config.attention is 'cudnn', which takes even lengths, not {lengths[0]} queries "
            f"and {lengths[1]} keys; change TASK_FEATURE_LENGTHS, or set it to 'xla'."
        )
    bias = None if bias is None else bias.astype(q_BQHK.dtype)
    return jax.nn.dot_product_attention(
        q_BQHK, k_BSHK, v_BSHK, bias, mask, scale=1.0, implementation="cudnn"
    )


def sum_rows(x: jax.Array) -> jax.Array:
    """Float32 sums [P, …] over the rows [B, …] that each of P parts of the batch holds.

    Row is added to row: a TPU adds so three times faster than it reduces a leading axis.
    """
    parts = cuts("batch", x.shape[0])
    rows = x.shape[0] // parts
    terms = next(n for n in range(min(rows, TERMS), 0, -1) if rows % n == 0)
    x = x.reshape(parts, terms, rows // terms, *x.shape[1:])
    return sum(x[:, i].astype(jnp.float32) for i in range(terms)).sum(1)
