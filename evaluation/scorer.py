"""Probabilities that a T5 gives to targets, and whether greedy decoding would write them.

    scorer = Scorer(config, params)
    scores = scorer.score([EncodedExample(inputs=[7, 99, 1], targets=[99, 8], ends=(1, 98))])

Examples of like lengths are batched, so that few shapes are compiled.
"""

import functools
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x.examples.t5 import network

_LOGITS = 1 << 26  # elements of the logits of a batch: 256 MB
_MOST_ROWS = 64
_NO_END = -1
# Few, since each pair of them is compiled.
_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class EncodedExample(NamedTuple):
    """Ids of an input, with its eos, and of a target, without; both at least one.

    `ends` are one or two ids that may follow the target.
    """

    inputs: list[int]
    targets: list[int]
    ends: tuple[int, ...]


class Scores(NamedTuple):
    """Of a target of T ids: float32 [T] and bool [T], and the same of an end after it, [T + 1].

    `log_probs[t]` is the natural logarithm of the probability of `targets[t]` after those before
    it, `is_best[t]` whether no id has a higher one. `end_log_prob` is the logarithm of the
    probability that one of the example's `ends` follows the target, `next_id` the most probable id
    there.
    """

    log_probs: np.ndarray
    is_best: np.ndarray
    end_log_prob: float
    next_id: int

    def is_written(self, ends: Container[int]) -> bool:
        """Return whether greedy decoding, given the first id, writes the rest and then an end."""
        return bool(self.is_best[1:].all()) and self.next_id in ends


class Scorer:
    """A T5 of nested float32 `params`."""

    def __init__(self, config: network.T5Config, params: Any):
        self._params = jax.tree.map(jnp.asarray, params)
        self._vocab_size = config.vocab_size
        self._run = _compiled(config)

    def score(
        self, examples: Sequence[EncodedExample], progress: Callable[[int], None] | None = None
    ) -> list[Scores]:
        """Return the scores of examples, in their order.

        Raises:
          ValueError: an example is longer than 8,192 ids.
        """
        sizes = [(padded(len(e.inputs)), padded(len(e.targets) + 1)) for e in examples]
        found: dict[int, Scores] = {}
        for (inputs_length, length), rows, here in batches(
            sizes, lambda size: size[1] * self._vocab_size
        ):
            inputs = np.zeros((rows, inputs_length), np.int32)
            targets = np.zeros((rows, length), np.int32)
            ends = np.full((rows, 2), _NO_END, np.int32)
            for row, i in enumerate(here):
                inputs[row, : len(examples[i].inputs)] = examples[i].inputs
                targets[row, : len(examples[i].targets)] = examples[i].targets
                ends[row, : len(examples[i].ends)] = examples[i].ends
            arrays = jax.device_get(self._run(self._params, inputs, targets, ends))
            for row, i in enumerate(here):
                found[i] = _scores(len(examples[i].targets), *(array[row] for array in arrays))
            if progress:
                progress(len(found))
        return [found[i] for i in range(len(examples))]


def padded(length: int) -> int:
    """Return the length that an example of `length` ids is padded to.

    Raises:
      ValueError: it is longer than 8,192.
    """
    for each in _LENGTHS:
        if length <= each:
            return each
    raise ValueError(
        f"an example has {length:,} ids, but may have at most {_LENGTHS[-1]:,}: set "
        "--max_chars to less"
    )


Size = tuple[int, int]


def batches(
    sizes: Sequence[Size], logits: Callable[[Size], int]
) -> Iterator[tuple[Size, int, list[int]]]:
    """Yield (size, rows, numbers of the examples) of batches of examples of equal padded size.

    Args:
      sizes: of each example.
      logits: how many a row of a size has.
    """
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    while order:
        size = sizes[order[0]]
        rows = max(1, min(_MOST_ROWS, _LOGITS // logits(size)))
        here = [i for i in order[:rows] if sizes[i] == size]
        yield size, min(rows, 1 << (len(here) - 1).bit_length()), here
        order = order[len(here) :]


def _scores(length: int, log_probs, is_best, ends, best) -> Scores:
    return Scores(log_probs[:length], is_best[:length], float(ends[length]), int(best[length]))


@functools.cache
def _compiled(config: network.T5Config) -> Callable:
    module = network.Transformer(config)

    @jax.jit
    def run(params, inputs, targets, ends):
        previous = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))
        # The position after a target must be seen too, so that no position counts as padding. No
        # earlier one sees it.
        seen = jnp.ones_like(targets)
        logits = module.apply({"params": params}, inputs, previous, seen, enable_dropout=False)
        log_probs = jax.nn.log_softmax(jnp.asarray(logits, jnp.float32))
        at_targets = jnp.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
        best = jnp.argmax(log_probs, axis=-1)
        ends = ends[:, None, :]
        of_ends = jnp.take_along_axis(log_probs, jnp.maximum(ends, 0), axis=-1)
        of_ends = jnp.where(ends == _NO_END, -jnp.inf, of_ends)
        return at_targets, best == targets, jax.nn.logsumexp(of_ends, axis=-1), best

    return run
