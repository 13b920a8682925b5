"""Whole-word span corruption: spans that start and end where words do.

A word is a piece that begins with ▁ and those up to the next such piece (of bytes: a space and
what follows it). Over 1,000 ids, EOS 1, density 0.3, mean span 2 tokens (9 words x 0.3 = 3 hidden
words of 13 / 9 tokens each, so 2 spans):

    text     Ana   are  mere        și   pere       ,  dar   nu   are  nuci
    pieces   ▁Ana  ▁are ▁me  re     ▁și  ▁pe  re  ,    ▁dar  ▁nu  ▁are ▁nu  ci
    tokens    11    12   13  14      15   16  14  17    18    19   12   19  20
    mask       0     0    1   1       0    0   0   0     0     1    1    0   0
    inputs    11    12  999  15      16   14  17  18   998    19   20     1
    targets  999    13   14 998      19   12   1

Words differ in length, so no fixed chunk fills an example. Text is therefore hidden first,
thousands of words at a time, and then cut: each example ends at the last word for which its inputs,
its targets and the sentinels suffice. So the lengths are the `SpanNoise`'s (512 and 114),
every example is nearly full, and no text is lost.

    WholeWords().lengths(512)                  -> Lengths(tokens=568, targets=114)
"""

import dataclasses
from collections.abc import Mapping

import seqio
import tensorflow as tf

from tasks import vocabularies
from tasks.objectives.base import Corrupt, Lengths, Objective
from tasks.objectives.masking import LONGEST_WORD
from tasks.objectives.span_corruption import T5_NOISE, SpanNoise, corrupt_rows, random_mask
from tasks.text.token_chunks import CHUNKS_A_CALL


@dataclasses.dataclass(frozen=True)
class WholeWords(Objective):
    """Hide a share `noise.density` of all words, in spans of `noise.mean_span` tokens on average.

    Where the average word has more tokens than that, each span is one word.
    """

    noise: SpanNoise = T5_NOISE

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Return the mean length of text, and the targets' length."""
        return self.noise.lengths(inputs_length, vocabulary)

    def corruption(
        self, sequence_length: Mapping[str, int], vocabulary: seqio.Vocabulary, task: str
    ) -> tuple[int, Corrupt]:
        """Return a function that hides words of a block and cuts it into examples."""
        sentinels = vocabularies.sentinels(vocabulary)
        length = self.noise.check(sequence_length, len(sentinels), task).tokens
        starts = vocabularies.word_starts(vocabulary)
        limits = (sequence_length["inputs"] - 1, sequence_length["targets"] - 1, len(sentinels))
        longest = min(LONGEST_WORD, limits[0], limits[1] - 1)

        def corrupt_block(tokens, seed):
            words = number_words(tf.gather(starts, tokens), longest)
            mask = word_mask(words, self.noise, seed, longest_span=limits[1] - 1)
            ends = example_ends(words, mask, limits)
            rows = tf.searchsorted(ends, tf.range(tf.size(tokens)), side="right")
            mask |= _last_word_of_bare_rows(words, mask, rows, ends)
            return corrupt_rows(tokens, mask, rows, tf.size(ends), sentinels)

        return length * CHUNKS_A_CALL, corrupt_block


def number_words(starts: tf.Tensor, longest: int) -> tf.Tensor:
    """Return the number of the word of each token, int32 [L], from 0.

    `starts`: bool [L], True where a word begins. Words of more than `longest` tokens are cut.
    """
    starts = tf.concat([tf.ones_like(starts[:1]), starts[1:]], 0)
    place = tf.range(tf.size(starts))
    begins = tf.gather(tf.boolean_mask(place, starts), tf.cumsum(tf.cast(starts, tf.int32)) - 1)
    starts = (place - begins) % longest == 0
    return tf.cumsum(tf.cast(starts, tf.int32)) - 1


def word_mask(words: tf.Tensor, noise: SpanNoise, seed: tf.Tensor, longest_span: int) -> tf.Tensor:
    """Return a random mask, bool [L], that hides whole words.

    Of three words or more, the first and last stay visible: they may be parts of longer words that
    begin or end outside of this block. So do spans of more than `longest_span` tokens, which no
    targets could hold.
    """
    count = words[-1] + 1
    among = tf.maximum(count - 1, 2)
    hidden = tf.cast(tf.round(tf.cast(count, tf.float64) * noise.density), tf.int32)
    hidden = tf.clip_by_value(hidden, 1, among - 1)
    size = tf.cast(tf.size(words) / count, tf.float64)  # mean tokens of a word
    n = tf.cast(tf.round(tf.cast(hidden, tf.float64) * size / noise.mean_span), tf.int32)
    n = tf.clip_by_value(n, 1, tf.minimum(hidden, among - hidden))
    of_words = tf.concat([random_mask(among, hidden, n, seed)[0], [False]], 0)
    mask = tf.gather(of_words, words)
    first = mask & ~tf.concat([[False], mask[:-1]], 0)
    span = tf.maximum(tf.cumsum(tf.cast(first, tf.int32)) - 1, 0)
    lengths = tf.math.segment_sum(tf.cast(mask, tf.int32), span)
    return mask & (tf.gather(lengths, span) <= longest_span)


def example_ends(words: tf.Tensor, mask: tf.Tensor, limits: tuple[int, int, int]) -> tf.Tensor:
    """Return where examples end, int32 [n], each as late as possible, between words.

    A span or word is cut only if nothing else fits. The last word, which may continue in the next
    block, is never an example of its own. `limits`: tokens of the inputs and of the targets (both
    before EOS), and number of spans.
    """
    size = tf.size(words)
    first = tf.cast(mask & ~tf.concat([[False], mask[:-1]], 0), tf.int32)
    hidden = tf.cast(mask, tf.int32)
    costs = [tf.cumsum(cost) for cost in (1 - hidden + first, hidden + first, first)]
    inside = (words[1:] == words[:-1]) | (mask[1:] & mask[:-1]) | (words[1:] == words[-1])
    positions = tf.boolean_mask(tf.range(1, size + 1), tf.concat([~inside, [True]], 0))

    def body(begin, i, ends):
        spent = [tf.where(begin > 0, c[tf.maximum(begin - 1, 0)], 0) for c in costs]
        fits = [
            tf.searchsorted(cost, [before + limit], side="right")[0]
            for cost, before, limit in zip(costs, spent, limits, strict=True)
        ]
        end = tf.reduce_min(fits)
        k = tf.searchsorted(positions, [end], side="right")[0]
        between = positions[tf.maximum(k - 1, 0)]
        end = tf.where((k > 0) & (between > begin), between, end)
        return end, i + 1, ends.write(i, end)

    ends = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
    keep_going = lambda begin, *_: begin < size
    return tf.while_loop(keep_going, body, (tf.constant(0), tf.constant(0), ends))[2].stack()


def _last_word_of_bare_rows(words, mask, rows, ends) -> tf.Tensor:
    """Return the tokens of the last word of each example in which no word is hidden, bool [L]."""
    bare = ~tf.cast(tf.math.segment_max(tf.cast(mask, tf.int32), rows), tf.bool)
    last = tf.gather(words, ends - 1)
    return tf.gather(bare, rows) & (words == tf.gather(last, rows))
