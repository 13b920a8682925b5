"""I.i.d. masking: each token is hidden independently, as in BERT, up to a number per example.

A fixed share of all tokens is hidden, all choices of so many positions being equally likely;
neighbours that are both hidden form one span. Over 1,000 ids, EOS 1, density 0.3 (10 x 0.3 = 3
tokens):

    text        Ana  are  mere  și   pere  ,    dar  nu   are  nuci
    tokens       11   12    13  14    15   16    17   18   12   19
    mask          0    1     0   0     0    0     1    1    0    0
    inputs       11  999    13  14    15   16   998   12   19    1
    targets     999   12   998  17    18    1

BERT (Devlin et al. 2019, arXiv:1810.04805, section 3.1) hides 15 % and at most 20 tokens of 128 or
80 of 512; T5 compares it as "i.i.d. denoising" (arXiv:1910.10683, section 3.3). The length of the
targets depends on how many neighbours meet, so `lengths` gives the maximum.

    SingleTokens(max_predictions=80).lengths(512)  -> Lengths(tokens=511, targets=155)
"""

import dataclasses
from collections.abc import Mapping

import seqio
import tensorflow as tf

from common.errors import UserError
from tasks import vocabularies
from tasks.objectives.base import Corrupt, Lengths, Objective, by_chunks, check_targets
from tasks.objectives.span_corruption import corrupt


@dataclasses.dataclass(frozen=True)
class SingleTokens(Objective):
    """Hide a share `density` of all tokens, at most `max_predictions` in an example."""

    density: float = 0.15
    max_predictions: int = 80

    def __post_init__(self):
        if not 0 < self.density < 1:
            raise UserError("noise density", self.density, "but must be between 0 and 1")
        if self.max_predictions < 1:
            raise UserError("max_predictions", self.max_predictions, "but must be at least 1")

    def count(self, length: int | tf.Tensor):
        """Return the number of hidden tokens among `length` >= 2, halves to even."""
        if isinstance(length, int):
            return min(max(round(length * self.density), 1), self.max_predictions, length - 1)
        hidden = tf.cast(tf.round(tf.cast(length, tf.float64) * self.density), tf.int32)
        return tf.clip_by_value(hidden, 1, tf.minimum(self.max_predictions, length - 1))

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Return the chunk whose inputs always fit, and the longest targets it can have."""
        if inputs_length < 3:
            why = "which cannot hold text, sentinel and EOS"
            raise UserError("TASK_FEATURE_LENGTHS['inputs']", inputs_length, why)
        tokens = inputs_length - 1  # if no hidden tokens meet, the inputs are as long as the chunk
        hidden = self.count(tokens)
        return Lengths(tokens, hidden + min(hidden, tokens - hidden + 1) + 1)

    def corruption(
        self, sequence_length: Mapping[str, int], vocabulary: seqio.Vocabulary, task: str
    ) -> tuple[int, Corrupt]:
        """Return a function that hides tokens of each chunk."""
        sentinels = vocabularies.sentinels(vocabulary)
        lengths = self.lengths(sequence_length["inputs"])
        noise = f"i.i.d. noise of density {self.density:g}"
        check_targets(sequence_length, lengths, noise, task)
        if (hidden := self.count(lengths.tokens)) > len(sentinels):
            raise UserError(
                "TASK_FEATURE_LENGTHS['inputs']",
                sequence_length["inputs"],
                f"which with {noise} gives up to {hidden} hidden tokens, but the vocabulary has "
                f"{len(sentinels)} sentinels",
                f"set max_predictions to {len(sentinels)}",
            ).at(f"task {task}")

        def hide_tokens(chunks, seed):
            n, length = tf.shape(chunks)[0], tf.shape(chunks)[1]
            return corrupt(chunks, token_mask(length, self.count(length), seed, n), sentinels)

        return by_chunks(lengths.tokens, hide_tokens)


def token_mask(length, hidden, seed: tf.Tensor, n: int | tf.Tensor = 1) -> tf.Tensor:
    """Return `n` random masks, bool [n, length], each with `hidden` tokens anywhere."""
    draw = tf.random.stateless_uniform([n, length], seed)
    places = tf.math.top_k(draw, hidden, sorted=False).indices
    positions = tf.reshape(places + length * tf.range(n)[:, tf.newaxis], [-1, 1])
    count = tf.scatter_nd(positions, tf.ones_like(positions[:, 0]), [n * length])
    return tf.reshape(count > 0, [n, length])
