"""Flash attention with T5's bias by distance, for NVIDIA GPUs.

  segments = Segments(decoder_segments_BQ, encoder_segments_BS)
  out_BQHK = gpu_attention.attend(q_BQHK, k_BSHK, v_BSHK, segments, by_distance_HN)

The kernels (Dao et al. 2022, arXiv:2205.14135) read the bias as tiles by distance, the same for all
examples, compare segment ids in registers, and skip tiles in which no query attends to a key. The
gradient of the bias needs the gradient of the logits, one array [B, H, Q, S] in the dtype of
queries for the moment between two kernels. Nothing is transposed, padded or copied.

Where `interpret`, the kernels run on any platform, slowly, for tests.

Shapes: B batch, Q queries, S keys, L either, H heads, K head_dim, N distances, O offsets of a
tile's first key from its first query, in tiles.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from t5x.kernels.attention_mask import Segments
from t5x.kernels.xla import KEPT
from t5x.partitioning import per_device

TILE = 64  # queries and keys at a time
NEGATIVE = -(2.0**20)  # a masked logit, in which float32 still counts by eighths; others are larger
LOG2_E = 1.4426950408889634
NO_QUERY, NO_KEY = -1, -2  # ids of padding, which attends to nothing
SUM_PROGRAMS = 256  # programs for each head, enough to fill a GPU
SUM_TILES = 16  # least tiles of each of these programs; more of them spare partial sums


class Reach(NamedTuple):
    """How far a query attends: if `causal` not to later keys; to those at most `radius` away.

    If `causal`, `earlier` keys come before the first query's own (see `Segments`). `interpret` says
    where the kernels run: on a GPU, or interpreted anywhere.
    """

    causal: bool = False
    radius: int | None = None
    interpret: bool = False
    earlier: int = 0

    def of_tiles(self, rows: int, columns: int) -> np.ndarray:
        """Return which tiles hold a pair in reach, bool [rows, columns]."""
        offset = np.arange(columns)[None] - np.arange(rows)[:, None]
        # The first key of a tile and the last query of another are the nearest that are causal.
        within = np.full(offset.shape, True)
        if self.causal:
            within = offset * TILE < TILE + self.earlier
        if self.radius is not None:
            within &= (abs(offset) - 1) * TILE < self.radius
        return within

    def of_pairs(self, i, j, queries_axis: int):
        """Return which pairs of tile i, j are in reach, bool [TILE, TILE]; None if all are."""
        if not self.causal and self.radius is None:
            return None
        query = jax.lax.broadcasted_iota(jnp.int32, (TILE, TILE), queries_axis) + i * TILE
        key = jax.lax.broadcasted_iota(jnp.int32, (TILE, TILE), 1 - queries_axis) + j * TILE
        within = key <= query + self.earlier if self.causal else None
        if self.radius is not None:
            near = jnp.abs(key - query) <= self.radius
            within = near if within is None else within & near
        return within


class Plan(NamedTuple):
    """Which tiles hold a query that attends to a key. All arrays are int32.

    Attributes:
      of_query: segment ids of queries [B, Q], padded to tiles.
      of_key: segment ids of keys [B, S].
      in_row: of each row of tiles the first such tile and the end [B, Q / TILE, 2].
      in_column: of each column the first and the end of those in `in_row` [B, S / TILE, 2].
      places: of each offset example * Q / TILE + row, such tiles first [O, B * Q / TILE].
      counts: of each offset how many there are [O].
    """

    of_query: jax.Array
    of_key: jax.Array
    in_row: jax.Array
    in_column: jax.Array
    places: jax.Array
    counts: jax.Array


def attend(
    q_BQHK: jax.Array,
    k_BSHK: jax.Array,
    v_BSHK: jax.Array,
    segments: Segments,
    by_distance_HN: jax.Array | None = None,
    interpret: bool = False,
) -> jax.Array:
    """Return values [B, Q, H, K] weighted by the softmax over keys of q·k + bias.

    Logits are not divided by sqrt(K). `by_distance_HN`, float32 [H, Q + S - 1], is the bias at
    distances key - query from 1 - Q to S - 1, None for no bias. Padding gets zeros, and so does a
    query whose segment has no key; where an example has no keys at all, its queries attend to all
    of its padding in reach.
    """
    axes = [("batch", None)] * 2 + [("batch", None, "heads", None)] * 3
    args = [segments.queries, segments.keys, q_BQHK, k_BSHK, v_BSHK]
    if by_distance_HN is not None:
        args.append(by_distance_HN)
        axes.append(("heads", None))

    def on_device(of_query, of_key, q, k, v, by_distance_HN=None):
        reach = Reach(segments.causal, segments.radius, interpret, k.shape[1] - q.shape[1])
        return _attend(reach, plan_of(of_query, of_key, reach), q, k, v, by_distance_HN)

    return per_device(on_device, axes, ("batch", None, "heads", None))(*args)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(reach: Reach, plan, q, k, v, by_distance_HN) -> jax.Array:
    return _forward(reach, plan, q, k, v, by_distance_HN)[0]


def _forward(reach, plan, q, k, v, by_distance_HN):
    batch, queries, heads, _ = q.shape
    tiles = _tiles(by_distance_HN, q)
    out, shifts = _call(
        reach,
        functools.partial(_forward_kernel, reach, queries, k.shape[1]),
        (plan.in_row.shape[1], heads, batch),
        [
            *map(_of_example, (plan.in_row, plan.of_query, plan.of_key)),
            *map(_rows, (q, k, v)),
            *map(_of_head, tiles),
        ],
        [
            _rows(q),
            _row_numbers(jax.ShapeDtypeStruct((batch, heads, plan.of_query.shape[1]), jnp.float32)),
        ],
        stages=2,
    )
    out, shifts = checkpoint_name(out, KEPT), checkpoint_name(shifts, KEPT)
    return out, (plan, q, k, v, by_distance_HN, out, shifts)


def _backward(reach, residuals, d_out):
    plan, q, k, v, by_distance_HN, out, shifts = residuals
    (batch, queries, heads, width), keys = q.shape, k.shape[1]
    d_out = d_out.astype(q.dtype)
    tiles = _tiles(by_distance_HN, q)
    row_tiles, column_tiles = plan.in_row.shape[1], plan.in_column.shape[1]
    stages = 3 if width < 128 else 2  # as many as fit in shared memory, 99 KB on an L4
    args = [
        *map(_of_example, (plan.of_query, plan.of_key)),
        *map(_rows, (q, k, v, d_out)),
        *map(_row_numbers, (shifts, _means(out, d_out, shifts))),
    ]
    results = [_rows(k), _rows(v)]
    if tiles:
        shape = (batch, heads, column_tiles, row_tiles, TILE, TILE)
        results.append(_tiles_of_column(jax.ShapeDtypeStruct(shape, d_out.dtype)))
    d_k, d_v, *d_logits = _call(
        reach,
        functools.partial(_key_kernel, reach, queries, keys, bool(tiles)),
        (column_tiles, heads, batch),
        [_of_example(plan.in_column), *args, *[_of_head(x.swapaxes(2, 3)) for x in tiles]],
        results,
        stages,
    )
    kernel = functools.partial(_query_kernel, reach, queries, keys)
    if d_logits:
        kernel = functools.partial(_query_kernel_of_logits, queries, keys)
        args = [_rows(k), _tiles_of_row(*d_logits)]
    grid = (row_tiles, heads, batch)
    (d_q,) = _call(reach, kernel, grid, [_of_example(plan.in_row), *args], [_rows(q)], stages)
    if by_distance_HN is None:
        return None, d_q, d_k, d_v, None
    _, pull = jax.vjp(lambda x: _by_tiles(x, queries), by_distance_HN)
    return None, d_q, d_k, d_v, *pull(_sum_by_offset(reach, plan, *d_logits))


def _means(out, d_out, shifts):
    """Return the weighted mean of each row's gradients, float32 [B, H, Q] padded to tiles."""
    means_BHQ = (out.astype(jnp.float32) * d_out.astype(jnp.float32)).sum(-1).swapaxes(1, 2)
    return jnp.pad(means_BHQ, ((0, 0), (0, 0), (0, shifts.shape[2] - out.shape[1])))


