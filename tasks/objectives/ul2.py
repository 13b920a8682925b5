"""UL2's mixture of denoisers: short spans, long spans, much noise and continuations, each by name.

After Tay et al. 2022 (UL2, arXiv:2205.05131, section 3.1 and table 1): seven denoisers in equal
parts, and in front of the inputs a prefix that says of which kind it is.

| prefix | noise density | mean span |                               |
|---|---|---|---|
| [R] | 0.15 | 3, 8 | regular: T5's span corruption |
| [S] | 0.25 | the rest of the text, one span | sequential: continue the text |
| [X] | 0.5 | 3, 8, 64 | extreme: much is hidden, |
| [X] | 0.15 | 64 | or long spans are |

Over 1,000 ids, EOS 1, [S] being 20, a run of 8 tokens (8 x 0.25 = 2 hidden, at the end):

    text             Ana  are  mere  și   pere  ,    dar  nu
    tokens            11   12   13   14   15   16    17   18
    mask               0    0    0    0    0    0     1    1
    inputs      20    11   12   13   14   15   16   999    1
    targets    999    17   18    1

(The weights that were published with the paper call the prefixes [NLU], [S2S] and [NLG].) Each
denoiser cuts runs of its own length, the longest with which inputs, targets and sentinels do. The
runs of a block of text are those of all denoisers in random order, so that one pass over the
corpus serves all, in exactly the parts asked for.

    UL2.lengths(512, vocabulary)                   -> Lengths(tokens=..., targets=...), the longest
    seqio.Task(preprocessors=[..., UL2.preprocess, seqio.preprocessors.append_eos])
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import seqio
import tensorflow as tf

from tasks import vocabularies
from tasks.objectives import span_corruption
from tasks.text.token_chunks import RUNS_A_CALL, seed_of, split_runs, unbatch


@dataclasses.dataclass(frozen=True)
class Denoiser:
    """One way to hide text, its prefix ("" for none), and its part of the mixture."""

    prefix: str
    noise: span_corruption.SpanNoise
    part: int = 1


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several denoisers over one corpus, `part` runs of each in turn."""

    denoisers: tuple[Denoiser, ...]

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary) -> span_corruption.Lengths:
        """Returns the longest run and the longest targets of all denoisers."""
        found = self.each_length(inputs_length, vocabulary)
        return span_corruption.Lengths(*(max(lengths) for lengths in zip(*found, strict=True)))

    def each_length(
        self, inputs_length: int, vocabulary: seqio.Vocabulary
    ) -> list[span_corruption.Lengths]:
        """Returns what fills the inputs of each denoiser, prefix, sentinels and EOS counted.

        Raises:
          ValueError: the vocabulary has no sentinels, cannot spell a prefix, or the inputs are too
            short for one.
        """
        n_sentinels = len(vocabularies.sentinels(vocabulary))
        found = []
        for denoiser in self.denoisers:
            room = inputs_length - len(_prefix(denoiser, vocabulary))
            length = denoiser.noise.fill(room).tokens
            while denoiser.noise.counts(length)[1] > n_sentinels:
                length -= 1
            found.append(span_corruption.Lengths(length, denoiser.noise.corrupted(length)[1]))
        return found

    def preprocess(
        self,
        dataset: tf.data.Dataset,
        sequence_length: Mapping[str, int],
        output_features: Mapping[str, seqio.Feature],
        task: str = "mixture of denoisers",
    ) -> tf.data.Dataset:
        """Turns {"targets": int32 [any]} a document into {"inputs", "targets"}, both before EOS.

        A last run of one token, which cannot be hidden in part, is left out.

        Raises:
          ValueError: the targets are too short, or see `each_length`.
        """
        vocabulary = output_features["targets"].vocabulary
        sentinels = vocabularies.sentinels(vocabulary)
        each = self.each_length(sequence_length["inputs"], vocabulary)
        longest = self.lengths(sequence_length["inputs"], vocabulary)
        span_corruption.check_targets(sequence_length, longest, "a mixture of denoisers", task)
        prefixes = [_prefix(denoiser, vocabulary) for denoiser in self.denoisers]
        prefixes = tf.ragged.constant(prefixes, tf.int32, inner_shape=())
        kinds = self._kinds()
        lengths = [each[kind].tokens for kind in kinds]

        @seqio.map_over_dataset(num_seeds=1)
        def hide(example, seed):
            tokens = example["targets"]
            seeds = tf.random.experimental.stateless_split(seed_of(tokens, seed), 2)
            order = tf.argsort(tf.random.stateless_uniform([len(kinds)], seeds[0]))
            layout = Layout.of(kinds, lengths, order, tf.size(tokens))
            mask = self._mask(layout, [found.tokens for found in each], seeds[1])
            inputs, targets = span_corruption.corrupt_rows(
                tokens[: layout.end], mask[: layout.end], layout.rows, layout.n, sentinels
            )
            inputs = tf.concat([tf.gather(prefixes, layout.kinds[: layout.n]), inputs], 1)
            return {"inputs": inputs, "targets": targets}

        return unbatch(hide(split_runs(dataset, sum(lengths))))

    def _kinds(self) -> list[int]:
        """Which denoiser each run of a block has, before they are shuffled."""
        parts = [i for i, denoiser in enumerate(self.denoisers) for _ in range(denoiser.part)]
        return sorted(parts * max(round(RUNS_A_CALL / len(parts)), 1))

    def _mask(self, layout: "Layout", lengths: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        """Hides each run of a block as its denoiser does, bool [L]."""
        seeds = tf.random.experimental.stateless_split(seed, len(lengths) + 1)
        mask = tf.zeros([layout.size], tf.bool)
        for kind, (denoiser, length) in enumerate(zip(self.denoisers, lengths, strict=True)):
            whole = (layout.kinds == kind) & (layout.begins + length <= layout.size)
            begins = tf.boolean_mask(layout.begins, whole)
            hidden = span_corruption.noise_mask(
                length, seeds[kind], denoiser.noise, tf.size(begins)
            )
            places = begins[:, tf.newaxis] + tf.range(length)
            mask = tf.tensor_scatter_nd_update(
                mask, tf.reshape(places, [-1, 1]), tf.reshape(hidden, [-1])
            )
        return tf.concat([mask[: layout.rest], self._mask_of_rest(layout, seeds[-1])], 0)

    def _mask_of_rest(self, layout: "Layout", seed: tf.Tensor) -> tf.Tensor:
        """Hides what is left at the end of a bounded dataset, less than a run, as its run would."""
        size = layout.size - layout.rest
        kind = layout.kinds[tf.minimum(layout.n_whole, tf.size(layout.kinds) - 1)]
        density = tf.constant([d.noise.density for d in self.denoisers], tf.float64)[kind]
        mean_span = tf.constant([d.noise.mean_span for d in self.denoisers], tf.float64)[kind]
        length = tf.maximum(size, 2)
        hidden, n = span_corruption.counts_tf(length, density, mean_span)
        return span_corruption.random_mask(length, hidden, n, seed)[0, :size]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a block of text is cut: run i, of denoiser `kinds[i]`, begins at `begins[i]`.

    `size` tokens are there; `n_whole` runs lie in them entirely, up to `rest`; what is behind that
    is one run more if it has at least two tokens. `rows`: the run of each token before `end`.
    """

    kinds: tf.Tensor
    begins: tf.Tensor
    size: tf.Tensor
    n_whole: tf.Tensor
    rest: tf.Tensor
    n: tf.Tensor
    end: tf.Tensor
    rows: tf.Tensor

    @classmethod
    def of(cls, kinds: Sequence[int], lengths: Sequence[int], order, size) -> "Layout":
        """Lays runs of `lengths` behind each other in `order`, as far as there is text."""
        lengths = tf.gather(tf.constant(lengths), order)
        ends = tf.cumsum(lengths)
        n_whole = tf.searchsorted(ends, [size], side="right")[0]
        rest = tf.reduce_max(tf.where(ends <= size, ends, 0))
        more = size - rest > 1
        end = tf.where(more, size, rest)
        rows = tf.searchsorted(ends, tf.range(end), side="right")
        n = n_whole + tf.cast(more, tf.int32)
        kinds = tf.gather(tf.constant(kinds), order)
        return cls(kinds, ends - lengths, size, n_whole, rest, n, end, rows)


def _prefix(denoiser: Denoiser, vocabulary: seqio.Vocabulary) -> tuple[int, ...]:
    return vocabularies.ids_of(vocabulary, denoiser.prefix) if denoiser.prefix else ()


def ul2(regular: str = "[R]", sequential: str = "[S]", extreme: str = "[X]") -> Mixture:
    """Returns UL2's seven denoisers with the given prefixes."""
    noises = [
        *((regular, span_corruption.SpanNoise(0.15, mean)) for mean in (3.0, 8.0)),
        (sequential, span_corruption.SpanNoise(0.25, math.inf)),
        *((extreme, span_corruption.SpanNoise(0.5, mean)) for mean in (3.0, 8.0, 64.0)),
        (extreme, span_corruption.SpanNoise(0.15, 64.0)),
    ]
    return Mixture(tuple(Denoiser(prefix, noise) for prefix, noise in noises))


UL2 = ul2()
