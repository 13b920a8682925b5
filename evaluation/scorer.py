"""Probabilities that a model gives to targets, and whether no other id has more.

    scorer = Scorer(config, params)                           # of a T5
    scores = scorer.score([EncodedExample(inputs=[7, 99, 1], targets=[99, 8], ends=(1, 98))])
    scorer = MaskScorer(module, params)                       # of an encoder
    scores = scorer.score([MaskedExample(ids=[2, 4, 9, 3], places=[1], targets=[8])])

Examples of like lengths are batched, so that few shapes are compiled.
"""

import functools
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from common.errors import UserError
from t5x.examples.encoder import network as encoder_network
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
    """Of a target of T ids: float32 [T] and bool [T], and what is said of the end after it.

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

    def score(self, examples: Sequence[EncodedExample]) -> list[Scores]:
        """Return the scores of examples, in their order.

        Raises:
          UserError: an example is longer than 8,192 ids.
        """
        sizes = [(padded(len(e.inputs)), 2, padded(len(e.targets) + 1)) for e in examples]
        rows = [(e.inputs, (*e.ends, _NO_END)[:2], e.targets) for e in examples]
        run = functools.partial(self._run, self._params)
        found = in_batches(rows, sizes, self._vocab_size, run)
        return [
            Scores(log_probs[:n], is_best[:n], float(ends[n]), int(best[n]))
            for n, (log_probs, is_best, ends, best) in zip(
                (len(e.targets) for e in examples), found, strict=True
            )
        ]


def padded(length: int) -> int:
    """Return the length that an example of `length` ids is padded to.

    Raises:
      UserError: it is longer than 8,192.
    """
    for each in _LENGTHS:
        if length <= each:
            return each
    raise UserError(
        f"an example has {length:,} ids, but may have at most {_LENGTHS[-1]:,}: set "
        "--max_chars to less"
    )


def in_batches(
    rows: Sequence[tuple[Sequence[int], ...]],
    sizes: Sequence[tuple[int, ...]],
    vocab_size: int,
    run: Callable[..., Sequence[jax.Array]],
) -> list[list[np.ndarray]]:
    """Return what `run` makes of each row, of batches of rows of equal padded sizes.

    Args:
      rows: sequences of ids of each example, which `run` gets as arrays [B, length].
      sizes: their padded lengths; the last one is the number of places that logits are made of.
      vocab_size: logits of a place.
      run: returns arrays [B, ...].
    """
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    found: dict[int, list[np.ndarray]] = {}
    while order:
        size = sizes[order[0]]
        most = max(1, min(_MOST_ROWS, _LOGITS // (size[-1] * vocab_size)))
        here = [i for i in order[:most] if sizes[i] == size]
        count = min(most, 1 << (len(here) - 1).bit_length())
        arrays = [np.zeros((count, length), np.int32) for length in size]
        for row, i in enumerate(here):
            for array, ids in zip(arrays, rows[i], strict=True):
                array[row, : len(ids)] = ids
        results = jax.device_get(run(*arrays))
        found |= {i: [array[row] for array in results] for row, i in enumerate(here)}
        order = order[len(here) :]
    return [found[i] for i in range(len(rows))]


@functools.cache
def _compiled(config: network.T5Config) -> Callable:
    module = network.Transformer(config)

    @jax.jit
    def run(params, inputs, ends, targets):
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


@functools.cache
def _masked(module: encoder_network.Bert | encoder_network.ModernBert) -> Callable:
    @jax.jit
    def run(params, ids_BL, segments_BL, places_BP, targets_BP):
        bound = module.bind({"params": params})
        encoded_BLD = bound.encode(ids_BL, segments_BL, enable_dropout=False)
        asked_BPD = jnp.take_along_axis(encoded_BLD, places_BP[..., None], axis=1)
        log_probs = jax.nn.log_softmax(bound.predict(asked_BPD))
        found = jnp.take_along_axis(log_probs, targets_BP[..., None], axis=-1)[..., 0]
        return found, jnp.argmax(log_probs, axis=-1) == targets_BP

    return run


class MaskedExample(NamedTuple):
    """Ids with masks, the places that are guessed, and their ids."""

    ids: list[int]
    places: list[int]
    targets: list[int]


class MaskScorer:
    """A network of `t5x.examples.encoder` with nested float32 `params`."""

    def __init__(self, module: encoder_network.Bert | encoder_network.ModernBert, params: Any):
        self._max_length, self._vocab_size = module.config.max_length, module.config.vocab_size
        self._run = functools.partial(_masked(module), jax.tree.map(jnp.asarray, params))

    def score(self, examples: Sequence[MaskedExample]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the logarithms of the targets' probabilities, float32 [P], and bool [P].

        The second says whether no id has more.

        Raises:
          UserError: an example is longer than the model.
        """
        longest = max((len(each.ids) for each in examples), default=0)
        if longest > self._max_length:
            raise UserError(
                f"a text has {longest:,} ids, but the model reads at most {self._max_length:,}: "
                "set --max_chars to less"
            )
        rows, sizes = [], []
        for ids, places, targets in examples:
            length = min(padded(len(ids)), self._max_length)
            asked = 1 << (len(places) - 1).bit_length()
            rows.append((ids, [1] * len(ids), places, targets))
            sizes.append((length, length, asked, asked))
        found = in_batches(rows, sizes, self._vocab_size, self._run)
        counts = [len(each.places) for each in examples]
        return [(a[:n], b[:n]) for n, (a, b) in zip(counts, found, strict=True)]