def _sum_by_offset(reach, plan, d_logits):
    """Return the gradients of the tiles of the bias, float32 [H, O, TILE, TILE]."""
    batch, heads, columns, rows, *_ = d_logits.shape
    offsets, places = plan.places.shape
    parts = max(min(SUM_PROGRAMS // offsets, places // SUM_TILES), 1)
    every = (batch, None, columns, rows, TILE, TILE)
    shape = (parts, heads, offsets, TILE, TILE)
    (sums,) = _call(
        reach,
        functools.partial(_sum_kernel, parts, rows),
        (offsets, heads, parts),
        [
            (plan.counts, pl.BlockSpec((offsets,), lambda o, h, p: (0,))),
            (plan.places, pl.BlockSpec((None, places), lambda o, h, p: (o, 0))),
            (d_logits, pl.BlockSpec(every, lambda o, h, p: (0, h, 0, 0, 0, 0))),
        ],
        [
            (
                jax.ShapeDtypeStruct(shape, jnp.float32),
                pl.BlockSpec((None, None, None, TILE, TILE), lambda o, h, p: (p, h, o, 0, 0)),
            )
        ],
        stages=2,
    )
    return sums.sum(0).swapaxes(2, 3)


_attend.defvjp(_forward, _backward)


def _of_example(x):
    return x, pl.BlockSpec((None, *x.shape[1:]), lambda i, h, b: (b,) + (0,) * (len(x.shape) - 1))


def _of_head(x):
    return x, pl.BlockSpec((None, *x.shape[1:]), lambda i, h, b: (h, 0, 0, 0))


def _rows(x):
    return x, pl.BlockSpec((None, x.shape[1], None, x.shape[3]), lambda i, h, b: (b, 0, h, 0))


def _row_numbers(x):
    return x, pl.BlockSpec((None, None, x.shape[2]), lambda i, h, b: (b, h, 0))


def _tiles_of_column(x):
    _, _, _, rows, *tile = x.shape
    return x, pl.BlockSpec((None, None, None, rows, *tile), lambda j, h, b: (b, h, j, 0, 0, 0))


def _tiles_of_row(x):
    _, _, columns, _, *tile = x.shape
    return x, pl.BlockSpec((None, None, columns, None, *tile), lambda i, h, b: (b, h, 0, i, 0, 0))


def _call(reach: Reach, kernel, grid, args, results, stages: int) -> Any:
    """Run a kernel; `args` and `results` are pairs of an array and its BlockSpec."""
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=[spec for _, spec in args],
        out_specs=[spec for _, spec in results],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x, _ in results],
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=stages),
        interpret=reach.interpret,
    )(*(x for x, _ in args))


