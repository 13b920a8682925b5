"""Span corruption: from a run of token ids to what the model reads and what it must write.

The words. A *run* is L tokens of running text. Its *noise* tokens are hidden: consecutive ones
form a *span*, and each span is replaced by one *sentinel*, an id that stands for nothing else and
descends from the last id of the vocabulary. The *inputs* are the run with sentinels instead of
spans; the *targets* are the spans, each behind its sentinel. Both then get EOS.

An example over 1,000 ids, EOS 1, density 0.3, mean span 1.5 (10 x 0.3 = 3 noise tokens in
3 / 1.5 = 2 spans):

    text        Ana  are  mere  și   pere  ,    dar  nu   are  nuci
    tokens       11   12    13   14   15   16    17   18   12   19
    mask          0    0     1    1    0    0     0    0    0    1
    inputs       11   12   999   15   16   17    18   12  998    1
    targets     999   13    14  998   19    1

As in T5 (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4) a run begins with visible text and
ends with a span, so L alone decides how long inputs and targets are: 568 tokens at density 0.15
and mean span 3 always give 512 and 114, EOS counted.

    lengths(512)                                    -> Lengths(tokens=568, targets=114)
    corrupt(tokens, mask, sentinels=(999, 998))     -> (inputs, targets)
    seqio.Task(preprocessors=[..., span_corruption, seqio.preprocessors.append_eos])

Other ways to hide text stand in `words`, `single_tokens`, `denoisers` and `prefixes`; `objectives`
names them all.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import seqio
import tensorflow as tf

from tasks import vocabularies
from tasks.text.token_chunks import each_run


class Lengths(NamedTuple):
    """How much raw text fills an example.

    `tokens`: the run's length before corruption. `targets`: what it becomes, EOS counted.
    """

    tokens: int
    targets: int


@dataclasses.dataclass(frozen=True)
class SpanNoise:
    """How text is hidden: `density` of all tokens, in spans of `mean_span` tokens on average."""

    density: float = 0.15
    mean_span: float = 3.0

    def __post_init__(self):
        if not 0 < self.density < 1:
            raise ValueError(f"noise density is {self.density}, but must lie between 0 and 1")
        if not self.mean_span >= 1:
            raise ValueError(f"mean noise span is {self.mean_span} tokens, but must be at least 1")

    def counts(self, length: int) -> tuple[int, int]:
        """Returns (noise tokens, spans) of a run of `length` >= 2 tokens, halves to even."""
        noise = min(max(round(length * self.density), 1), length - 1)
        spans = min(max(round(noise / self.mean_span), 1), noise, length - noise)
        return noise, spans

    def counts_tf(self, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`counts` of a length that is known only when the graph runs, int32 scalars."""
        return counts_tf(length, self.density, self.mean_span)

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Returns `fill`, as every objective has it; the vocabulary does not matter."""
        del vocabulary
        return self.fill(inputs_length)

    def preprocess(self, dataset, sequence_length, output_features, task="span corruption"):
        """`span_corruption` with this noise, as every objective has it."""
        return span_corruption(dataset, sequence_length, output_features, self, task)

    def fill(self, inputs_length: int) -> Lengths:
        """Returns the longest run whose inputs fit `inputs_length`, EOS counted, and its targets.

        At density 0.5 the run is one shorter if the targets would else outgrow the inputs.
        """
        return _fill(inputs_length, self.density, self.corrupted)

    def corrupted(self, length: int) -> tuple[int, int]:
        """Returns the lengths of inputs and targets of a run of `length`, EOS counted."""
        noise, spans = self.counts(length)
        return length - noise + spans + 1, noise + spans + 1

    def check(self, lengths: Mapping[str, int], n_sentinels: int, task: str) -> Lengths:
        """Returns `self.fill`, or refuses feature lengths and vocabularies that do not fit.

        Raises:
          ValueError: the targets are too short, or the spans outnumber the sentinels.
        """
        found = self.fill(lengths["inputs"])
        noise = f"noise density {self.density:g} and mean span {self.mean_span:g}"
        setting = check_targets(lengths, found, noise, task)
        if (spans := self.counts(found.tokens)[1]) > n_sentinels:
            raise ValueError(
                f"{setting} {spans} spans, but the vocabulary has {n_sentinels} sentinels: shorten "
                "TASK_FEATURE_LENGTHS['inputs'] or lengthen the spans"
            )
        return found


T5_NOISE = SpanNoise()
BYT5_NOISE = SpanNoise(density=0.15, mean_span=20.0)  # Xue et al. 2022, arXiv:2105.13626, sec. 3


def check_targets(lengths: Mapping[str, int], found: Lengths, objective: str, task: str) -> str:
    """Refuses a targets length below what the objective needs; returns how a sentence begins.

    Raises:
      ValueError: says the length to set.
    """
    setting = f"task {task}: inputs {lengths['inputs']} with {objective} give"
    if lengths["targets"] < found.targets:
        raise ValueError(
            f"{setting} {found.targets} target tokens, but TASK_FEATURE_LENGTHS['targets'] is "
            f"{lengths['targets']}: set it to {found.targets}"
        )
    return setting


def lengths(inputs_length: int, density: float = 0.15, mean_span: float = 3.0) -> Lengths:
    """Returns how many raw tokens fill `inputs_length`, and the targets' length, as T5 counts.

    T5 counts no span at all where there is less noise than half a mean span, though its masks
    then have one, and trims the two tokens too many. `SpanNoise.fill` counts that span; for all
    other settings the two agree.
    """

    def corrupted(length):
        noise = round(length * density)
        spans = round(noise / mean_span)
        return length - noise + spans + 1, noise + spans + 1

    return _fill(inputs_length, density, corrupted)


def _fill(inputs_length: int, density: float, corrupted) -> Lengths:
    if inputs_length < 3:
        raise ValueError(f"inputs of {inputs_length} tokens cannot hold text, sentinel and EOS")
    length = inputs_length
    while length > 2 and corrupted(length)[0] > inputs_length:
        length -= 1
    while corrupted(length + 1)[0] <= inputs_length:
        length += 1
    inputs, targets = corrupted(length)
    if density == 0.5 and targets > inputs:
        return Lengths(length - 1, targets - 1)
    return Lengths(length, targets)


def noise_mask(length: int | tf.Tensor, seed: tf.Tensor, noise: SpanNoise, n: int | tf.Tensor = 1):
    """Returns `n` random masks, bool [n, length], True where a token is hidden.

    The numbers of noise tokens and spans are fixed by `length`; which of all ways to cut the noise
    into that many spans, and the rest into as many stretches between them, is drawn uniformly.

    Args:
      length: at least 2.
      seed: integers [2]; equal seeds give equal masks.
      noise: density and mean span.
      n: how many.
    """
    if isinstance(length, int):
        hidden, spans = noise.counts(length)
    else:
        hidden, spans = noise.counts_tf(length)
    return random_mask(length, hidden, spans, seed, n)


def counts_tf(length, density, mean_span) -> tuple[tf.Tensor, tf.Tensor]:
    """`SpanNoise.counts` where the length may be a tensor, and the others float64 tensors."""
    real = lambda x: tf.convert_to_tensor(x, tf.float64)  # as Python has them: halves fall alike
    noise = tf.cast(tf.round(tf.cast(length, tf.float64) * real(density)), tf.int32)
    noise = tf.clip_by_value(noise, 1, length - 1)
    spans = tf.round(tf.cast(noise, tf.float64) / real(mean_span))
    return noise, tf.clip_by_value(tf.cast(spans, tf.int32), 1, tf.minimum(noise, length - noise))


def random_mask(length, hidden, spans, seed: tf.Tensor, n: int | tf.Tensor = 1) -> tf.Tensor:
    """Returns `n` random masks, bool [n, length], of `hidden` tokens in `spans` spans each."""
    seeds = tf.random.experimental.stateless_split(seed, 2)
    shown_lengths = _random_parts(n, length - hidden, spans, seeds[0])
    hidden_lengths = _random_parts(n, hidden, spans, seeds[1])
    lengths = tf.reshape(tf.stack([shown_lengths, hidden_lengths], axis=2), [-1])
    is_hidden = tf.tile([False, True], [n * spans])
    return tf.reshape(tf.repeat(is_hidden, lengths), [n, length])


def _random_parts(n, total, parts, seed: tf.Tensor) -> tf.Tensor:
    """Cuts `total` into `parts` positive integers, int32 [n, parts], all ways equally likely."""
    draw = tf.random.stateless_uniform([n, total - 1], seed)
    cuts = tf.sort(tf.math.top_k(draw, parts - 1, sorted=False).indices, axis=1) + 1
    ends = tf.fill([n, 1], total)
    return tf.concat([cuts, ends], 1) - tf.concat([tf.zeros_like(ends), cuts], 1)


def corrupt(
    tokens: tf.Tensor, mask: tf.Tensor, sentinels: Sequence[int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (inputs, targets) before EOS; see the example at the top of this file.

    Args:
      tokens: int32 [L], or [n, L] for several runs with equally many noise tokens and spans.
      mask: bool, of the same shape, True where a token is hidden.
      sentinels: ids of the first, second, ... sentinel, each one below that before it; at least as
        many as there are spans.
    """
    return _sentinels_for(tokens, mask, sentinels), _sentinels_for(tokens, ~mask, sentinels)


