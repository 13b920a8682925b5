"""UL2's mixture of denoisers: short spans, long spans, high density and continuations.

After Tay et al. 2022 (UL2, arXiv:2205.05131, section 3.1 and table 1): seven denoisers in equal
parts; a prefix of the inputs names the kind of denoiser.

| prefix | noise density | mean span |                               |
|---|---|---|---|
| [R] | 0.15 | 3, 8 | regular: T5's span corruption |
| [S] | 0.25 | the rest of the text, one span | sequential: continue the text |
| [X] | 0.5 | 3, 8, 64 | extreme: high density, |
| [X] | 0.15 | 64 | or long spans |

Over 1,000 ids, EOS 1, [S] being 20, a chunk of 8 tokens (8 x 0.25 = 2 hidden, at the end):

    text             Ana  are  mere  și   pere  ,    dar  nu
    tokens            11   12   13   14   15   16    17   18
    mask               0    0    0    0    0    0     1    1
    inputs      20    11   12   13   14   15   16   999    1
    targets    999    17   18    1

(The weights published with the paper call the prefixes [NLU], [S2S] and [NLG].) Each denoiser has
its own chunk length: the longest for which inputs, targets and sentinels suffice. A block of text
is cut into the chunks of all denoisers in random order, so that one pass over the corpus serves
all of them, in exactly the given proportions.

Targets are a fifth of the inputs ([R]) or as long as they are ([X]), so a row of one example would
be half empty. A row is therefore made for two examples, of half its inputs each, and its targets
hold an [X] beside an [R]. Packing fills `open_rows` rows at once, since two [X] do not fit. Rows
whose targets hold the longest example of all inputs have one, packed or not.

    UL2.lengths(1024, vocabulary)                  -> Lengths(tokens=..., targets=608), of a row
    UL2.example_lengths({"inputs": 1024, "targets": 608}, vocabulary)      # of each denoiser
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seqio
import tensorflow as tf

from common.errors import UserError
from tasks import vocabularies
from tasks.objectives.base import Corrupt, Lengths, Objective, check_targets
from tasks.objectives.span_corruption import (
    SpanNoise,
    corrupt_rows,
    counts_tf,
    noise_mask,
    random_mask,
)
from tasks.text.token_chunks import CHUNKS_A_CALL


@dataclasses.dataclass(frozen=True)
class Denoiser:
    """One kind of noise, its prefix ("" for none), and its weight in the mixture."""

    prefix: str
    noise: SpanNoise
    weight: int = 1

    def prefix_ids(self, vocabulary: seqio.Vocabulary) -> tuple[int, ...]:
        """Return the ids of the prefix."""
        return vocabularies.ids_of(vocabulary, self.prefix) if self.prefix else ()


@dataclasses.dataclass(frozen=True)
class DenoiserMixture(Objective):
    """Several denoisers over one corpus, `weight` chunks of each in turn."""

    denoisers: tuple[Denoiser, ...]
    # Of 8 open rows the targets are 4 % emptier, of more hardly fuller. A data position holds them.
    open_rows = 32

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Return the longest chunk, and the targets of a row of two examples.

        They hold each example beside another: the longest beside the shortest, and so on.
        """
        if vocabulary is None:
            why = "is missing, on which the lengths of denoisers with prefixes depend"
            raise UserError("vocabulary", why=why)
        every = self.lengths_of_each(inputs_length // 2, vocabulary)
        weights = [2 * denoiser.weight for denoiser in self.denoisers]
        targets = sorted(np.repeat([lengths.targets for lengths in every], weights).tolist())
        pairs = zip(targets, reversed(targets), strict=True)
        return Lengths(max(lengths.tokens for lengths in every), max(map(sum, pairs)))

    def example_lengths(
        self, sequence_length: Mapping[str, int], vocabulary: seqio.Vocabulary, task: str = "(any)"
    ) -> list[Lengths]:
        """Return each denoiser's lengths in rows of one or two examples; see the module docstring.

        Raises:
          UserError: the targets are too short for both, or `lengths_of_each` raises it.
        """
        inputs = sequence_length["inputs"]
        alone = self.lengths_of_each(inputs, vocabulary)
        if max(lengths.targets for lengths in alone) <= sequence_length["targets"]:
            return alone
        check_targets(sequence_length, self.lengths(inputs, vocabulary), "two denoisers", task)
        return self.lengths_of_each(inputs // 2, vocabulary)

    def lengths_of_each(self, inputs_length: int, vocabulary: seqio.Vocabulary) -> list[Lengths]:
        """Return each denoiser's lengths with prefix, sentinels and EOS, for an example's inputs.

        Raises:
          UserError: the vocabulary cannot spell a prefix, or has no sentinels.
        """
        n_sentinels = len(vocabularies.sentinels(vocabulary))
        every = []
        for denoiser in self.denoisers:
            prefix = denoiser.prefix_ids(vocabulary)
            length = denoiser.noise.lengths(inputs_length - len(prefix)).tokens
            while denoiser.noise.counts(length)[1] > n_sentinels:
                length -= 1
            every.append(Lengths(length, denoiser.noise.corrupted(length)[1]))
        return every

    def corruption(
        self, sequence_length: Mapping[str, int], vocabulary: seqio.Vocabulary, task: str
    ) -> tuple[int, Corrupt]:
        """Return a function that cuts a block into chunks of all denoisers."""
        sentinels = vocabularies.sentinels(vocabulary)
        every = self.example_lengths(sequence_length, vocabulary, task)
        ids = [denoiser.prefix_ids(vocabulary) for denoiser in self.denoisers]
        prefixes = tf.ragged.constant(ids, tf.int32, inner_shape=())
        kinds = [i for i, denoiser in enumerate(self.denoisers) for _ in range(denoiser.weight)]
        kinds = sorted(kinds * max(round(CHUNKS_A_CALL / len(kinds)), 1))
        lengths = [every[kind].tokens for kind in kinds]

        def corrupt_block(tokens, seed):
            seeds = tf.random.experimental.stateless_split(seed, 2)
            order = tf.argsort(tf.random.stateless_uniform([len(kinds)], seeds[0]))
            block = _cut_block(kinds, lengths, order, tf.size(tokens))
            mask = self._mask(block, [lengths.tokens for lengths in every], seeds[1])
            cut = (tokens[: block.end], mask[: block.end], block.rows, block.n)
            inputs, targets = corrupt_rows(*cut, sentinels)
            prefix = tf.gather(prefixes, block.kinds[: block.n])
            return tf.concat([prefix, inputs], 1), targets

        return sum(lengths), corrupt_block

    def _mask(self, block: "_Block", lengths: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        """Return which tokens of a block its denoisers hide, bool [L]."""
        seeds = tf.random.experimental.stateless_split(seed, len(lengths) + 1)
        mask = tf.zeros([block.size], tf.bool)
        for kind, (denoiser, length) in enumerate(zip(self.denoisers, lengths, strict=True)):
            complete = (block.kinds == kind) & (block.begins + length <= block.size)
            begins = tf.boolean_mask(block.begins, complete)
            hidden = noise_mask(length, seeds[kind], denoiser.noise, tf.size(begins))
            positions = begins[:, tf.newaxis] + tf.range(length)
            where = tf.reshape(positions, [-1, 1])
            mask = tf.tensor_scatter_nd_update(mask, where, tf.reshape(hidden, [-1]))
        return tf.concat([mask[: block.rest], self._mask_of_rest(block, seeds[-1])], 0)

    def _mask_of_rest(self, block: "_Block", seed: tf.Tensor) -> tf.Tensor:
        """Return the mask of the incomplete chunk at the end of a dataset, by its denoiser."""
        size = block.size - block.rest
        kind = block.kinds[tf.minimum(block.n_complete, tf.size(block.kinds) - 1)]
        noises = [denoiser.noise for denoiser in self.denoisers]
        density = tf.constant([noise.density for noise in noises], tf.float64)[kind]
        mean_span = tf.constant([noise.mean_span for noise in noises], tf.float64)[kind]
        length = tf.maximum(size, 2)
        return random_mask(length, *counts_tf(length, density, mean_span), seed)[0, :size]


class _Block(NamedTuple):
    """How a block of text is cut: chunk i, of denoiser `kinds[i]`, begins at `begins[i]`.

    `n_complete` chunks fit into the block's `size` tokens and end at `rest`. At least two tokens
    after that form one more, so there are `n` chunks up to `end`. `rows`: the chunk of each token.
    """

    kinds: tf.Tensor
    begins: tf.Tensor
    size: tf.Tensor
    n_complete: tf.Tensor
    rest: tf.Tensor
    n: tf.Tensor
    end: tf.Tensor
    rows: tf.Tensor


def _cut_block(kinds: Sequence[int], lengths: Sequence[int], order, size) -> _Block:
    """Lay out chunks of `lengths` in `order`, as far as there is text."""
    ordered = tf.gather(tf.constant(lengths), order)
    ends = tf.cumsum(ordered)
    n_complete = tf.searchsorted(ends, [size], side="right")[0]
    rest = tf.reduce_max(tf.where(ends <= size, ends, 0))
    has_rest = size - rest > 1
    end = tf.where(has_rest, size, rest)
    rows = tf.searchsorted(ends, tf.range(end), side="right")
    n = n_complete + tf.cast(has_rest, tf.int32)
    kinds = tf.gather(tf.constant(kinds), order)
    return _Block(kinds, ends - ordered, size, n_complete, rest, n, end, rows)


def ul2(regular: str = "[R]", sequential: str = "[S]", extreme: str = "[X]") -> DenoiserMixture:
    """Return UL2's seven denoisers with the given prefixes."""
    noises = [
        *((regular, SpanNoise(0.15, mean)) for mean in (3.0, 8.0)),
        (sequential, SpanNoise(0.25, math.inf)),
        *((extreme, SpanNoise(0.5, mean)) for mean in (3.0, 8.0, 64.0)),
        (extreme, SpanNoise(0.15, 64.0)),
    ]
    return DenoiserMixture(tuple(Denoiser(prefix, noise) for prefix, noise in noises))


UL2 = ul2()