def _forward_kernel(reach, queries, keys, bounds, of_query, of_key, q, k, v, *refs):
    *tiles, out, shifts = refs
    i = pl.program_id(0)
    first, end = bounds[i, 0], bounds[i, 1]
    q_rows, ids = _load(q, i, queries), of_query[_at(i)]

    def body(j, carry):
        sums, peaks, totals = carry
        logits = _logits(reach, q_rows, _load(k, j, keys), _tile(tiles, i, j, queries))
        mask = _mask(reach, i, j, ids[:, None], of_key[_at(j)][None, :])
        logits = jnp.where(mask, logits, NEGATIVE)
        higher = jnp.maximum(peaks, logits.max(1))
        shrink = _exponential(reach, peaks, -higher * LOG2_E)
        weights = _exponential(reach, logits, (-higher * LOG2_E)[:, None])
        totals = totals * shrink + weights.sum(1)
        sums = sums * shrink[:, None] + _dot(weights.astype(v.dtype), _load(v, j, keys))
        return sums, higher, totals

    zeros = jnp.zeros(q_rows.shape, jnp.float32)
    start = zeros, jnp.full((TILE,), NEGATIVE, jnp.float32), jnp.zeros((TILE,), jnp.float32)
    sums, peaks, totals = _loop(first, end, body, start)
    some = (peaks > NEGATIVE / 2) | jnp.isnan(totals)  # a maximum of NaN is dropped on a GPU
    totals = jnp.where(some, totals, 1.0)
    _store(out, i, queries, jnp.where(some[:, None], sums / totals[:, None], 0.0))
    # A row without keys has weights 0 in the gradient.
    shifts[_at(i)] = jnp.where(some, -peaks * LOG2_E - jnp.log2(totals), NEGATIVE)


