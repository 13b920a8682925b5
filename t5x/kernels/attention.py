"""Attention with a hand-written gradient: few reads of [B, H, Q, S], little kept in memory.

  out_BQHK = attend(q_BQHK, k_BSHK, v_BSHK, mask, bias)       # the same as plain_attend

With the feed-forward gradient and the normalizer of the loss it took a step of T5 1.1 base on a
v4-8 from 0.2621 to 0.1884 G cycles, counted by the compiler (docs/log.md):

- A TPU computes `product, exp, product` in one pass if nothing else reads the arrays between. So
  the sum of the weights comes from the second product (a column of ones beside the values), and the
  division comes last, on [B, Q, H, K].
- The gradient keeps only the output and the logarithm of the softmax's divisor [B, H, Q], and
  recomputes the weights from them (Dao et al. 2022).
- Subtracting the maximum before `exp` needs a second pass. So exponentials are computed without it
  first. Only if the sum of a row leaves float32's safe range is all computed again, less the
  maximum of each row: the same numbers in one more pass (0.1749 to 0.1708 G cycles).

Shapes: B batch, Q queries, S keys, H heads, K head_dim.
"""

import functools
import importlib.util
import re

import flax.struct
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from t5x.kernels import blocked_attention
from t5x.kernels.blocked_attention import NEGATIVE
from t5x.kernels.splitting import divisor, join, split
from t5x.kernels.sums import sum_rows
from t5x.losses import FALLBACK, SAFE_LOG
from t5x.partitioning import cuts, devices, platform

CMEM_BYTES = 70e6  # of weights that fit a v4's CMEM (128 MiB) together with their gradients
KEPT = "attention"  # checkpoint_name of what the gradient keeps, for remat policies

_once = jax.lax.optimization_barrier  # its argument is computed once, not again in each reader


@flax.struct.dataclass
class Segments:
    """Segment ids int32 [B, Q] and [B, S], 0 for padding: queries attend to their own segment.

    If `causal`, not to later keys; with a `radius`, to keys at most so far away. Padding, which has
    no key, gets zeros.
    """

    queries: jax.Array
    keys: jax.Array
    causal: bool = flax.struct.field(pytree_node=False, default=False)
    radius: int | None = flax.struct.field(pytree_node=False, default=None)


def logits(q_BQHK, k_BSHK, mask, bias) -> jax.Array:
    """Return float32 logits [B, H, Q, S], biased and masked."""
    logits = jnp.einsum("BQHK,BSHK->BHQS", q_BQHK, k_BSHK, preferred_element_type=jnp.float32)
    if bias is not None:
        logits = logits + bias.astype(jnp.float32)
    return logits if mask is None else jnp.where(mask, logits, NEGATIVE)


