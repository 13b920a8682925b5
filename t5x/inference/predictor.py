"""Decodes and scores many examples: full batches of one shape, results in order."""

import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from t5x.array_types import Batch, Params
from t5x.partitioning import PjitPartitioner, gathered

MODES = ("predict", "score", "predict_with_aux")
Example = Mapping[str, np.ndarray]
# A batch, the indices of its examples (fewer than its rows if it is padded), and a sampling seed.
NumberedBatch = tuple[Batch, Sequence[int], np.uint32]


class Predictor:
    """Applies a model's decoding or scoring to examples, `batch_size` at a time.

    Every host passes all examples, computes its rows of each batch and returns all results. With
    several `length_buckets`, examples of similar input length share a batch, whose inputs are
    padded to the shortest of that many lengths. So short inputs do not pay for long ones, and at
    most that many programs are compiled. Padding is masked, so results do not depend on buckets.
    """

    def __init__(
        self, model: Any, partitioner: PjitPartitioner, batch_size: int, length_buckets: int = 1
    ):
        partitioner.check_batch(batch_size, None, "utils.DatasetConfig.batch_size")
        self.model, self.partitioner, self.batch_size = model, partitioner, batch_size
        self.length_buckets = length_buckets

    @functools.cached_property
    def _steps(self) -> dict[str, Any]:
        def compiled(function):
            def traced(params, batch, seed):
                rng = jax.random.fold_in(jax.random.key(0), seed)
                with self.partitioner.activations():
                    return function(params, batch, rng)

            return jax.jit(traced, out_shardings=self.partitioner.replicated)

        model = self.model
        return {
            "decoding_params": jax.jit(getattr(model, "decoding_params", lambda params: params)),
            "predict": compiled(model.predict_batch),
            "score": compiled(lambda params, batch, _: model.score_batch(params, batch)),
            "predict_with_aux": compiled(
                lambda params, batch, rng: model.predict_batch_with_aux(params, batch, rng)
            ),
        }

    def __call__(
        self,
        mode: str,
        params: Params,
        examples: Iterable[Example],
        passing: Callable[[Iterable], Iterable] = iter,
    ) -> list[Any]:
        """Return the results of `mode` for each example, in their order.

        A result is int32 [T] for 'predict', a float32 for 'score', and a pair of ids and a dict for
        'predict_with_aux'. `passing` wraps the iteration over batches.
        """
        # Gathered along `data` once, as otherwise every decoded token would wait for a gather.
        params = jax.device_put(params, jax.tree.map(lambda x: gathered(x.sharding), params))
        if mode != "score":
            params = self._steps["decoding_params"](params)
        results: dict[int, Any] = {}
        pending = None
        for batch, indices, seed in passing(self.batches(examples)):
            started = self._steps[mode](params, batch, seed), indices
            if pending:  # read while the next batch is computed
                results |= _rows(*pending)
            pending = started
        results |= _rows(*pending) if pending else {}
        return [results[index] for index in range(len(results))]

    def lower(
        self, mode: str, params: Any, example: Mapping[str, jax.ShapeDtypeStruct]
    ) -> Iterator[jax.stages.Lowered]:
        """Yield `mode`'s programs for examples and `params` of these shapes, for each bucket."""
        struct = lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
        params = jax.tree.map(lambda x: struct(x, gathered(x.sharding)), params)
        if mode != "score":
            lowered = self._steps["decoding_params"].lower(params)
            shardings = lowered.compile().output_shardings
            params = jax.tree.map(struct, lowered.out_info, shardings)
        rows = self.partitioner.batch_sharding
        longest = _padded_length(example)
        step = _bucket_size(longest, self.length_buckets)
        for length in [*range(step, longest, step), longest]:
            batch = {
                name: jax.ShapeDtypeStruct((self.batch_size, *shape), x.dtype, sharding=rows)
                for name, x in example.items()
                for shape in [(length, *x.shape[1:]) if _is_cut(name, x, longest) else x.shape]
            }
            yield self._steps[mode].lower(params, batch, np.uint32(0))

    def batches(self, examples: Iterable[Example]) -> Iterator[NumberedBatch]:
        """Yield global batches, the indices of their examples, and a seed.

        The seed is a checksum of the inputs, so equal inputs are sampled equally. The last batch is
        padded with copies of its last row, which finish decoding together with that row.
        """
        first, end = self.partitioner.host_rows(self.batch_size)
        sharding = self.partitioner.batch_sharding
        for group, indices in self._groups(examples):
            batch = {}
            for name in group[0]:
                rows = np.stack([np.asarray(example[name]) for example in group])
                missing = self.batch_size - len(group)
                rows = np.pad(rows, [(0, missing), *[(0, 0)] * (rows.ndim - 1)], mode="edge")
                rows = rows[first:end]
                batch[name] = jax.make_array_from_process_local_data(sharding, rows)
            inputs = group[0].keys() & {"encoder_input_tokens"}
            content = b"".join(
                np.asarray(example[name]).tobytes() for example in group for name in inputs
            )
            yield batch, indices, np.uint32(zlib.crc32(content))

    def _groups(self, examples: Iterable[Example]) -> Iterator[tuple[list[Example], list[int]]]:
        """Yield the examples of each batch, their inputs cut to its bucket, and their indices."""
        numbered: Iterator[tuple[int, Example]] = enumerate(examples)
        if self.length_buckets > 1:
            numbered = iter(sorted(numbered, key=lambda pair: _length(pair[1]), reverse=True))
        while pairs := list(itertools.islice(numbered, self.batch_size)):
            indices, group = [i for i, _ in pairs], [example for _, example in pairs]
            if self.length_buckets > 1:
                group = _cut(group, self.length_buckets)
            yield group, indices


def _rows(output: Any, indices: Sequence[int]) -> dict[int, Any]:
    output = jax.device_get(output)
    return {index: jax.tree.map(lambda x, i=i: x[i], output) for i, index in enumerate(indices)}


def _length(example: Example) -> int:
    """Return the number of input tokens up to the last that is not padding."""
    ids = example.get("encoder_input_tokens", ())
    return int(np.max(np.nonzero(ids)[0], initial=-1)) + 1


def _cut(group: list[Example], buckets: int) -> list[Example]:
    """Return the examples with the encoder's features cut to the least bucket that fits all."""
    longest = _padded_length(group[0])
    step = _bucket_size(longest, buckets)
    length = min(longest, step * max(1, -(-max(map(_length, group)) // step)))
    return [
        {k: x[:length] if _is_cut(k, x, longest) else x for k, x in example.items()}
        for example in group
    ]


def _bucket_size(longest: int, buckets: int) -> int:
    """Return the longest length divided by the buckets, rounded up to a multiple of 8."""
    return 8 * max(1, -(-longest // (8 * buckets)))


def _padded_length(example: Mapping[str, Any]) -> int:
    return next(iter(np.shape(example.get("encoder_input_tokens", ()))), 0)


def _is_cut(name: str, x: Any, longest: int) -> bool:
    return name.startswith("encoder_") and np.shape(x)[:1] == (longest,)