def _key_kernel(reach, queries, keys, biased, *refs):
    """Compute the gradients of keys, values, and if `biased` logits; tiles are [keys, queries]."""
    bounds, of_query, of_key, q, k, v, d_out, shifts, means, *rest = refs
    tiles, (d_k, d_v, *d_tiles) = rest[:biased], rest[biased:]
    j = pl.program_id(0)
    first, end = bounds[j, 0], bounds[j, 1]
    k_rows, v_rows, ids = _load(k, j, keys), _load(v, j, keys), of_key[_at(j)]

    def body(i, carry):
        sum_k, sum_v = carry
        q_rows, d_rows = _load(q, i, queries), _load(d_out, i, queries)
        logits = _logits(reach, k_rows, q_rows, _tile(tiles, i, j, queries))
        weights = _exponential(reach, logits, shifts[_at(i)][None, :])
        mask = _mask(reach, i, j, of_query[_at(i)][None, :], ids[:, None], queries_axis=1)
        weights = jnp.where(mask, weights, 0.0)
        sum_v += _dot(weights.astype(v_rows.dtype), d_rows)
        d_logits = weights * (_dot(v_rows, d_rows.T) - means[_at(i)][None, :])
        d_logits = d_logits.astype(q_rows.dtype)
        if biased:
            d_tiles[0][i] = d_logits
        return sum_k + _dot(d_logits, q_rows), sum_v

    zeros = jnp.zeros(k_rows.shape, jnp.float32)
    sum_k, sum_v = _loop(first, end, body, (zeros, zeros))
    _store(d_k, j, keys, sum_k)
    _store(d_v, j, keys, sum_v)


def _query_kernel_of_logits(queries, keys, bounds, k, d_tiles, d_q):
    """Compute the gradient of queries from the gradient of logits."""
    i = pl.program_id(0)

    def body(j, sums):
        return sums + _dot(d_tiles[j].T, _load(k, j, keys))

    sums = jnp.zeros((TILE, k.shape[1]), jnp.float32)
    _store(d_q, i, queries, jax.lax.fori_loop(bounds[i, 0], bounds[i, 1], body, sums))


def _query_kernel(reach, queries, keys, *refs):
    """Compute the gradient of queries without a bias, so no gradient of logits is kept."""
    bounds, of_query, of_key, q, k, v, d_out, shifts, means, d_q = refs
    i = pl.program_id(0)
    q_rows, d_rows, ids = _load(q, i, queries), _load(d_out, i, queries), of_query[_at(i)]
    shift, mean = shifts[_at(i)][:, None], means[_at(i)][:, None]

    def body(j, sums):
        k_rows = _load(k, j, keys)
        weights = _exponential(reach, _logits(reach, q_rows, k_rows, None), shift)
        mask = _mask(reach, i, j, ids[:, None], of_key[_at(j)][None, :])
        d_logits = weights * (_dot(d_rows, _load(v, j, keys).T) - mean)
        return sums + _dot(jnp.where(mask, d_logits, 0.0).astype(k_rows.dtype), k_rows)

    sums = jnp.zeros(q_rows.shape, jnp.float32)
    _store(d_q, i, queries, _loop(bounds[i, 0], bounds[i, 1], body, sums))


