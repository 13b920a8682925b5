"""Decoding of several batches at once, whose rows that are not done go on together.

  pool = Pool(model, partitioner)
  results = pool.decode(params, batches)      # {place: (ids [T], {'scores': …})} of all examples

A batch goes on until its longest output ends, and most of its rows have ended long before. So the
batches of a pool are suspended every few places, and where fewer would hold all rows that are left,
the thinnest is taken apart and its rows stand in for others that have ended. All are at one place,
and what a row decodes does not depend on those beside it.

    four batches of four rows, x has more to say      three steps on
    xxxx  x--x  xx--  --x-      ->  xxxx  xxxx        ->  …

For a single device: elsewhere rows would have to travel.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x.partitioning import PjitPartitioner

MOST_BATCHES, MOST_BYTES = 8, 2 * 2**30  # of a pool: what is kept of its batches fills memory
PARTS = 8  # of the targets' length, after which batches are suspended

# A batch, the examples' places of its rows (fewer where it is filled up), a number for its draws.
Batch = tuple[Mapping[str, jax.Array], Sequence[int], np.uint32]


class Pool:
    """Programs that begin, go on and move rows, compiled once for each shape of a batch.

    Args:
      model: see `models.EncoderDecoderModel`; one that `suspends`.
      partitioner: over one device.
    """

    def __init__(self, model: Any, partitioner: PjitPartitioner):
        def begin(params, batch, number):
            rng = jax.random.fold_in(jax.random.key(0), number)
            with partitioner.activations():
                return model.predict_batch_with_aux(params, batch, decode_rng=rng, until=0)[1]

        def go_on(params, rest, shape, until):
            with partitioner.activations():
                return model.predict_batch_with_aux(params, shape, go_on=rest, until=until)

        self._begin = jax.jit(begin)
        self._go_on = jax.jit(go_on, donate_argnums=1)
        self._move = jax.jit(_moved, donate_argnums=0)

    def decode(self, params: Any, batches: Iterable[Batch]) -> dict[int, Any]:
        """Results by place of the example: pairs of ids and a dict of values."""
        results = {}
        for pool in self._pools(params, batches):
            rows, length = pool[0].shape
            for until in itertools.count(step := -(-length // PARTS), step):
                pending = [part.advanced(self._go_on, params, until) for part in pool]
                for part, (output, unsettled) in zip(pool, pending, strict=True):
                    results |= part.settled(output, unsettled)
                if not (pool := [part for part in pool if part.places]):
                    break
                pool = _merged(pool, rows, self._move)
        return results

    def _pools(self, params: Any, batches: Iterable[Batch]) -> Iterator[list["_Part"]]:
        """Batches begun, of the same shape, as many as may be kept at a time."""
        pool, most, before = [], 0, None
        for batch, places, number in batches:
            shapes = jax.tree.map(jnp.shape, batch)
            if pool and (len(pool) == most or shapes != before):
                yield pool
                pool = []
            part, before = _Part(batch, places, self._begin(params, batch, number)), shapes
            if not pool:
                kept = sum(x.nbytes for x in jax.tree.leaves(part.rest) if jnp.ndim(x))
                most = min(MOST_BATCHES, max(1, MOST_BYTES // kept))
            pool.append(part)
        if pool:
            yield pool

    def lower(self, params: Any, batch: Mapping[str, Any]) -> Iterator[jax.stages.Lowered]:
        """The programs for batches of this shape, given as ShapeDtypeStructs."""
        begin = self._begin.lower(params, batch, np.uint32(0))
        yield begin
        struct = lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
        rest = jax.tree.map(struct, begin.out_info, begin.compile().output_shardings)
        yield self._go_on.lower(params, rest, _shape_alone(batch), np.int32(0))
        pairs = np.zeros((self._rows(batch), 2), np.int32)
        yield self._move.lower(rest, rest, pairs, np.int32(0))

    @staticmethod
    def _rows(batch: Mapping[str, Any]) -> int:
        return batch["decoder_input_tokens"].shape[0]


class _Part:
    """A batch on its way: the examples that its rows belong to, and what it goes on with."""

    def __init__(self, batch: Mapping[str, jax.Array], places: Sequence[int], rest: Any):
        self.targets = _shape_alone(batch)
        self.shape = batch["decoder_input_tokens"].shape
        self.places, self.rest = dict(enumerate(places)), rest  # places by row

    def advanced(self, go_on, params, until: int):
        """Begins to decode to the place `until`; gives what will be its output."""
        output, self.rest, unsettled = go_on(params, self.rest, self.targets, np.int32(until))
        return output, unsettled

    def settled(self, output: Any, unsettled: jax.Array) -> dict[int, Any]:
        """The results of rows that have come to their end, which are then no longer its."""
        left = np.asarray(unsettled)
        done = {row: place for row, place in self.places.items() if not left[row]}
        self.places = {row: place for row, place in self.places.items() if left[row]}
        output = jax.device_get(output) if done else None
        row_of = lambda row: jax.tree.map(lambda x: x[row], output)
        return {place: row_of(row) for row, place in done.items()}


def _merged(pool: list[_Part], rows: int, move) -> list[_Part]:
    """The same rows in as few batches as hold them."""
    pool = sorted(pool, key=lambda part: -len(part.places))
    while len(pool) > -(-sum(len(part.places) for part in pool) // rows):
        giver = pool.pop()
        giving = list(giver.places.items())
        for taker in pool:
            free = [row for row in range(rows) if row not in taker.places]
            pairs = list(zip([row for row, _ in giving], free, strict=False))
            if not pairs:
                continue
            padded = np.zeros((rows, 2), np.int32)
            padded[: len(pairs)] = pairs
            taker.rest = move(taker.rest, giver.rest, padded, np.int32(len(pairs)))
            taker.places |= {to: giver.places[row] for row, to in pairs}
            giving = giving[len(pairs) :]
    return pool


def _moved(into: Any, source: Any, pairs: jax.Array, count: jax.Array) -> Any:
    """`into` with `count` of its rows taken from `source`: (row there, row here) of `pairs`."""
    rows = pairs.shape[0]
    is_array = lambda x: jnp.ndim(x) > 0  # what has no rows is the same in both
    split = lambda x: x.reshape(rows, -1, *x.shape[1:])

    def body(i, arrays):
        there, here = pairs[i]
        pick = lambda x: jax.lax.dynamic_index_in_dim(split(x), there, keepdims=False)
        put = functools.partial(jax.lax.dynamic_update_index_in_dim, index=here, axis=0)
        return [
            put(split(to), pick(x)).reshape(to.shape) for to, x in zip(arrays, theirs, strict=True)
        ]

    leaves, tree = jax.tree.flatten(into)
    theirs = [x for x in jax.tree.leaves(source) if is_array(x)]
    moved = iter(jax.lax.fori_loop(0, count, body, [x for x in leaves if is_array(x)]))
    return jax.tree.unflatten(tree, [next(moved) if is_array(x) else x for x in leaves])


def _shape_alone(batch: Mapping[str, Any]) -> dict[str, Any]:
    """What tells the targets' shape, which is all that is looked at of a batch that goes on."""
    return {"decoder_input_tokens": batch["decoder_input_tokens"]}
