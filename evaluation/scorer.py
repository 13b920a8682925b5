"""Scores targets by a network: their probability, and whether greedy decoding gives them.

    scorer = Scorer(module, params)                           # a T5, say
    scorer.score([EncodedExample([7, 99, 1], [99, 8], 1, (1, 98), frozenset({1, 98}))])
    scorer = MaskScorer(module, params)                       # an encoder
    scorer.score([MaskedExample(ids=[2, 4, 9, 3], places=[1], targets=[8])])

Examples of like lengths are batched, so that few shapes are compiled.
"""

import functools
from collections.abc import Callable, Sequence
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


class Guess(NamedTuple):
    """The natural logarithm of the probability of targets, and whether the model writes them."""

    log_prob: float
    is_written: bool


class EncodedExample(NamedTuple):
    """Ids of an input, with its eos, and of a target, without; both at least one.

    The first `given` ids of the target are not scored. If there are `ends`, one or two ids, the
    probability that one of them follows is a factor, and the target is written only if the most
    probable id after it is one of `stops`.
    """

    inputs: list[int]
    targets: list[int]
    given: int = 0
    ends: tuple[int, ...] = ()
    stops: frozenset[int] = frozenset()


class MaskedExample(NamedTuple):
    """Ids with masks, the places that are guessed, and their ids."""

    ids: list[int]
    places: list[int]
    targets: list[int]


class Scorer:
    """An encoder-decoder of nested float32 `params`."""

    def __init__(self, module: network.Transformer, params: Any):
        self._vocab_size = module.config.vocab_size
        self._run = functools.partial(_compiled(module), jax.tree.map(jnp.asarray, params))

    def score(self, examples: Sequence[EncodedExample]) -> list[Guess]:
        """Return a guess of each example.

        Raises:
          UserError: an example is longer than 8,192 ids.
        """
        sizes = [(padded(len(e.inputs)), 2, padded(len(e.targets) + 1)) for e in examples]
        rows = [(e.inputs, (*e.ends, _NO_END, _NO_END)[:2], e.targets) for e in examples]
        results = in_batches(rows, sizes, self._vocab_size, self._run)
        return [_guess(*pair) for pair in zip(examples, results, strict=True)]


def _guess(example: EncodedExample, arrays: Sequence[np.ndarray]) -> Guess:
    log_probs, is_best, ends, best = arrays
    scored, end = slice(example.given, len(example.targets)), len(example.targets)
    log_prob, is_written = float(log_probs[scored].sum()), bool(is_best[scored].all())
    if example.ends:
        log_prob += float(ends[end])
        is_written = is_written and int(best[end]) in example.stops
    return Guess(log_prob, is_written)


class MaskScorer:
    """A network of `t5x.examples.encoder` with nested float32 `params`."""

    def __init__(self, module: encoder_network.Bert | encoder_network.ModernBert, params: Any):
        self._max_length, self._vocab_size = module.config.max_length, module.config.vocab_size
        self._run = functools.partial(_masked(module), jax.tree.map(jnp.asarray, params))

    def score(self, examples: Sequence[MaskedExample]) -> list[Guess]:
        """Return a guess of each example.

        Raises:
          UserError: an example is longer than the model.
        """
        longest = max((len(example.ids) for example in examples), default=0)
        if longest > self._max_length:
            raise UserError(
                why=f"a text has {longest:,} ids, but the model reads at most {self._max_length:,}",
                to_set="set --max_chars to less",
            )
        rows, sizes = [], []
        for ids, places, targets in examples:
            length = min(padded(len(ids)), self._max_length)
            width = 1 << (len(places) - 1).bit_length()
            rows.append((ids, [1] * len(ids), places, targets))
            sizes.append((length, length, width, width))
        results = in_batches(rows, sizes, self._vocab_size, self._run)
        counts = [len(example.places) for example in examples]
        return [
            Guess(float(log_probs[:n].sum()), bool(is_best[:n].all()))
            for n, (log_probs, is_best) in zip(counts, results, strict=True)
        ]


def padded(length: int) -> int:
    """Return the length that an example of `length` ids is padded to.

    Raises:
      UserError: it is longer than 8,192.
    """
    for longest in _LENGTHS:
        if length <= longest:
            return longest
    raise UserError(
        why=f"an example has {length:,} ids, but may have at most {_LENGTHS[-1]:,}",
        to_set="set --max_chars to less",
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
    results: dict[int, list[np.ndarray]] = {}
    while order:
        size = sizes[order[0]]
        most = max(1, min(_MOST_ROWS, _LOGITS // (size[-1] * vocab_size)))
        batch = [i for i in order[:most] if sizes[i] == size]
        count = min(most, 1 << (len(batch) - 1).bit_length())
        arrays = [np.zeros((count, length), np.int32) for length in size]
        for row, i in enumerate(batch):
            for array, ids in zip(arrays, rows[i], strict=True):
                array[row, : len(ids)] = ids
        outputs = jax.device_get(run(*arrays))
        results |= {i: [array[row] for array in outputs] for row, i in enumerate(batch)}
        order = order[len(batch) :]
    return [results[i] for i in range(len(rows))]


@functools.cache
def _compiled(module: network.Transformer) -> Callable:
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
        at_targets = jnp.take_along_axis(log_probs, targets_BP[..., None], axis=-1)[..., 0]
        return at_targets, jnp.argmax(log_probs, axis=-1) == targets_BP

    return run