def plain_attend(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """Compute the same as `attend`, its gradients left to JAX: the reference for the others."""
    weights = jax.nn.softmax(logits(q_BQHK, k_BSHK, mask, bias)).astype(v_BSHK.dtype)
    return jnp.einsum("BHQS,BSHK->BQHK", weights, v_BSHK)


@jax.custom_vjp
def attend(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """Return values [B, Q, H, K] weighted by the softmax over keys of q·k + bias.

    Logits are not divided by sqrt(K). `mask`, bool [B or 1, 1, Q or 1, S], is True where a query
    attends; `bias` is [1, H, Q, S]. Either may be None.
    """
    return _forward(q_BQHK, k_BSHK, v_BSHK, mask, bias)[0]


def _forward(q, k, v, mask, bias):
    if platform() == "cpu":
        return blocked_attention.forward(q, k, v, mask, bias)
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
    return (sums[:, :, :-1] * (1 / sums[:, :, -1:])).astype(dtype), jnp.log(sums[:, :, -1])


def _forward_keeping(q, k, v, mask, bias):
    out, divisors = _forward(q, k, v, mask, bias)
    # As integers, because JAX rounds the floats that it keeps once more, which costs a pass
    # (0.1682 to 0.1669 G cycles).
    bits = jax.lax.bitcast_convert_type(out, jnp.dtype(f"uint{8 * out.dtype.itemsize}"))
    out = jax.lax.bitcast_convert_type(checkpoint_name(bits, KEPT), out.dtype)
    divisors = checkpoint_name(divisors, KEPT)
    return out, (q, k, v, mask, bias, out, divisors)


def _backward(kept, d_out_BQHK):
    q, k, v, mask, bias, out_BQHK, divisors_BHQ = kept
    on_tpu = platform() == "tpu"
    if bias is not None and on_tpu:  # or every reader changes its layout again
        d_out_BQHK = _once(d_out_BQHK)
    # The softmax's gradient is each weight's gradient less the weighted mean of its row.
    means_BQH = (d_out_BQHK.astype(jnp.float32) * out_BQHK.astype(jnp.float32)).sum(-1)
    means_BHQ = means_BQH.swapaxes(1, 2)
    of_heads = (q, k, v, d_out_BQHK, means_BHQ, divisors_BHQ)
    if platform() == "cpu":
        found = blocked_attention.backward(q, k, v, mask, bias, *of_heads[3:])
    elif bias is None:
        found = _gradients(mask, *of_heads)
    else:
        gradients = functools.partial(_gradients, mask)
        biased = (q, k, v, d_out_BQHK, _once(means_BHQ), divisors_BHQ, bias)
        found = _by_heads(gradients, biased) if on_tpu else gradients(*biased)
    d_q, d_k, d_v, d_bias_PHQS = found
    d_bias = None if bias is None else d_bias_PHQS.sum(0)[None].astype(bias.dtype)
    return d_q, d_k, d_v, None, d_bias


def _gradients(mask, q, k, v, d_out, means_BHQ, divisors_BHQ, bias=None):
    """Return gradients of q, k, v, and of the bias float32 [parts of the batch, H, Q, S] or None.

    The weights are float32: a TPU writes it faster than bfloat16, and reads it as fast in CMEM.
    """
    dtype, on_tpu = q.dtype, platform() == "tpu"
    weights = jnp.exp(logits(q, k, mask, bias) - divisors_BHQ[..., None])
    weights = weights.astype(dtype) if bias is None else _once(weights)
    d_v = jnp.einsum("BHQS,BQHK->BSHK", weights.astype(dtype), d_out)

    def d_logits(d_out):
        d_weights = jnp.einsum("BQHK,BSHK->BHQS", d_out, v, preferred_element_type=jnp.float32)
        return (weights * (d_weights - means_BHQ[..., None])).astype(dtype)

    if bias is None and on_tpu:
        # Only two products read them: computed twice, inside each product, they are never written
        # to memory (0.1708 to 0.1682 G cycles).
        mine, again = d_logits(d_out), d_logits(_once(d_out))
    else:
        mine = again = d_logits(d_out)
    d_q = jnp.einsum("BHQS,BSHK->BQHK", mine, k)
    d_k = jnp.einsum("BHQS,BQHK->BSHK", again, q)
    return d_q, d_k, d_v, None if bias is None else sum_rows(again)


def _by_heads(gradients, of_heads):
    """Compute `gradients` for groups of heads in turn, so that their weights fit in CMEM.

    This takes 0.1665 to 0.1592 G cycles.
    """
    q_BQHK, k_BSHK = of_heads[:2]
    (batch, queries, heads, _), keys = q_BQHK.shape, k_BSHK.shape[1]
    parts = cuts("heads", heads)
    own, weight_bytes = heads // parts, 4 * batch // cuts("batch", batch) * queries * keys
    turn = divisor(own, max(int(CMEM_BYTES // weight_bytes), 1))
    given, made = (2, 2, 2, 2, 1, 1, 1), (2, 2, 2, 1)  # the axes of the heads
    turns = [split(x, a, parts, turn) for x, a in zip(of_heads, given, strict=True)]
    turns = jax.lax.map(lambda xs: gradients(*xs)[:4], turns)
    return [join(y, a, parts) for y, a in zip(turns, made, strict=True)]


attend.defvjp(_forward_keeping, _backward)


def has_gpu_kernels() -> bool:
    """Return whether the program is traced for a GPU that kernels exist for: Ampere or newer."""
    if platform() != "gpu" or importlib.util.find_spec("jax.experimental.pallas.triton") is None:
        return False
    capability = str(getattr(devices()[0], "compute_capability", ""))  # AMD's are no numbers
    return re.fullmatch(r"\d+\.\d+", capability) is not None and float(capability) >= 8


def prefers_gpu_kernels() -> bool:
    """Return whether kernels are used where nothing else is set: on one GPU, as tried so far."""
    return has_gpu_kernels() and len(devices()) == 1


def attend_by_cudnn(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """Compute the same as `attend` by NVIDIA's kernels (docs.nvidia.com/deeplearning/cudnn).

    Queries, keys and values are bfloat16 or float16. With a mask the bias is as large as the
    weights, [B, H, Q, S]. Raise ValueError if there is no such GPU, or a length is odd.
    """
    lengths = q_BQHK.shape[1], k_BSHK.shape[1]
    if platform() != "gpu":
        raise ValueError(
            f"T5Config.attention is 'cudnn', which works on GPUs only, not on a {platform()}; set "
            "network.T5Config.attention to 'xla'."
        )
    if 1 in lengths:  # initialization, and decoding, which asks with one query at a time
        return attend(q_BQHK, k_BSHK, v_BSHK, mask, bias)
    if any(length % 2 for length in lengths):
        raise ValueError(
            f"T5Config.attention is 'cudnn', which takes even lengths, not {lengths[0]} queries "
            f"and {lengths[1]} keys; change TASK_FEATURE_LENGTHS, or set it to 'xla'."
        )
    bias = None if bias is None else bias.astype(q_BQHK.dtype)
    return jax.nn.dot_product_attention(
        q_BQHK, k_BSHK, v_BSHK, bias, mask, scale=1.0, implementation="cudnn"
    )
