"""Flash attention for NVIDIA GPUs (Dao et al. 2022, arXiv:2205.14135), with T5's bias by distance.

  segments = Segments(decoder_segments_BQ, encoder_segments_BS)
  out_BQHK = triton_attention.attend((q_BQ1HK, kv_BS2HK), segments, by_distance_HN)

cuDNN's kernels take bias and mask as one array [B, H, Q, S] and read it in every layer. These read
the bias as tiles by distance, the same for all examples, compare segment ids in registers, and skip
tiles in which no query attends to a key. The gradient of the bias needs that of the logits, one
such array in the dtype of queries for the moment between two kernels.

Queries, keys and values may be parts of one array, as one product makes them, and so may their
gradients: nothing is transposed, padded or copied.

On other platforms the same kernels are interpreted, slowly, for tests.

Shapes: B batch, Q queries, S keys, L either, P parts, H heads, K head_dim, N distances, O offsets
of a tile's first key from its first query, in tiles.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from t5x.kernels.attention import KEPT, Segments
from t5x.partitioning import per_device, platform

TILE = 64  # queries and keys at a time
NEGATIVE = -(2.0**20)  # a masked logit, in which float32 still counts by eighths; others are larger
LOG2_E = 1.4426950408889634
NO_QUERY, NO_KEY = -1, -2  # ids of padding, which attends to nothing
SUM_PROGRAMS = 256  # for each head, enough to fill a GPU
SUM_TILES = 16  # for each of these programs at least, which spares partial sums
# Where queries, keys and values are in one, two or three arrays: the n-th array, and the part.
PLACES = {
    1: ((0, 0), (0, 1), (0, 2)),
    2: ((0, 0), (1, 0), (1, 1)),
    3: ((0, 0), (1, 0), (2, 0)),
}


class Reach(NamedTuple):
    """How far a query attends: if `causal` not to later keys; to those at most `radius` away."""

    causal: bool = False
    radius: int | None = None

    def of_tiles(self, rows: int, columns: int) -> np.ndarray:
        """Return which tiles hold a pair in reach, bool [rows, columns]."""
        offset = np.arange(columns)[None] - np.arange(rows)[:, None]
        within = offset <= 0 if self.causal else np.full(offset.shape, True)
        if self.radius is not None:
            within &= (abs(offset) - 1) * TILE < self.radius
        return within

    def of_pairs(self, i, j, queries_axis: int):
        """Return which pairs of tile i, j are in reach, bool [TILE, TILE]; None if all are."""
        if self == Reach():
            return None
        query = jax.lax.broadcasted_iota(jnp.int32, (TILE, TILE), queries_axis) + i * TILE
        key = jax.lax.broadcasted_iota(jnp.int32, (TILE, TILE), 1 - queries_axis) + j * TILE
        within = key <= query if self.causal else None
        if self.radius is not None:
            near = jnp.abs(key - query) <= self.radius
            within = near if within is None else within & near
        return within


class Plan(NamedTuple):
    """Which tiles have a query that attends to a key; all int32.

    Attributes:
      of_query: segment ids of queries [B, Q], padded to tiles.
      of_key: those of keys [B, S].
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


def attend(arrays: Sequence[jax.Array], segments: Segments, by_distance_HN=None) -> jax.Array:
    """Return values [B, Q, H, K] weighted by the softmax over keys of q·k + bias.

    `arrays` [B, L, P, H, K] have queries, keys and values as their parts, one after another: one
    array of three parts, two of one and two, or three of one. Logits are not divided by sqrt(K).
    `by_distance_HN`, float32 [H, Q + S - 1], is the bias at distances key - query from 1 - Q to
    S - 1, None for no bias. Padding gets zeros, and so does a query whose segment has no key; where
    an example has no keys at all, its queries attend to all of its padding in reach.
    """
    axes = [("batch", None)] * 2 + [("batch", None, None, "heads", None)] * len(arrays)
    args = [segments.queries, segments.keys, *arrays]
    if by_distance_HN is not None:
        args.append(by_distance_HN)
        axes.append(("heads", None))

    def of_device(of_query, of_key, *args):
        reach = Reach(segments.causal, segments.radius)
        plan = _plan(of_query, of_key, reach)
        return _attend(reach, plan, args[: len(arrays)], *args[len(arrays) :])

    return per_device(of_device, axes, ("batch", None, "heads", None))(*args)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(reach: Reach, plan, arrays, by_distance_HN=None) -> jax.Array:
    return _forward(reach, plan, arrays, by_distance_HN)[0]


