"""I.i.d. masking: single tokens hidden each for itself, as in BERT, at most so many an example.

A share of all tokens is hidden, every choice of so many places being equally likely; neighbours
that both fall form one span. Over 1,000 ids, EOS 1, density 0.3 (10 x 0.3 = 3 tokens):

    text        Ana  are  mere  și   pere  ,    dar  nu   are  nuci
    tokens       11   12    13  14    15   16    17   18   12   19
    mask          0    1     0   0     0    0     1    1    0    0
    inputs       11  999    13  14    15   16   998   12   19    1
    targets     999   12   998  17    18    1

BERT (Devlin et al. 2019, arXiv:1810.04805, section 3.1) hides 15 % and at most 20 tokens of 128 or
80 of 512; T5 compares it as "i.i.d. denoising" (arXiv:1910.10683, section 3.3). The targets' length
depends on how many neighbours meet, so what is computed is the most there can be.

    SingleTokens(max_predictions=80).lengths(512)  -> Lengths(tokens=511, targets=155)
    seqio.Task(preprocessors=[..., SingleTokens().preprocess, seqio.preprocessors.append_eos])
"""

import dataclasses
from collections.abc import Mapping

import seqio
import tensorflow as tf

from tasks import vocabularies
from tasks.objectives import span_corruption
from tasks.text.token_chunks import each_run


@dataclasses.dataclass(frozen=True)
class SingleTokens:
    """Hides `density` of all tokens one by one, at most `max_predictions` of an example."""

    density: float = 0.15
    max_predictions: int = 80

    def __post_init__(self):
        if not 0 < self.density < 1:
            raise ValueError(f"noise density is {self.density}, but must lie between 0 and 1")
        if self.max_predictions < 1:
            raise ValueError(f"max_predictions is {self.max_predictions}, but must be at least 1")

    def count(self, length: int | tf.Tensor):
        """Returns how many of `length` >= 2 tokens are hidden, halves to even."""
        if isinstance(length, int):
            return min(max(round(length * self.density), 1), self.max_predictions, length - 1)
        hidden = tf.cast(tf.round(tf.cast(length, tf.float64) * self.density), tf.int32)
        return tf.clip_by_value(hidden, 1, tf.minimum(self.max_predictions, length - 1))

    def lengths(
        self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None
    ) -> span_corruption.Lengths:
        """Returns the run whose inputs always fit, and the longest targets it can have."""
        del vocabulary
        if inputs_length < 3:
            raise ValueError(f"inputs of {inputs_length} tokens cannot hold text, sentinel and EOS")
        tokens = inputs_length - 1  # where no two hidden tokens meet, the inputs have as many
        hidden = self.count(tokens)
        return span_corruption.Lengths(tokens, hidden + min(hidden, tokens - hidden + 1) + 1)

    def preprocess(
        self,
        dataset: tf.data.Dataset,
        sequence_length: Mapping[str, int],
        output_features: Mapping[str, seqio.Feature],
        task: str = "i.i.d. masking",
    ) -> tf.data.Dataset:
        """Turns {"targets": int32 [any]} a document into {"inputs", "targets"}, both before EOS.

        A last run of one token, which cannot be hidden in part, is left out.

        Raises:
          ValueError: the targets are too short, or there are fewer sentinels than hidden tokens.
        """
        sentinels = vocabularies.sentinels(output_features["targets"].vocabulary)
        found = self.lengths(sequence_length["inputs"])
        noise = f"i.i.d. noise of density {self.density:g}"
        setting = span_corruption.check_targets(sequence_length, found, noise, task)
        if (hidden := self.count(found.tokens)) > len(sentinels):
            raise ValueError(
                f"{setting} up to {hidden} hidden tokens, but the vocabulary has {len(sentinels)} "
                f"sentinels: set max_predictions to {len(sentinels)}"
            )

        def hide_rows(rows, seed):
            n, length = tf.shape(rows)[0], tf.shape(rows)[1]
            mask = token_mask(length, self.count(length), seed, n)
            which = tf.repeat(tf.range(n), length)
            tokens, mask = tf.reshape(rows, [-1]), tf.reshape(mask, [-1])
            return span_corruption.corrupt_rows(tokens, mask, which, n, sentinels)

        return each_run(dataset, found.tokens, hide_rows)


def token_mask(length, hidden, seed: tf.Tensor, n: int | tf.Tensor = 1) -> tf.Tensor:
    """Returns `n` random masks, bool [n, length], each with `hidden` tokens anywhere."""
    draw = tf.random.stateless_uniform([n, length], seed)
    chosen = tf.math.top_k(draw, hidden, sorted=False).indices
    places = tf.reshape(chosen + length * tf.range(n)[:, tf.newaxis], [-1, 1])
    count = tf.scatter_nd(places, tf.ones_like(places[:, 0]), [n * length])
    return tf.reshape(count > 0, [n, length])
