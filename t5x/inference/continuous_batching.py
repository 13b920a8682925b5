"""Decoding of several batches as one, which grows thinner as its rows come to their end.

  pool = Pool(model, partitioner)
  results = pool.decode(params, batches)      # {place: (ids [T], {'scores': …})} of all examples

A step of few rows takes nearly as long as one of many, most of which goes into reading the weights.
So batches are encoded one by one, and decoded together, as many as `MOST_BATCHES` and `MOST_BYTES`
allow. Every few places decoding is suspended; if half of the size would hold the rows
that are left, they go on in a smaller one. What a row decodes does not depend on those beside it.

For a single device: elsewhere rows would have to travel.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x.partitioning import PjitPartitioner

MOST_BATCHES, MOST_BYTES = 8, 2 * 2**30  # of a pool; a power of two
PARTS = 8  # of the targets' length, after which decoding is suspended

# A batch, the examples' places of its rows (fewer where it is filled up), a number for its draws.
Batch = tuple[Mapping[str, jax.Array], Sequence[int], np.uint32]


class Pool:
    """Programs that begin a batch, gather rows of several, and go on; compiled once a shape.

    Args:
      model: see `models.EncoderDecoderModel`; one that `suspends`.
      partitioner: over one device.
    """

    def __init__(self, model: Any, partitioner: PjitPartitioner):
        def begin(params, batch, number):
            rng = jax.random.fold_in(jax.random.key(0), number)
            with partitioner.activations():
                return model.predict_batch_with_aux(params, batch, decode_rng=rng, until=0)[1]

        def go_on(params, rest, targets, until):
            batch = {"decoder_input_tokens": targets}  # whose shape is all that is looked at
            with partitioner.activations():
                return model.predict_batch_with_aux(params, batch, go_on=rest, until=until)

        self._begin = jax.jit(begin)
        self._go_on = jax.jit(go_on, donate_argnums=1)
        self._gather = jax.jit(_gathered, static_argnums=2)

    def decode(self, params: Any, batches: Iterable[Batch]) -> dict[int, Any]:
        """Results by place of the example: pairs of ids and a dict of values."""
        results = {}
        shapes = lambda batch: {name: x.shape for name, x in batch[0].items()}
        for _, alike in itertools.groupby(batches, shapes):
            begun = ((b, places, self._begin(params, b, number)) for b, places, number in alike)
            for batch, places, rest in begun:
                pool = [(places, rest)]
                pool += ((p, r) for _, p, r in itertools.islice(begun, _most(rest) - 1))
                results |= self._decoded(params, batch["decoder_input_tokens"].shape, pool)
        return results

    def _decoded(self, params: Any, shape: tuple[int, int], pool: list[tuple]) -> dict[int, Any]:
        """Results of a pool: places of the examples and what was begun, for batches of `shape`."""
        rows, length = shape
        going = {
            i * rows + row: place for i, (places, _) in enumerate(pool)
            for row, place in enumerate(places)
        }  # fmt: skip
        size, rests, results = rows * len(pool), tuple(rest for _, rest in pool), {}
        for until in itertools.count(step := -(-length // PARTS), step):
            if len(rests) > 1 or _size(len(going), rows) < size:
                kept = _kept(going, rows)
                rests = (self._gather(rests, kept, size),)
                size, going = len(kept), dict(enumerate(going.values()))
            targets = np.zeros((size, length), np.int32)
            output, rest, unsettled = self._go_on(params, *rests, targets, np.int32(until))
            rests, left = (rest,), np.asarray(unsettled)
            if done := {row: place for row, place in going.items() if not left[row]}:
                output = jax.device_get(output)
                row_of = lambda row, output=output: jax.tree.map(lambda x: x[row], output)
                results |= {place: row_of(row) for row, place in done.items()}
            going = {row: place for row, place in going.items() if left[row]}
            if not going:
                return results

    def lower(self, params: Any, batch: Mapping[str, Any]) -> Iterator[jax.stages.Lowered]:
        """The programs for batches of this shape, given as ShapeDtypeStructs."""
        rows, length = batch["decoder_input_tokens"].shape
        begin = self._begin.lower(params, batch, np.uint32(0))
        yield begin
        struct = lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
        out = lambda lowered: jax.tree.map(
            struct, lowered.out_info, lowered.compile().output_shardings
        )
        rests = {rows: out(begin)}
        for batches in range(2, _most(rests[rows]) + 1):
            kept = _kept(range(batches * rows), rows)
            gather = self._gather.lower((rests[rows],) * batches, kept, batches * rows)
            yield gather
            rests[len(kept)] = out(gather)
        for size, rest in rests.items():
            targets = np.zeros((size, length), np.int32)
            yield self._go_on.lower(params, rest, targets, np.int32(0))
            for smaller in rests:
                if smaller < size:
                    yield self._gather.lower((rest,), np.zeros(smaller, np.int32), size)


def _most(rest: Any) -> int:
    """Batches that go together: a power of two."""
    arrays = [x for x in jax.tree.leaves(rest) if jnp.ndim(x)]
    kept = sum(x.size * x.dtype.itemsize for x in arrays)
    return min(MOST_BATCHES, 1 << max(0, (MOST_BYTES // kept).bit_length() - 1))


def _size(count: int, rows: int) -> int:
    """Rows of the program that goes on with so many: those of a batch, doubled until they do."""
    return rows << max(0, (-(-count // rows) - 1).bit_length())


def _kept(going: Iterable[int], rows: int) -> np.ndarray:
    """These rows, the last again and again up to a size that there is a program for; int32."""
    kept = np.fromiter(going, np.int32)
    return np.pad(kept, (0, _size(len(kept), rows) - len(kept)), mode="edge")


def _gathered(rests: Sequence[Any], kept: jax.Array, size: int) -> Any:
    """The rows `kept` of those that batches hold, `size` in all."""

    def gathered(*parts):
        if not jnp.ndim(parts[0]):  # what has no rows is the same in all
            return parts[0]
        whole = jnp.concatenate(parts)
        split = whole.reshape(size, -1, *whole.shape[1:])  # the decodes of a row
        return jnp.take(split, kept, axis=0).reshape(-1, *whole.shape[1:])

    return jax.tree.map(gathered, *rests)