def _forward(reach, plan, arrays, by_distance_HN=None):
    q, k, v = _views(arrays)
    batch, queries, _, heads, width = q.array.shape
    tiles = _tiles(by_distance_HN, q, k)
    out, shifts = _call(
        functools.partial(_forward_kernel, reach, q.length, k.length),
        (plan.in_row.shape[1], heads, batch),
        [
            _of_example(plan.in_row),
            _of_example(plan.of_query),
            _of_example(plan.of_key),
            *(view.spec() for view in (q, k, v)),
            *_of_head(tiles),
        ],
        [
            _rows(jax.ShapeDtypeStruct((batch, queries, heads, width), q.array.dtype)),
            _row_numbers(jax.ShapeDtypeStruct((batch, heads, plan.of_query.shape[1]), jnp.float32)),
        ],
        stages=2,
    )
    out, shifts = checkpoint_name(out, KEPT), checkpoint_name(shifts, KEPT)
    return out, (plan, arrays, by_distance_HN, out, shifts)


def _backward(reach, kept, d_out):
    plan, arrays, by_distance_HN, out, shifts = kept
    q, k, v = _views(arrays)
    batch, queries, _, heads, width = q.array.shape
    d_out = d_out.astype(q.array.dtype)
    tiles = _tiles(by_distance_HN, q, k)
    row_tiles, column_tiles = plan.in_row.shape[1], plan.in_column.shape[1]
    ids = [_of_example(plan.of_query), _of_example(plan.of_key)]
    views = [view.spec() for view in (q, k, v)]
    of_rows = [_rows(d_out), _row_numbers(shifts), _row_numbers(_means(out, d_out, shifts))]
    results = [_all_parts(arrays[n]) for n in sorted({k.n, v.n})]
    if tiles:
        shape = (batch, heads, column_tiles, row_tiles, TILE, TILE)
        results.append(_tiles_of_column(jax.ShapeDtypeStruct(shape, d_out.dtype)))
    d_keys = _call(
        functools.partial(_key_kernel, reach, q.length, k.length, k.part, v.part, len(tiles)),
        (column_tiles, heads, batch),
        [
            *(_of_example(plan.in_column), *ids, *views, *of_rows),
            *_of_head([x.swapaxes(2, 3) for x in tiles]),
        ],
        results,
        stages=3 if width < 128 else 2,  # what a GPU's shared memory holds, 99 KB on an L4
    )
    kernel: Callable[..., None] = functools.partial(_query_kernel, reach)
    args = [*ids, *views, *of_rows]
    if tiles:
        *d_keys, d_logits = d_keys
        kernel, args = _query_kernel_of_logits, [k.spec(), _tiles_of_row(d_logits)]
    given = d_keys[:1] if q.n == k.n else []  # its part of queries is still to be written
    (d_q,) = _call(
        functools.partial(kernel, q.length, k.length, len(given)),
        (row_tiles, heads, batch),
        [*map(_all_parts, given), _of_example(plan.in_row), *args],
        [q.spec()],
        stages=3 if width < 128 else 2,
        aliases={0: 0} if given else {},
    )
    d_arrays = (d_q, *d_keys[len(given) :])
    if not tiles:
        return None, d_arrays, None
    _, pull = jax.vjp(lambda x: _by_tiles(x, queries), by_distance_HN)
    return None, d_arrays, *pull(_sum_by_offset(plan, d_logits))


def _means(out, d_out, shifts):
    """Return the weighted mean of each row's gradients, float32 [B, H, Q] padded to tiles."""
    means_BHQ = (out.astype(jnp.float32) * d_out.astype(jnp.float32)).sum(-1).swapaxes(1, 2)
    return jnp.pad(means_BHQ, ((0, 0), (0, 0), (0, shifts.shape[2] - out.shape[1])))