def _sum_kernel(parts, rows, counts, places, d_tiles, total):
    """Sum a part of the gradients of all tiles with one offset."""
    offset, part = pl.program_id(0), pl.program_id(2)

    def body(n, sums):
        b, i = jax.lax.div(places[n], rows), jax.lax.rem(places[n], rows)
        return sums + d_tiles[b, i + offset - (rows - 1), i].astype(jnp.float32)

    first, end = (jax.lax.div(n * counts[offset], parts) for n in (part, part + 1))
    total[...] = jax.lax.fori_loop(first, end, body, jnp.zeros(total.shape, jnp.float32))


def _loop(first, end, body, start):
    """Run `body` for each tile from `first` to `end`; if there is none, once, all masked.

    Where a loop may not run at all, ptxas waits for each part of each product.
    """
    times = jnp.maximum(end - first, 1)
    return jax.lax.fori_loop(0, times, lambda n, carry: body(first + n, carry), start)


def _at(block):
    return pl.ds(block * TILE, TILE)


def _inside(block, length):
    return (block * TILE + jax.lax.broadcasted_iota(jnp.int32, (TILE, 1), 0)) < length


def _load(ref, block, length: int):
    """Load a block of rows [TILE, K]; beyond them 0."""
    index = (_at(block), slice(None))
    if length % TILE == 0:
        return ref[index]
    mask = jnp.broadcast_to(_inside(block, length), (TILE, ref.shape[-1]))
    return plgpu.load(ref.at[index], mask=mask, other=0.0)


def _store(ref, block, length: int, rows) -> None:
    """Store a block of rows [TILE, K]."""
    index = (_at(block), slice(None))
    rows = rows.astype(ref.dtype)
    if length % TILE == 0:
        ref[index] = rows
    else:
        mask = jnp.broadcast_to(_inside(block, length), rows.shape)
        plgpu.store(ref.at[index], rows, mask=mask)


