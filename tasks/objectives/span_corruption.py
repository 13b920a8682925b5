"""Span corruption: hide spans of tokens in the inputs, predict them in the targets.

A *chunk* is L consecutive tokens. Its *noise* tokens are hidden: consecutive ones form a *span*,
and each span is replaced by one *sentinel*, an id with no other meaning; sentinels descend from
the last id of the vocabulary. The *inputs* are the chunk with sentinels instead of spans; the
*targets* are the spans, each after its sentinel. Both then get EOS.

An example over 1,000 ids, EOS 1, density 0.3, mean span 1.5 (10 x 0.3 = 3 noise tokens in
3 / 1.5 = 2 spans):

    text        Ana  are  mere  și   pere  ,    dar  nu   are  nuci
    tokens       11   12    13   14   15   16    17   18   12   19
    mask          0    0     1    1    0    0     0    0    0    1
    inputs       11   12   999   15   16   17    18   12  998    1
    targets     999   13    14  998   19    1

As in T5 (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4) a chunk begins with visible text and
ends with a span, so only L decides the lengths of inputs and targets: 568 tokens at density 0.15
and mean span 3 always give 512 and 114, EOS included.

    T5_NOISE.lengths(512)                           -> Lengths(tokens=568, targets=114)
    corrupt(tokens, mask, sentinels=(999, 998))     -> (inputs, targets)
    seqio.Task(preprocessors=[..., T5_NOISE.preprocess, seqio.preprocessors.append_eos])
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import seqio
import tensorflow as tf

from common.errors import UserError
from tasks import vocabularies
from tasks.objectives.base import Corrupt, Lengths, Objective, by_chunks, check_targets

Number = Any  # an int, or a tensor with one


@dataclasses.dataclass(frozen=True)
class SpanNoise(Objective):
    """Hide a share `density` of all tokens, in spans of `mean_span` tokens on average."""

    density: float = 0.15
    mean_span: float = 3.0

    def __post_init__(self):
        if not 0 < self.density < 1:
            raise UserError("noise density", self.density, "but must be between 0 and 1")
        if not self.mean_span >= 1:
            raise UserError("mean noise span", self.mean_span, "but must be at least 1 token")

    def counts(self, length: int) -> tuple[int, int]:
        """Return (noise tokens, spans) of a chunk of `length` >= 2 tokens, halves to even."""
        noise = min(max(round(length * self.density), 1), length - 1)
        spans = min(max(round(noise / self.mean_span), 1), noise, length - noise)
        return noise, spans

    def corrupted(self, length: int) -> tuple[int, int]:
        """Return the lengths of inputs and targets of a chunk of `length`, EOS included."""
        noise, spans = self.counts(length)
        return length - noise + spans + 1, noise + spans + 1

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Return the longest chunk whose inputs fit `inputs_length`, and its targets' length.

        At density 0.5 the chunk is one shorter if the targets would otherwise exceed the inputs.
        The numbers fit the masks. T5 computes others, and pads or trims a few tokens, in two cases:
        with less noise than half a mean span it counts no span, though it makes one; and at high
        densities, from 0.5 with mean span 1 on, it counts more spans than there are visible tokens
        to precede them. All other settings give T5's numbers.
        """
        if inputs_length < 3:
            why = "which cannot hold text, sentinel and EOS"
            raise UserError("TASK_FEATURE_LENGTHS['inputs']", inputs_length, why)
        length = inputs_length
        while length > 2 and self.corrupted(length)[0] > inputs_length:
            length -= 1
        while self.corrupted(length + 1)[0] <= inputs_length:
            length += 1
        inputs, targets = self.corrupted(length)
        if self.density == 0.5 and targets > inputs:
            return Lengths(length - 1, targets - 1)
        return Lengths(length, targets)

    def check(self, sequence_length: Mapping[str, int], n_sentinels: int, task: str) -> Lengths:
        """Return `lengths`.

        Raises:
          UserError: the targets are too short, or there are more spans than sentinels.
        """
        lengths = self.lengths(sequence_length["inputs"])
        noise = f"noise density {self.density:g} and mean span {self.mean_span:g}"
        check_targets(sequence_length, lengths, noise, task)
        if (spans := self.counts(lengths.tokens)[1]) > n_sentinels:
            raise UserError(
                "TASK_FEATURE_LENGTHS['inputs']",
                sequence_length["inputs"],
                f"which with {noise} gives {spans} spans, but the vocabulary has {n_sentinels} "
                "sentinels",
                "shorten it, or lengthen the spans",
            ).at(f"task {task}")
        return lengths

    def corruption(
        self, sequence_length: Mapping[str, int], vocabulary: seqio.Vocabulary, task: str
    ) -> tuple[int, Corrupt]:
        """Return a function that draws one random mask for each chunk."""
        sentinels = vocabularies.sentinels(vocabulary)

        def corrupt_chunks(chunks, seed):
            length = chunks.shape[1] or tf.shape(chunks)[1]
            return corrupt(chunks, noise_mask(length, seed, self, tf.shape(chunks)[0]), sentinels)

        return by_chunks(self.check(sequence_length, len(sentinels), task).tokens, corrupt_chunks)