def _sentinels_for(tokens: tf.Tensor, mask: tf.Tensor, sentinels: Sequence[int]) -> tf.Tensor:
    """Replaces each stretch where `mask` is True by one sentinel, in order."""
    first = mask & ~tf.concat([tf.zeros_like(mask[..., :1]), mask[..., :-1]], -1)
    rank = tf.maximum(tf.cumsum(tf.cast(first, tf.int32), -1) - 1, 0)
    marks = tf.cast(sentinels[0] - rank, tokens.dtype)
    kept = tf.boolean_mask(tf.where(first, marks, tokens), first | ~mask)
    return kept if tokens.shape.rank == 1 else tf.reshape(kept, [tf.shape(tokens)[0], -1])


def corrupt_rows(
    tokens: tf.Tensor,
    mask: tf.Tensor,
    rows: tf.Tensor,
    n: int | tf.Tensor,
    sentinels: Sequence[int],
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """`corrupt` for runs of any lengths and masks of any shape, laid end to end.

    Where a run's mask begins with hidden tokens or ends with visible ones, the targets still are
    the spans, each behind its sentinel, and nothing else.

    Args:
      tokens: int32 [L].
      mask: bool [L], True where a token is hidden.
      rows: int32 [L], which run a token belongs to, 0, 0, ..., 1, ..., n - 1.
      n: number of runs.
      sentinels: ids; at least as many as one run has spans.

    Returns:
      (inputs, targets) before EOS, ragged int32 [n, None].
    """
    begins = tf.concat([tf.ones_like(mask[:1]), rows[1:] != rows[:-1]], 0)
    first = mask & (begins | ~tf.concat([tf.zeros_like(mask[:1]), mask[:-1]], 0))
    behind = tf.cumsum(tf.cast(first, tf.int32), exclusive=True)
    rank = behind - tf.gather(tf.boolean_mask(behind, begins), rows)
    marks = tf.gather(tf.constant(sentinels, tokens.dtype), tf.where(first, rank, 0))

    def rows_of(values, kept, rows):
        rows = tf.cast(tf.boolean_mask(rows, kept), tf.int64)
        kept = tf.boolean_mask(values, kept)
        return tf.RaggedTensor.from_value_rowids(kept, rows, tf.cast(n, tf.int64), validate=False)

    both = tf.reshape(tf.stack([marks, tokens], 1), [-1])
    hidden = tf.reshape(tf.stack([first, mask], 1), [-1])
    inputs = rows_of(tf.where(first, marks, tokens), first | ~mask, rows)
    return inputs, rows_of(both, hidden, tf.repeat(rows, 2))


def span_corruption(
    dataset: tf.data.Dataset,
    sequence_length: Mapping[str, int],
    output_features: Mapping[str, seqio.Feature],
    noise: SpanNoise = T5_NOISE,
    task: str = "span corruption",
) -> tf.data.Dataset:
    """Turns {"targets": int32 [any]} a document into {"inputs", "targets"}, both before EOS.

    A seqio preprocessor: runs of the length that fills the inputs, one random mask each, drawn
    from seqio's map seeds. A last run of one token, which cannot be hidden in part, is left out.

    Args:
      dataset: elements with "targets", token ids of one document.
      sequence_length: lengths of "inputs" and "targets", EOS counted.
      output_features: the task's features.
      noise: density and mean span.
      task: the name that error messages give.

    Raises:
      ValueError: see `SpanNoise.check` and `vocabularies.sentinels`.
    """
    sentinels = vocabularies.sentinels(output_features["targets"].vocabulary)
    length = noise.check(sequence_length, len(sentinels), task).tokens

    def hide_rows(rows, seed):
        mask = noise_mask(rows.shape[1] or tf.shape(rows)[1], seed, noise, tf.shape(rows)[0])
        return [tf.RaggedTensor.from_tensor(x) for x in corrupt(rows, mask, sentinels)]

    return each_run(dataset, length, hide_rows)