def _sum_by_offset(plan, d_logits):
    """Return the gradients of the tiles of the bias, float32 [H, O, TILE, TILE]."""
    batch, heads, columns, rows, *_ = d_logits.shape
    offsets, places = plan.places.shape
    parts = max(min(SUM_PROGRAMS // offsets, places // SUM_TILES), 1)
    every = (batch, None, columns, rows, TILE, TILE)
    shape = (parts, heads, offsets, TILE, TILE)
    (sums,) = _call(
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


class _View(NamedTuple):
    """Queries, keys or values: a part of an array [B, L, P, H, K], the n-th of all."""

    array: jax.Array
    n: int
    part: int

    @property
    def length(self) -> int:
        return self.array.shape[1]

    def spec(self):
        """Return the array and what a program of head h and example b sees: [L, K]."""
        part, (_, length, _, _, width) = self.part, self.array.shape
        block = pl.BlockSpec((None, length, None, None, width), lambda i, h, b: (b, 0, part, h, 0))
        return self.array, block


def _views(arrays) -> list[_View]:
    return [_View(arrays[n], n, part) for n, part in PLACES[len(arrays)]]


def _of_example(x):
    return x, pl.BlockSpec((None, *x.shape[1:]), lambda i, h, b: (b,) + (0,) * (len(x.shape) - 1))


def _of_head(tiles):
    return [(x, pl.BlockSpec((None, *x.shape[1:]), lambda i, h, b: (h, 0, 0, 0))) for x in tiles]


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


def _all_parts(x):
    _, length, parts, _, width = x.shape
    return x, pl.BlockSpec((None, length, parts, None, width), lambda i, h, b: (b, 0, 0, h, 0))


def _call(kernel, grid, args, results, stages: int, aliases=None) -> Any:
    """Run a kernel; each array comes with what a program sees of it."""
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=[spec for _, spec in args],
        out_specs=[spec for _, spec in results],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x, _ in results],
        input_output_aliases=aliases or {},
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=stages),
        interpret=platform() != "gpu",
    )(*(x for x, _ in args))


def _forward_kernel(reach, queries, keys, bounds, of_query, of_key, q, k, v, *refs):
    *tiles, out, shifts = refs
    i = pl.program_id(0)
    first, end = bounds[i, 0], bounds[i, 1]
    q_rows, ids = _load(q, i, queries), of_query[_at(i)]

    def body(j, carry):
        sums, peaks, totals = carry
        logits = _logits(q_rows, _load(k, j, keys), _tile(tiles, i, j, queries))
        mask = _mask(reach, i, j, ids[:, None], of_key[_at(j)][None, :])
        logits = jnp.where(mask, logits, NEGATIVE)
        higher = jnp.maximum(peaks, logits.max(1))
        shrink = _exponential(peaks, -higher * LOG2_E)
        weights = _exponential(logits, (-higher * LOG2_E)[:, None])
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


def _key_kernel(reach, queries, keys, part_k, part_v, biased, *refs):
    """Compute the gradients of keys, values, and if `biased` logits; tiles are [keys, queries]."""
    bounds, of_query, of_key, q, k, v, d_out, shifts, means, *rest = refs
    tiles, results = rest[:biased], rest[biased:]
    d_k, d_v = results[0], results[0 if part_v else 1]  # a first part is of an array of its own
    j = pl.program_id(0)
    first, end = bounds[j, 0], bounds[j, 1]
    k_rows, v_rows, ids = _load(k, j, keys), _load(v, j, keys), of_key[_at(j)]

    def body(i, carry):
        sum_k, sum_v = carry
        q_rows, d_rows = _load(q, i, queries), _load(d_out, i, queries)
        logits = _logits(k_rows, q_rows, _tile(tiles, i, j, queries))
        weights = _exponential(logits, shifts[_at(i)][None, :])
        mask = _mask(reach, i, j, of_query[_at(i)][None, :], ids[:, None], queries_axis=1)
        weights = jnp.where(mask, weights, 0.0)
        sum_v += _dot(weights.astype(v_rows.dtype), d_rows)
        d_logits = weights * (_dot(v_rows, d_rows.T) - means[_at(i)][None, :])
        d_logits = d_logits.astype(q_rows.dtype)
        if biased:
            results[-1][i] = d_logits
        return sum_k + _dot(d_logits, q_rows), sum_v

    zeros = jnp.zeros(k_rows.shape, jnp.float32)
    sum_k, sum_v = _loop(first, end, body, (zeros, zeros))
    _store(d_k, j, keys, sum_k, part_k)
    _store(d_v, j, keys, sum_v, part_v)