T5_NOISE = SpanNoise()
BYT5_NOISE = SpanNoise(density=0.15, mean_span=20.0)  # Xue et al. 2022, arXiv:2105.13626, sec. 3


def noise_mask(length: Number, seed: tf.Tensor, noise: SpanNoise, n: Number = 1) -> tf.Tensor:
    """Return `n` random masks, bool [n, length >= 2], True where a token is hidden.

    The numbers of noise tokens and spans depend on `length` only. All ways to cut the noise into
    that many spans, and the rest into as many stretches between them, are equally likely.
    """
    if isinstance(length, int):
        return random_mask(length, *noise.counts(length), seed, n)
    return random_mask(length, *counts_tf(length, noise.density, noise.mean_span), seed, n)


def counts_tf(length, density, mean_span) -> tuple[tf.Tensor, tf.Tensor]:
    """Return `SpanNoise.counts` of a tensor, int32 scalars."""
    real = lambda x: tf.convert_to_tensor(x, tf.float64)  # as in Python: halves round alike
    noise = tf.cast(tf.round(tf.cast(length, tf.float64) * real(density)), tf.int32)
    noise = tf.clip_by_value(noise, 1, length - 1)
    spans = tf.cast(tf.round(tf.cast(noise, tf.float64) / real(mean_span)), tf.int32)
    return noise, tf.clip_by_value(spans, 1, tf.minimum(noise, length - noise))


def random_mask(length, hidden, spans, seed: tf.Tensor, n: Number = 1) -> tf.Tensor:
    """Return `n` random masks, bool [n, length], of `hidden` tokens in `spans` spans each."""
    seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    shown_until = _random_parts(n, length - hidden, spans, seeds[0])
    hidden_until = _random_parts(n, hidden, spans, seeds[1])
    ends = shown_until + hidden_until
    begins = shown_until + tf.pad(hidden_until[:, :-1], [[0, 0], [1, 0]])
    bounds = tf.reshape(tf.stack([begins, ends], axis=2), [n, 2 * spans])
    places = tf.broadcast_to(tf.range(length), [n, length])
    return tf.raw_ops.UpperBound(sorted_inputs=bounds, values=places) % 2 == 1


def _random_parts(n, total, parts, seed: tf.Tensor) -> tf.Tensor:
    """Cut `total` into `parts` positive integers, all ways equally likely; return their sums.

    These are int32 [n, parts], the sum of the first part, of the first two, ..., `total`.
    """
    draw = tf.random.stateless_uniform([n, total - 1], seed)
    chosen = tf.math.top_k(draw, parts - 1, sorted=False).indices
    cuts = 1 - tf.math.top_k(-chosen, parts - 1).values
    return tf.pad(cuts, [[0, 0], [0, 1]], constant_values=total)


def corrupt(
    chunks: tf.Tensor, mask: tf.Tensor, sentinels: Sequence[int]
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Return ragged (inputs, targets) before EOS of chunks and their masks, [n, L].

    Even if a mask begins with hidden tokens or ends with visible ones, the targets hold only the
    hidden spans, each after its sentinel.
    """
    n, flat = tf.shape(chunks)[0], lambda x: tf.reshape(x, [-1])
    rows = tf.broadcast_to(tf.range(n)[:, tf.newaxis], tf.shape(chunks))
    return corrupt_rows(flat(chunks), flat(mask), flat(rows), n, sentinels)


# Functions such as tf.repeat, tf.boolean_mask and from_value_rowids consist of ten to thirty
# operations. Every shard has a copy of its graph, which it makes when it starts.
def corrupt_rows(
    tokens: tf.Tensor, mask: tf.Tensor, rows: tf.Tensor, n: Number, sentinels: Sequence[int]
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Return `corrupt` of `n` rows of any lengths, concatenated; `rows` has each token's row."""
    starts_row = rows != tf.pad(rows[:-1], [[1, 0]], constant_values=-1)
    first = mask & (starts_row | ~tf.pad(mask[:-1], [[1, 0]]))
    spans_before = tf.cumsum(tf.cast(first, tf.int32), exclusive=True)
    rank = spans_before - tf.gather(tf.gather(spans_before, _places(starts_row)), rows)
    marks = tf.gather(tf.constant(sentinels, tokens.dtype), tf.where(first, rank, 0))

    def kept(values, where):
        flat = tf.gather(tf.reshape(values, [-1]), _places(tf.reshape(where, [-1])))
        counts = tf.reduce_sum(tf.cast(where, tf.int64), -1)
        lengths = tf.math.unsorted_segment_sum(counts, rows, n)
        return tf.RaggedTensor.from_row_lengths(flat, lengths, validate=False)

    inputs = tf.where(first, marks, tokens)[:, tf.newaxis], (first | ~mask)[:, tf.newaxis]
    targets = tf.stack([marks, tokens], -1), tf.stack([first, mask], -1)
    return kept(*inputs), kept(*targets)


def _places(mask: tf.Tensor) -> tf.Tensor:
    """Return where a mask, bool [n], is true, int64."""
    return tf.squeeze(tf.where(mask), 1)
