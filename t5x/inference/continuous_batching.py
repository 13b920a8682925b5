"""Continuous batching: decodes several batches together and drops finished rows.

  batcher = ContinuousBatcher(model, partitioner)
  results = batcher.decode(params, batches)      # {index: (ids [T], {'scores': …})} of all examples

A step of few rows takes nearly as long as one of many, since most of it is reading the weights. So
batches are encoded one by one and decoded together, as many as `MAX_BATCHES` and `MAX_BYTES` allow.
Every few positions decoding pauses, and if half as many rows suffice for the unfinished ones, these
resume in a smaller program. A row's result does not depend on the rows beside it.

On two cores this made 1.36 times the tokens/s of transformers' `generate` into 2.0 times
(benchmarks/README.md). It works on a single device: on several, rows would have to move.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x.array_types import Batch, Params, PyTree
from t5x.decoding import Pause
from t5x.partitioning import PjitPartitioner

MAX_BATCHES, MAX_BYTES = 8, 2 * 2**30  # decoded together; a power of two
PAUSES = 8  # per target length

# A batch, the indices of its examples (fewer than rows if it is padded), and the seed of its draws.
NumberedBatch = tuple[Batch, Sequence[int], np.uint32]


class ContinuousBatcher:
    """Programs that start, gather and resume batches of a model that `pauses`, on one device."""

    def __init__(self, model: Any, partitioner: PjitPartitioner):
        def start(params, batch, seed):
            rng = jax.random.fold_in(jax.random.key(0), seed)
            with partitioner.activations():
                return model.predict_batch_with_aux(params, batch, rng, pause=Pause(0)).state

        def resume(params, state, targets, until):
            batch = {"decoder_input_tokens": targets}  # only its shape is used
            with partitioner.activations():
                found = model.predict_batch_with_aux(params, batch, pause=Pause(until, state))
            return (found.decodes, {"scores": found.scores}), found.state, found.unfinished

        self._start = jax.jit(start)
        self._resume = jax.jit(resume, donate_argnums=1)
        self._gather = jax.jit(_gather, static_argnums=2)

    def decode(self, params: Params, batches: Iterable[NumberedBatch]) -> dict[int, Any]:
        """Return results by index of the example: pairs of ids and a dict of values."""
        results: dict[int, Any] = {}
        shapes = lambda batch: {name: x.shape for name, x in batch[0].items()}
        for _, alike in itertools.groupby(batches, shapes):
            started = ((b, indices, self._start(params, b, seed)) for b, indices, seed in alike)
            for batch, indices, state in started:
                more = itertools.islice(started, _max_batches(state) - 1)
                group = [(indices, state), *((i, s) for _, i, s in more)]
                targets_shape = batch["decoder_input_tokens"].shape
                results |= self._decode_group(params, targets_shape, group)
        return results

    def _decode_group(
        self, params: Params, shape: tuple[int, ...], group: list[tuple]
    ) -> dict[int, Any]:
        """Return the results of started batches of `shape`: pairs of indices and state."""
        rows, length = shape
        running = {
            i * rows + row: index
            for i, (indices, _) in enumerate(group)
            for row, index in enumerate(indices)
        }
        states, size = tuple(state for _, state in group), rows * len(group)
        results: dict[int, Any] = {}
        until = 0
        while running:
            until += -(-length // PAUSES)
            if len(states) > 1 or _size(len(running), rows) < size:
                kept = _padded_rows(running, rows)
                states = (self._gather(states, kept, size),)
                size, running = len(kept), dict(enumerate(running.values()))
            targets = np.zeros((size, length), np.int32)
            output, state, unfinished = self._resume(params, *states, targets, np.int32(until))
            states, unfinished = (state,), np.asarray(unfinished)
            if done := {row: index for row, index in running.items() if not unfinished[row]}:
                output = jax.device_get(output)
                for row, index in done.items():
                    results[index] = jax.tree.map(lambda x, row=row: x[row], output)
            running = {row: index for row, index in running.items() if unfinished[row]}
        return results

    def lower(self, params: Params, batch: Mapping[str, Any]) -> Iterator[jax.stages.Lowered]:
        """Yield the programs for batches of this shape, given as ShapeDtypeStructs."""
        rows, length = batch["decoder_input_tokens"].shape
        start = self._start.lower(params, batch, np.uint32(0))
        yield start
        struct = lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
        shardings = lambda lowered: lowered.compile().output_shardings
        outputs = lambda lowered: jax.tree.map(struct, lowered.out_info, shardings(lowered))
        states = {rows: outputs(start)}
        for batches in range(2, _max_batches(states[rows]) + 1):
            kept = _padded_rows(range(batches * rows), rows)
            gather = self._gather.lower((states[rows],) * batches, kept, batches * rows)
            yield gather
            states[len(kept)] = outputs(gather)
        for size, state in states.items():
            targets = np.zeros((size, length), np.int32)
            yield self._resume.lower(params, state, targets, np.int32(0))
            for smaller in states:
                if smaller < size:
                    yield self._gather.lower((state,), np.zeros(smaller, np.int32), size)


def _max_batches(state: PyTree) -> int:
    """Return how many batches are decoded together: a power of two."""
    arrays = [x for x in jax.tree.leaves(state) if jnp.ndim(x)]
    size = sum(x.size * x.dtype.itemsize for x in arrays)
    return min(MAX_BATCHES, 1 << max(0, (MAX_BYTES // size).bit_length() - 1))


def _size(count: int, rows: int) -> int:
    """Return the rows of the program for `count`: those of a batch, doubled until they suffice."""
    return rows << max(0, (-(-count // rows) - 1).bit_length())


def _padded_rows(running: Iterable[int], rows: int) -> np.ndarray:
    """Return these row numbers int32, the last repeated up to the size of a program."""
    kept = np.fromiter(running, np.int32)
    return np.pad(kept, (0, _size(len(kept), rows) - len(kept)), mode="edge")


def _gather(states: Sequence[PyTree], kept: jax.Array, size: int) -> PyTree:
    """Return the rows `kept` of the `size` rows that the states of several batches hold."""

    def gather(*parts):
        if not jnp.ndim(parts[0]):  # has no rows and is the same in all
            return parts[0]
        joined = jnp.concatenate(parts)
        by_row = joined.reshape(size, -1, *joined.shape[1:])  # the decodes of a row together
        return jnp.take(by_row, kept, axis=0).reshape(-1, *joined.shape[1:])

    return jax.tree.map(gather, *states)