def _query_kernel_of_logits(queries, keys, given, *refs):
    """Compute the gradient of queries from that of logits."""
    bounds, k, d_tiles, d_q = refs[given:]
    i = pl.program_id(0)

    def body(j, sums):
        return sums + _dot(d_tiles[j].T, _load(k, j, keys))

    sums = jnp.zeros((TILE, k.shape[1]), jnp.float32)
    _store(d_q, i, queries, jax.lax.fori_loop(bounds[i, 0], bounds[i, 1], body, sums))


def _query_kernel(reach, queries, keys, given, *refs):
    """Compute the gradient of queries where that of logits is not kept, for want of a bias."""
    bounds, of_query, of_key, q, k, v, d_out, shifts, means, d_q = refs[given:]
    i = pl.program_id(0)
    q_rows, d_rows, ids = _load(q, i, queries), _load(d_out, i, queries), of_query[_at(i)]
    shift, mean = shifts[_at(i)][:, None], means[_at(i)][:, None]

    def body(j, sums):
        k_rows = _load(k, j, keys)
        weights = _exponential(_logits(q_rows, k_rows, None), shift)
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


def _store(ref, block, length: int, rows, part: int | None = None) -> None:
    """Store a block of rows [TILE, K], of one part if the array has several."""
    index = (
        (_at(block), slice(None)) if part is None else (_at(block), jnp.int32(part), slice(None))
    )
    rows = rows.astype(ref.dtype)
    if length % TILE == 0:
        ref[index] = rows
    else:
        mask = jnp.broadcast_to(_inside(block, length), rows.shape)
        plgpu.store(ref.at[index], rows, mask=mask)


def _tile(tiles, i, j, queries: int):
    """Return the tile of the bias for block i of queries and block j of keys, None without."""
    return tiles[0][j - i + (-(-queries // TILE) - 1)] if tiles else None


def _logits(rows, columns, tile):
    """Return float32 logits [rows, columns]."""
    logits = _dot(rows, columns.T)
    return logits if tile is None else _add(logits, tile.astype(jnp.float32))


def _add(logits, tile):
    """Return the sum, by an instruction of its own.

    From a plain sum Triton makes a product that starts with the tile, and does not read it ahead.
    """
    return _by_ptx("add.rn.f32 $0, $1, $2;", jnp.add, logits, tile)


def _exponential(logits, shift):
    """Return 2 ** (logits * LOG2_E + shift) in the two instructions that a GPU has for it.

    Results below 2 ** -126 become 0. To keep them the compiler takes four more instructions.
    """
    log2_e = f"0f{np.float32(LOG2_E).view(np.int32):08X}"
    ptx = f"fma.rn.f32 t, $1, {log2_e}, $2; ex2.approx.ftz.f32 $0, t;"
    plainly = lambda x, y: jnp.exp2(x * LOG2_E + y)
    shift = jnp.broadcast_to(shift, logits.shape)
    return _by_ptx(f"{{ .reg .f32 t; {ptx} }}", plainly, logits, shift)


def _by_ptx(instructions: str, plainly: Callable[[Any, Any], Any], x, y):
    """Return `plainly(x, y)`, on a GPU by PTX that computes float32 $0 of each $1 and $2."""
    if platform() != "gpu":
        return plainly(x, y)
    like = jax.ShapeDtypeStruct(x.shape, jnp.float32)
    (found,) = plgpu.elementwise_inline_asm(
        instructions, args=[x, y], constraints="=f,f,f", pack=1, result_shape_dtypes=[like]
    )
    return found


def _mask(reach, i, j, of_query, of_key, queries_axis=0):
    mask, within = of_query == of_key, reach.of_pairs(i, j, queries_axis)
    return mask if within is None else mask & within


def _dot(a, b):
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _tiles(by_distance_HN, q: _View, k: _View) -> list[jax.Array]:
    """Return the tiles of the bias in the dtype of queries, nothing without a bias."""
    if by_distance_HN is None:
        return []
    return [_by_tiles(by_distance_HN, q.length).astype(q.array.dtype)]


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


def _plan(of_query, of_key, reach: Reach) -> Plan:
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
