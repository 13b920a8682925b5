"""Attention for CPUs, a few sequences and heads at a time, with a hand-written gradient.

On a CPU the weights [B, H, Q, S] of a batch leave the caches between the operations that write and
read them. So they are computed for as many sequences and heads at a time as nearly stay there: in
smaller blocks XLA starts too many operations.

Shapes: B batch, Q queries, S keys, H heads, K head_dim; b and g are the B and H of one block.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from t5x.kernels.product import contract, copied
from t5x.kernels.splitting import divisor, join, split
from t5x.kernels.sums import sum_rows
from t5x.partitioning import cuts, is_divided

NEGATIVE = -1e10  # a masked logit; a fully masked row attends evenly, without gradient
CACHE_BYTES = 4 * 1024 * 1024  # of float32 weights of a block, for each core

_once = jax.lax.optimization_barrier  # its argument is computed once, not again in each reader
# Float32 products of matrices, for which XLA uses the processor's bfloat16.
_product = functools.partial(contract, "bgMK,bgKN->bgMN", dtype=jnp.float32)
# The axes of the heads.
_OF_HEADS = {"q": 2, "k": 2, "v": 2, "d_out": 2, "means": 1, "divisors": 1}


def forward(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> tuple[jax.Array, jax.Array]:
    """Return attention's output [B, Q, H, K] and the log of the softmax's divisor [B, H, Q].

    The arguments are those of `attention.attend`.
    """
    given = {"q": q_BQHK, "k": k_BSHK, "v": v_BSHK}
    out_BHQK, divisors = _by_blocks(_forward, given, mask, bias)[1]
    return out_BHQK.swapaxes(1, 2).astype(v_BSHK.dtype), divisors


def _forward(q, k, v, mask, bias):
    """Return float32 results: into an array of bfloat16 XLA writes a block by converting it all."""
    logits = _logits(q, k, mask, bias)
    peaks = logits.max(-1, keepdims=True)
    weights = _once(rounded(jnp.exp(logits - peaks), v.dtype))
    sums = weights.astype(jnp.float32).sum(-1, keepdims=True)
    divisors = jnp.where(peaks > NEGATIVE / 2, peaks + jnp.log(sums), -NEGATIVE)
    out = _product(weights, _rows(v)) / sums
    return None, (out, divisors[..., 0])


def backward(q_BQHK, k_BSHK, v_BSHK, mask, bias, d_out_BQHK, means_BHQ, divisors_BHQ):
    """Return the gradients of q, k, v, and of the bias float32 [P, H, Q, S] or None.

    P are the parts of the batch. Added up in the loop, they would be a collective in each turn,
    whose order the processes of a pod do not agree on.

    `means_BHQ` are the rows' weighted means of the weights' gradients; `divisors_BHQ` come from
    `forward`.
    """
    given = {"q": q_BQHK, "k": k_BSHK, "v": v_BSHK}
    given |= {"d_out": d_out_BQHK, "means": means_BHQ, "divisors": divisors_BHQ}
    d_bias, (d_q_BHQK, d_k_BHKS, d_v_BHKS) = _by_blocks(_backward, given, mask, bias)
    d_q = d_q_BHQK.swapaxes(1, 2)
    d_k, d_v = (x.transpose(0, 3, 1, 2) for x in (d_k_BHKS, d_v_BHKS))
    return *(x.astype(v_BSHK.dtype) for x in (d_q, d_k, d_v)), d_bias


def _backward(q, k, v, d_out, means, divisors, mask, bias):
    weights = rounded(jnp.exp(_logits(q, k, mask, bias) - divisors[..., None]), v.dtype)
    d_weights = _product(_rows(d_out), _columns(v))
    d_logits = _once((weights * (d_weights - means[..., None])).astype(q.dtype))
    # The large array comes second and is not transposed: 4 times as fast for one head of 512 x 512.
    by_keys = lambda x, w: _product(_columns(x), w)
    d_q = _product(d_logits, _rows(k))
    d_bias = None if bias is None else sum_rows(d_logits)
    return d_bias, (d_q, by_keys(q, d_logits), by_keys(d_out, weights))


def _rows(x_bQgK: jax.Array) -> jax.Array:
    """Return [b, g, Q, K]."""
    return _natural(x_bQgK.swapaxes(1, 2))


def _columns(x_bQgK: jax.Array) -> jax.Array:
    """Return [b, g, K, Q]."""
    return _natural(x_bQgK.transpose(0, 2, 3, 1))


def _natural(x: jax.Array) -> jax.Array:
    """Return `x`, copied unless it is float32: as that XLA multiplies transposed factors."""
    return x if is_divided() or x.dtype == jnp.float32 else copied(x)


def rounded(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Return positive float32 numbers in `dtype`, to the nearest, halves to the even one.

    For bfloat16 by their bits, sooner than XLA converts exponentials.
    """
    if dtype != jnp.bfloat16:
        return x.astype(dtype)
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return jax.lax.bitcast_convert_type(bits.astype(jnp.uint16), jnp.bfloat16)


def _logits(q_bQgK, k_bSgK, mask, bias) -> jax.Array:
    """Return float32 logits [b, g, Q, S], biased and masked."""
    logits = _product(_rows(q_bQgK), _columns(k_bSgK))
    if bias is not None:
        logits = logits + bias.astype(jnp.float32)
    return logits if mask is None else jnp.where(mask, logits, NEGATIVE)


def _by_blocks(block: Callable, given: dict[str, jax.Array], mask, bias) -> tuple[Any, tuple]:
    """Return the sum of `block`'s first results over the rows, and its other results joined."""
    (batch, queries, heads, _), keys = given["q"].shape, given["k"].shape[1]
    most = max(CACHE_BYTES * (os.cpu_count() or 1) // (4 * queries * keys), 1)
    head_parts, row_parts = cuts("heads", heads), cuts("batch", batch)
    block_heads = divisor(heads // head_parts, most)
    most_rows = most // (heads // head_parts)
    if bias is not None:  # XLA removes a loop of one turn and computes the bias in each reader
        most_rows = min(most_rows, batch // row_parts // 2)
    block_rows = divisor(batch // row_parts, max(most_rows, 1))
    rows = functools.partial(split, axis=0, parts=row_parts, size=block_rows)
    if mask is not None:
        mask = jnp.broadcast_to(mask, (batch, *mask.shape[1:]))

    def over_rows(arrays: dict[str, jax.Array], bias):
        def turn(total, xs):
            summed, made = block(**xs, bias=bias)
            return jax.tree.map(jnp.add, total, summed), made

        blocks = {name: rows(x) for name, x in (arrays | {"mask": mask}).items()}
        first = jax.tree.map(lambda x: x[0], blocks)
        total = jax.eval_shape(lambda xs: block(**xs, bias=bias)[0], first)
        total = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), total)
        total, made = jax.lax.scan(turn, total, blocks)
        return total, tuple(join(y, 0, row_parts) for y in made)

    if block_heads == heads // head_parts:
        return over_rows(given, bias)
    of_heads = functools.partial(split, parts=head_parts, size=block_heads)
    arrays = {name: of_heads(x, axis=_OF_HEADS[name]) for name, x in given.items()}
    bias = None if bias is None else of_heads(bias, axis=1)
    total, made = jax.lax.map(lambda xs: over_rows(*xs), (arrays, bias))
    total = None if total is None else join(total, 1, head_parts)
    return total, tuple(join(y, 1, head_parts) for y in made)
