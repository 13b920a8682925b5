"""Flash attention for TPUs, experimental: compiled for TPUs, but never timed on one.

  segments = Segments(decoder_segments_BQ, encoder_segments_BS)
  out_BQHK = flash_attention.attend(q_BQHK, k_BSHK, v_BSHK, segments, by_distance_HN)

No array of queries times keys, and no bias of that size, is written to memory. The kernels process
one head of one example at a time (Dao et al. 2022, arXiv:2205.14135). All keys of an example fit
the chip's VMEM, so no partial softmax has to be rescaled. T5's bias depends only on the distance of
query and key: its Q + S - 1 numbers per head are expanded in VMEM once for all examples, and their
gradient is summed there over all examples.

Queries or keys are the last axis of every array, as the products before and after leave them: rows
of head_dim numbers would fill only half of a TPU's registers.

On other platforms the same kernels are interpreted, slowly, for tests.

Shapes: B batch, Q queries, S keys, H heads, K head_dim, N distances.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from t5x.ops.attention import KEPT, Segments
from t5x.partitioning import per_device, platform

BLOCK = 128  # queries at a time; lengths are padded to multiples of it
MAX_PAIRS = 1 << 20  # queries times keys; two such float32 arrays and temporaries fit 16 MiB
NEGATIVE = -1e10  # a masked logit
PADDING, EVERYTHING = -1, -2  # ids of keys added here, and of queries that attend to all others


def attend(q_BQHK, k_BSHK, v_BSHK, segments: Segments, by_distance_HN=None) -> jax.Array:
    """Return values [B, Q, H, K] weighted by the softmax over keys of q·k + bias.

    Logits are not divided by sqrt(K). `by_distance_HN`, float32 [H, Q + S - 1], is the bias at
    distances key - query from 1 - Q to S - 1, None for no bias. Raise ValueError if a chip's VMEM
    cannot hold queries times keys, and for a radius.
    """
    if segments.radius is not None:
        raise ValueError(
            f"Segments.radius is {segments.radius}, which the kernels for TPUs do not have; use "
            "t5x.ops.local_attention."
        )
    queries, keys = q_BQHK.shape[1], k_BSHK.shape[1]
    more_q, more_k = -queries % BLOCK, -keys % BLOCK
    if (queries + more_q) * (keys + more_k) > MAX_PAIRS:
        raise ValueError(
            f"T5Config.attention = 'flash' takes {queries} queries and {keys} keys at once, more "
            f"than {MAX_PAIRS:,} pairs; set it to 'xla', or shorten TASK_FEATURE_LENGTHS."
        )
    of_query, of_key = segments.queries, segments.keys
    same = (of_query[:, :, None] == of_key[:, None]) & (of_key[:, None] > 0)
    of_query = jnp.where(same.any(-1), of_query, EVERYTHING)
    turned = lambda x, more: jnp.pad(x.transpose(0, 2, 3, 1), ((0, 0), (0, 0), (0, 0), (0, more)))
    args = [
        jnp.pad(of_query, ((0, 0), (0, more_q)), constant_values=EVERYTHING)[:, None],
        jnp.pad(of_key, ((0, 0), (0, more_k)), constant_values=PADDING)[:, None],
        turned(q_BQHK, more_q),
        turned(k_BSHK, more_k),
        turned(v_BSHK, more_k),
    ]
    axes = [("batch", None, None)] * 2 + [("batch", "heads", None, None)] * 3
    if by_distance_HN is not None:
        # By query - key, starting at 1 - S of the padded keys; the last one is never used.
        turned_HN = jnp.pad(by_distance_HN[:, ::-1], ((0, 0), (more_k, more_q + 1)))
        args.append(turned_HN[:, None])
        axes.append(("heads", None, None))
    kernel = functools.partial(_attend, segments.causal)
    out_BHKQ = per_device(kernel, axes, ("batch", "heads", None, None))(*args)
    return out_BHKQ[..., :queries].transpose(0, 3, 1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(causal: bool, *args) -> jax.Array:
    return _forward(causal, *args)[0]


def _forward(causal, *args):
    q, k = args[2:4]
    out, divisors = _call(
        functools.partial(_forward_kernel, causal),
        args,
        [jax.ShapeDtypeStruct(q.shape, q.dtype), _one_row(q)],
        scratch=[(k.shape[3], q.shape[3])] if len(args) > 5 else [],
        products=2,
    )
    out, divisors = checkpoint_name(out, KEPT), checkpoint_name(divisors, KEPT)
    return out, (*args, out, divisors)


def _backward(causal, kept, d_out):
    *args, out, divisors_BH1Q = kept
    _, _, q, k, v, *by_distance = args
    means_BH1Q = (d_out.astype(jnp.float32) * out.astype(jnp.float32)).sum(2, keepdims=True)
    bias_scratch = [(k.shape[3], q.shape[3])] * (2 * len(by_distance))
    results = _call(
        functools.partial(_backward_kernel, causal, bool(by_distance)),
        (*args, divisors_BH1Q, means_BH1Q, d_out.astype(q.dtype)),
        [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v, *by_distance)],
        scratch=[k.shape[2:], v.shape[2:], *bias_scratch],
        products=5,
    )
    return None, None, *results


_attend.defvjp(_forward, _backward)


def _one_row(q_BHKQ) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*q_BHKQ.shape[:2], 1, q_BHKQ.shape[3]), jnp.float32)


def _call(kernel, args, results, scratch, products: int) -> Any:
    """Run a kernel over all heads, and for each over all examples."""
    (batch, heads, width, queries), keys = args[2].shape, args[3].shape[3]

    def block(x):
        if len(x.shape) == 4:  # per example and head
            return pl.BlockSpec((None, None, *x.shape[2:]), lambda h, b: (b, h, 0, 0))
        if x.dtype == jnp.int32:  # segments, per example
            return pl.BlockSpec((None, *x.shape[1:]), lambda h, b: (b, 0, 0))
        return pl.BlockSpec((None, *x.shape[1:]), lambda h, b: (h, 0, 0))  # per head

    pairs = batch * heads * queries * keys
    moved = sum(x.size * jnp.dtype(x.dtype).itemsize for x in (*args, *results))
    return pl.pallas_call(
        kernel,
        grid=(heads, batch),
        in_specs=[block(x) for x in args],
        out_specs=[block(x) for x in results],
        out_shape=results,
        scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
        cost_estimate=pl.CostEstimate(
            flops=2 * products * pairs * width, transcendentals=pairs, bytes_accessed=moved
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=platform() != "tpu",
    )(*args)


def _forward_kernel(causal, of_query, of_key, q, k, v, *refs):
    by_distance, out, divisors, bias = refs if len(refs) == 4 else (None, *refs, None)
    if bias is not None:
        pl.when(pl.program_id(1) == 0)(lambda: _expand(by_distance, bias))
    logits_of = _logits(causal, of_query, of_key, q, k, bias)

    def of_block(block):
        logits = logits_of(block)
        peaks = logits.max(0, keepdims=True)
        weights = jnp.exp(logits - peaks)
        sums = weights.sum(0, keepdims=True)
        out[:, block] = (_dot(v[...], weights.astype(v.dtype)) / sums).astype(out.dtype)
        divisors[:, block] = peaks + jnp.log(sums)

    _each_block(q.shape[1], of_block)


def _backward_kernel(causal, biased, of_query, of_key, q, k, v, *refs):
    by_distance, refs = (refs[0], refs[1:]) if biased else (None, refs)
    divisors, means, d_out, d_q, d_k, d_v, *rest = refs
    d_by_distance, sum_k, sum_v, bias, d_bias = rest if biased else (None, *rest, None, None)
    example, examples = pl.program_id(1), pl.num_programs(1)
    if biased:

        @pl.when(example == 0)
        def _():
            _expand(by_distance, bias)
            d_bias[...] = jnp.zeros_like(d_bias)

    sum_k[...], sum_v[...] = jnp.zeros_like(sum_k), jnp.zeros_like(sum_v)
    logits_of, v_SK = _logits(causal, of_query, of_key, q, k, bias), v[...].T

    def of_block(block):
        weights = jnp.exp(logits_of(block) - divisors[:, block])
        d_logits = weights * (_dot(v_SK, d_out[:, block]) - means[:, block])
        if biased:
            d_bias[:, block] += d_logits
        weights, d_logits = weights.astype(v.dtype), d_logits.astype(q.dtype)
        sum_v[...] += _dot(d_out[:, block], weights.T)
        sum_k[...] += _dot(q[:, block], d_logits.T)
        d_q[:, block] = _dot(k[...], d_logits).astype(d_q.dtype)

    _each_block(q.shape[1], of_block)
    d_k[...], d_v[...] = sum_k[...].astype(d_k.dtype), sum_v[...].astype(d_v.dtype)
    if biased:
        pl.when(example == examples - 1)(lambda: _sum_diagonals(d_bias, d_by_distance))


def _each_block(length: int, fn) -> None:
    """Call `fn` with the slice of each block."""

    def body(i, _):
        fn(pl.ds(pl.multiple_of(i * BLOCK, BLOCK), BLOCK))
        return _

    jax.lax.fori_loop(0, length // BLOCK, body, 0)


def _logits(causal, of_query, of_key, q, k, bias):
    """Return a function from a block of queries to its masked float32 logits [S, BLOCK]."""
    k_SK = k[...].T
    key_S1 = jnp.broadcast_to(of_key[...], (BLOCK, of_key.shape[1])).T[:, :1]

    def of_block(block):
        logits = _dot(k_SK, q[:, block])
        if bias is not None:
            logits = logits + bias[:, block]
        query_1Q = of_query[:, block]
        mask = query_1Q == key_S1
        if causal:
            query = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) + block.start
            mask &= jax.lax.broadcasted_iota(jnp.int32, logits.shape, 0) <= query
        mask |= (query_1Q == EVERYTHING) & (key_S1 != PADDING)
        return jnp.where(mask, logits, NEGATIVE)

    return of_block


def _dot(a, b):
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _expand(by_distance, bias) -> None:
    """Fill [S, Q] from [1, N]: entry (s, q) is the number at distance q - s."""
    keys, queries = bias.shape

    def of_block(rows):
        first = pl.multiple_of(keys - BLOCK - rows.start, BLOCK)
        near = by_distance[:, pl.ds(first, queries + BLOCK)]
        near = jnp.broadcast_to(near, (BLOCK, queries + BLOCK))
        bias[rows] = _slanted(near, 1)[:, BLOCK - 1 : -1]

    _each_block(keys, of_block)


def _sum_diagonals(d_bias, d_by_distance) -> None:
    """Sum [S, Q] along its diagonals into [1, N]."""
    keys, queries = d_bias.shape
    d_by_distance[...] = jnp.zeros_like(d_by_distance)

    def of_block(rows):
        first = pl.multiple_of(keys - BLOCK - rows.start, BLOCK)
        wide = jnp.concatenate([d_bias[rows], jnp.zeros((BLOCK, BLOCK), jnp.float32)], -1)
        sums = _slanted(pltpu.roll(wide, BLOCK - 1, 1), -1).sum(0, keepdims=True)
        d_by_distance[:, pl.ds(first, queries + BLOCK)] += sums

    _each_block(keys, of_block)


def _slanted(x, direction: int):
    """Roll row i of [BLOCK, n] by i to the right (1) or left (-1), one binary digit at a time."""
    row, width = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0), x.shape[1]
    for digit in range(BLOCK.bit_length() - 1):
        moved = pltpu.roll(x, direction * (1 << digit) % width, 1)
        x = jnp.where((row >> digit) & 1 == 1, moved, x)
    return x