def _tile(tiles, i, j, queries: int):
    """Return the tile of the bias for block i of queries and block j of keys, None without."""
    return tiles[0][j - i + (-(-queries // TILE) - 1)] if tiles else None


def _logits(reach: Reach, rows, columns, tile):
    """Return float32 logits [rows, columns]."""
    logits = _dot(rows, columns.T)
    return logits if tile is None else _add(reach, logits, tile.astype(jnp.float32))


def _add(reach: Reach, logits, tile):
    """Return the sum, by an instruction of its own.

    From a plain sum Triton makes a product that starts with the tile, and does not read it ahead.
    """
    return _by_ptx(reach, "add.rn.f32 $0, $1, $2;", jnp.add, logits, tile)


def _exponential(reach: Reach, logits, shift):
    """Return 2 ** (logits * LOG2_E + shift) in the two instructions that a GPU has for it.

    Results below 2 ** -126 become 0. To keep them the compiler takes four more instructions.
    """
    log2_e = f"0f{np.float32(LOG2_E).view(np.int32):08X}"
    ptx = f"fma.rn.f32 t, $1, {log2_e}, $2; ex2.approx.ftz.f32 $0, t;"
    plainly = lambda x, y: jnp.exp2(x * LOG2_E + y)
    shift = jnp.broadcast_to(shift, logits.shape)
    return _by_ptx(reach, f"{{ .reg .f32 t; {ptx} }}", plainly, logits, shift)


def _by_ptx(reach: Reach, instructions: str, plainly: Callable[[Any, Any], Any], x, y):
    """Return `plainly(x, y)`, on a GPU by PTX that computes float32 $0 of each $1 and $2."""
    if reach.interpret:
        return plainly(x, y)
    like = jax.ShapeDtypeStruct(x.shape, jnp.float32)
    (result,) = plgpu.elementwise_inline_asm(
        instructions, args=[x, y], constraints="=f,f,f", pack=1, result_shape_dtypes=[like]
    )
    return result


def _mask(reach, i, j, of_query, of_key, queries_axis=0):
    mask, within = of_query == of_key, reach.of_pairs(i, j, queries_axis)
    return mask if within is None else mask & within


def _dot(a, b):
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _tiles(by_distance_HN, q: jax.Array) -> list[jax.Array]:
    """Return the tiles of the bias in the dtype of queries, nothing without a bias."""
    if by_distance_HN is None:
        return []
    return [_by_tiles(by_distance_HN, q.shape[1]).astype(q.dtype)]


def _by_tiles(by_distance_HN, queries: int) -> jax.Array:
    """Return tiles [H, O, TILE, TILE] of a bias by distance, 0 beyond the last query and key."""
    heads, distances = by_distance_HN.shape
    keys = distances + 1 - queries
    more_q, more_k = -queries % TILE, -keys % TILE
    by_distance_HN = jnp.pad(by_distance_HN, ((0, 0), (more_q, more_k + 1)))
    # Each window has the 2 * TILE - 1 distances of a tile, and one more.
    halves = by_distance_HN.reshape(heads, -1, TILE)
    windows = jnp.concatenate([halves[:, :-1], halves[:, 1:]], -1)
    # Repeated rows, cut one shorter than they are, begin one distance earlier each.
    repeated = jnp.broadcast_to(windows[:, :, None], (*windows.shape[:2], TILE, 2 * TILE))
    flat = repeated.reshape(*windows.shape[:2], -1)[..., TILE - 1 : -1]
    return flat.reshape(*windows.shape[:2], TILE, 2 * TILE - 1)[..., :TILE]


def plan_of(of_query: jax.Array, of_key: jax.Array, reach: Reach) -> Plan:
    """Return the plan for segment ids of queries [B, Q] and of keys [B, S]."""

    def padded(ids, padding):
        ids = jnp.where(ids > 0, ids, padding)
        return jnp.pad(ids, ((0, 0), (0, -ids.shape[1] % TILE)), constant_values=padding)

    empty = ~(of_key > 0).any(-1, keepdims=True)
    of_query, of_key = jnp.where(empty & (of_query > 0), 1, of_query), jnp.where(empty, 1, of_key)
    of_query, of_key = padded(of_query, NO_QUERY), padded(of_key, NO_KEY)
    q_ids, k_ids = (ids.reshape(len(ids), -1, TILE) for ids in (of_query, of_key))
    most = jnp.iinfo(jnp.int32).max
    low = lambda ids: jnp.where(ids > 0, ids, most).min(-1)
    needed = low(q_ids)[:, :, None] <= k_ids.max(-1)[:, None]
    needed &= low(k_ids)[:, None] <= q_ids.max(-1)[:, :, None]
    rows, columns = needed.shape[1:]
    needed &= reach.of_tiles(rows, columns)
    row, column = np.arange(rows), np.arange(columns)

    def ends(needed):
        first = jnp.argmax(needed, -1)
        end = needed.shape[-1] - jnp.argmax(needed[..., ::-1], -1)
        return jnp.stack([first, jnp.where(needed.any(-1), end, first)], -1).astype(jnp.int32)

    in_row = ends(needed)
    visited = (column >= in_row[..., :1]) & (column < in_row[..., 1:])

    at = row[None] + np.arange(rows + columns - 1)[:, None] - (rows - 1)  # column of [O, row]
    inside = (at >= 0) & (at < columns)
    by_offset = needed[:, row[None], np.clip(at, 0, columns - 1)] & inside
    by_offset = by_offset.swapaxes(0, 1).reshape(len(at), -1)
    return Plan(
        of_query,
        of_key,
        in_row,
        ends(visited.swapaxes(1, 2)),
        jnp.argsort(~by_offset, axis=-1, stable=True).astype(jnp.int32),
        by_offset.sum(-1, dtype=jnp.int32),
    )
