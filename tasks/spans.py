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
    seqio.Task(preprocessors=[..., split_runs, span_corruption, seqio.preprocessors.append_eos])
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import seqio
import tensorflow as tf

from tasks import vocabularies

RUNS_A_CALL = 32


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
        exact = tf.cast(length, tf.float64)  # Python's own numbers, so that halves fall alike
        noise = tf.clip_by_value(tf.cast(tf.round(exact * self.density), tf.int32), 1, length - 1)
        spans = tf.cast(tf.round(tf.cast(noise, tf.float64) / self.mean_span), tf.int32)
        return noise, tf.clip_by_value(spans, 1, tf.minimum(noise, length - noise))

    def fill(self, inputs_length: int) -> Lengths:
        """Returns the longest run whose inputs fit `inputs_length`, EOS counted, and its targets.

        At density 0.5 the run is one shorter if the targets would else outgrow the inputs.
        """
        return _fill(inputs_length, self.density, self._corrupted)

    def _corrupted(self, length: int) -> tuple[int, int]:
        noise, spans = self.counts(length)
        return length - noise + spans + 1, noise + spans + 1

    def check(self, lengths: Mapping[str, int], n_sentinels: int, task: str) -> Lengths:
        """Returns `self.fill`, or refuses feature lengths and vocabularies that do not fit.

        Raises:
          ValueError: the targets are too short, or the spans outnumber the sentinels.
        """
        found = self.fill(lengths["inputs"])
        setting = (
            f"task {task}: inputs {lengths['inputs']} with noise density {self.density:g} and mean "
            f"span {self.mean_span:g} give"
        )
        if lengths["targets"] < found.targets:
            raise ValueError(
                f"{setting} {found.targets} target tokens, but TASK_FEATURE_LENGTHS['targets'] is "
                f"{lengths['targets']}: set it to {found.targets}"
            )
        if (spans := self.counts(found.tokens)[1]) > n_sentinels:
            raise ValueError(
                f"{setting} {spans} spans, but the vocabulary has {n_sentinels} sentinels: shorten "
                "TASK_FEATURE_LENGTHS['inputs'] or lengthen the spans"
            )
        return found


T5_NOISE = SpanNoise()


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
      sentinels: ids of the first, second, ... sentinel; at least as many as there are spans.
    """
    return _sentinels_for(tokens, mask, sentinels), _sentinels_for(tokens, ~mask, sentinels)


def _sentinels_for(tokens: tf.Tensor, mask: tf.Tensor, sentinels: Sequence[int]) -> tf.Tensor:
    """Replaces each stretch where `mask` is True by one sentinel, in order."""
    first = mask & ~tf.concat([tf.zeros_like(mask[..., :1]), mask[..., :-1]], -1)
    rank = tf.maximum(tf.cumsum(tf.cast(first, tf.int32), -1) - 1, 0)
    marks = tf.gather(tf.constant(sentinels, tokens.dtype), tf.where(first, rank, 0))
    kept = tf.boolean_mask(tf.where(first, marks, tokens), first | ~mask)
    return kept if tokens.shape.rank == 1 else tf.reshape(kept, [tf.shape(tokens)[0], -1])


def split_runs(dataset: tf.data.Dataset, length: int, key: str = "targets") -> tf.data.Dataset:
    """Joins the documents' tokens end to end and cuts them into runs of exactly `length`.

    Documents follow each other without a mark between them, as in T5; what is left of one run's
    last document begins the next. Nothing is dropped, so only the last run of a bounded dataset
    is shorter. Where the cuts fall differs in each epoch, as the order of documents does.

    Args:
      dataset: elements {key: int32 [any]}; other features are dropped.
      length: tokens a run.
      key: the feature.
    """
    runs = dataset.map(lambda x: x[key], num_parallel_calls=tf.data.AUTOTUNE).rebatch(length)
    return runs.map(lambda tokens: {key: tokens}, num_parallel_calls=tf.data.AUTOTUNE)


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

    @seqio.map_over_dataset(num_seeds=1)
    def hide(example, seed):
        tokens = example["targets"]
        seed = _seed_of(tokens, seed)
        whole = tf.size(tokens) // length * length
        inputs, targets = hide_rows(tf.reshape(tokens[:whole], [-1, length]), seed)
        rest = tokens[whole:]
        if tf.size(rest) > 1:  # the end of a bounded dataset
            ends = hide_rows(rest[tf.newaxis], seed)
            inputs, targets = tf.concat([inputs, ends[0]], 0), tf.concat([targets, ends[1]], 0)
        return {"inputs": inputs, "targets": targets}

    # Many runs a call, since the operations on one run cost more to start than to do.
    examples = hide(split_runs(dataset, length * RUNS_A_CALL)).unbatch()
    return examples.map(lambda x: {k: tf.ensure_shape(v, [None]) for k, v in x.items()})


def _seed_of(tokens: tf.Tensor, seed) -> tf.Tensor:
    """A seed [2] of these tokens' own: all shards of a run draw the same seeds one after the other.

    Without it the rows of a batch, which come from different shards, would be hidden alike.
    """
    return tf.random.experimental.stateless_fold_in(tf.stack(seed), tf.reduce_sum(tokens))


def prefix_lm(
    dataset: tf.data.Dataset,
    sequence_length: Mapping[str, int],
    output_features: Mapping[str, seqio.Feature],
) -> tf.data.Dataset:
    """Cuts a run of text in two at a random place: read the first part, write the second.

    Runs have min(inputs, targets) tokens and either part at least one, so that both fit with EOS:

        tokens   11 12 13 14 15 16     cut at 4
        inputs   11 12 13 14  1
        targets  15 16  1

    Args:
      dataset: elements with "targets", token ids of one document.
      sequence_length: lengths of "inputs" and "targets", EOS counted.
      output_features: the task's features (not used: no sentinel is needed).
    """
    del output_features
    length = min(sequence_length["inputs"], sequence_length["targets"])
    runs = split_runs(dataset, length).filter(lambda x: tf.size(x["targets"]) > 1)

    @seqio.map_over_dataset(num_seeds=1)
    def cut(example, seed):
        tokens = example["targets"]
        at = tf.random.stateless_uniform([], _seed_of(tokens, seed), 1, tf.size(tokens), tf.int32)
        return {"inputs": tokens[:at], "targets": tokens[at:]}

    return cut(runs)
