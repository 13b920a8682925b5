"""Losses of span corruption after other objectives of pretraining, at equal steps and compute.

    python benchmarks/objectives.py run --corpus /data/ro --work /tmp/objectives
    python benchmarks/objectives.py table

Model, corpus, vocabulary, batches of 64 sequences and validation are those of pretraining in
`benchmarks/optimizers.py`, so every objective is measured by T5's own: density 0.15, mean span 3,
nats a target token. All are trained by Muon at a rate of 0.2. "muon on span_corruption" is what
`optimizers.py` calls "muon": the same examples in the same order, timed again beside the others.

A sequence has 141 tokens of text, or one or two more where the lengths of inputs and targets stay
the same. So all objectives read the same text, and differ in the time of a step, since the lengths
of inputs and targets follow from the noise: the table has a column of core-hours.

Each objective is a list of stages of equally many steps, and a stage one of noises that share the
batch. They are separate arrays, so nothing is padded. UL2's regular noise has no prefix, since the
validation has none; the other prefixes are pieces that the vocabulary keeps for sentinels.

"replaced_tokens" is simpler than SpacTor (Ye et al. 2024, arXiv 2401.13160), whose generator is a
network trained beside the model. Here a bigram model of the inputs draws 15 % of the visible tokens
from what fits both neighbours, in the first half of the steps. A linear layer on the encoder's
outputs says of each token whether it was replaced; span corruption stays beside. So the detection
costs little, but it is easier than with a generator that reads all of the text.

Each finished trial is a line of --results; an interrupted one begins again. Other trials run first
if they are given: `--trials 'muon on ul2, 0.1, 250, 0'`.
"""

import math
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import abilities, optimizers  # noqa: E402
from benchmarks.optimizers import (  # noqa: E402
    BATCH,
    ON,
    PRETRAINING,
    VOCABULARY_SIZE,
    Comparison,
    Job,
    Trial,
)
from t5x import models  # noqa: E402
from t5x.examples.t5 import network  # noqa: E402

RESULTS = optimizers.RESULTS / "objectives.jsonl"
TEXT = sum(PRETRAINING.lengths.values()) - 16  # tokens of a sequence: twice 7 sentinels and EOS


class Noise(NamedTuple):
    """Span corruption of one kind, see `tasks.objectives.span_corruption.SpanNoise`."""

    density: float = 0.15
    mean_span: float = 3.0
    prefix: str = ""  # of the inputs
    replaced: float = 0.0  # share of the visible tokens that are replaced, and to be detected

    @property
    def task(self) -> str:
        """Return the name of the task that makes its examples."""
        return f"noise_{self.density:g}_{self.mean_span:g}{'_prefix' if self.prefix else ''}"


PLAIN = Noise()
SEQUENTIAL, EXTREME = "<extra_id_99>", "<extra_id_98>"
UL2 = (
    PLAIN, Noise(0.15, 8.0), Noise(0.25, math.inf, SEQUENTIAL), Noise(0.5, 3.0, EXTREME),
    Noise(0.5, 8.0, EXTREME), Noise(0.5, 64.0, EXTREME), Noise(0.15, 64.0, EXTREME),
)  # fmt: skip
Stages = tuple[tuple[Noise, ...], ...]
OBJECTIVES: Mapping[str, Stages] = {
    "span_corruption": ((PLAIN,),),
    "falling_noise": tuple((Noise(density),) for density in (0.3, 0.25, 0.2, 0.15)),
    "spans_of_2": ((Noise(mean_span=2.0),),),
    "spans_of_5": ((Noise(mean_span=5.0),),),
    "ul2": (UL2,),
    "replaced_tokens": ((PLAIN._replace(replaced=0.15),), (PLAIN,)),
}
ORDINARY = np.arange(3, VOCABULARY_SIZE - 100)  # ids that are no padding, EOS, unknown or sentinel
DETECTION_WEIGHT = 1.0  # nats of detection a token beside nats a target token
JOB = Job(
    PRETRAINING.task,
    PRETRAINING.lengths,
    (250, 500),
    {f"muon{ON}{name}": (0.2,) for name in OBJECTIVES},
    (f"muon{ON}span_corruption",),
)


class Examples(NamedTuple):
    """Examples [N, I + T] uint16 of one noise, and I."""

    rows: object
    inputs_length: int


def lengths_of(noise: Noise, prefix_length: int) -> dict[str, int]:
    """Return the lengths of inputs, prefix and EOS included, and targets for `TEXT`."""
    from tasks.objectives.span_corruption import SpanNoise

    spans = SpanNoise(noise.density, noise.mean_span)
    inputs, _ = spans.corrupted(TEXT)
    return {"inputs": inputs + prefix_length, "targets": spans.lengths(inputs).targets}


def prepare(noise: Noise, corpus: pathlib.Path, work: pathlib.Path) -> Examples:
    """Return the examples of a noise, as many as pretraining has, and make them if need be."""
    import seqio

    from tasks import corpora, vocabularies
    from tasks.objectives.span_corruption import SpanNoise
    from tasks.objectives.ul2 import Denoiser, DenoiserMixture
    from tasks.sources import CorpusSource

    noise = noise._replace(replaced=0.0)
    if noise == PLAIN:
        rows = optimizers.prepare(PRETRAINING, corpus, work)["train"]
        return Examples(rows, PRETRAINING.lengths["inputs"])
    path = optimizers.train_vocabulary(corpus, work)
    vocabulary = vocabularies.sentencepiece(str(path))
    prefix = vocabularies.ids_of(vocabulary, noise.prefix) if noise.prefix else ()
    lengths, stored = lengths_of(noise, len(prefix)), work / f"{noise.task}.npz"
    if not stored.exists():
        print(f"examples of {noise.task}", flush=True)
        objective = SpanNoise(noise.density, noise.mean_span)
        if prefix:
            objective = DenoiserMixture((Denoiser(noise.prefix, objective),))
        if noise.task not in seqio.TaskRegistry.names():
            source = CorpusSource(str(corpus))
            corpora.add(noise.task, source, vocabulary, objective, cedilla=True)
        number = max(PRETRAINING.budgets) * BATCH
        train = optimizers.first_examples(noise.task, lengths, "train", number, full=True)
        np.savez(work / "partial.npz", train=train)
        (work / "partial.npz").rename(stored)
    with np.load(stored) as file:
        return Examples(file["train"], lengths["inputs"])


def stages_of(trial: Trial) -> Stages:
    """Return the stages of a trial's objective, or raise ValueError."""
    name = trial.optimizer.partition(ON)[2]
    if name not in OBJECTIVES:
        raise ValueError(f"objective is {name!r}, but must be one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def steps_of(
    trial: Trial, stages: Stages, examples: Mapping[Noise, Examples]
) -> Iterator[list[dict]]:
    """Yield the batches of each step, one for each noise of its stage.

    The order of the rows is that of pretraining with the same seed.
    """
    number = min(len(found.rows) for found in examples.values())
    order = np.random.default_rng(trial.seed).permutation(number)
    bigrams = {
        noise: Bigrams(found.rows[:, : found.inputs_length])
        for noise, found in examples.items()
        if noise.replaced
    }
    for step in range(trial.steps):
        noises = stages[step * len(stages) // trial.steps]
        parts = np.array_split(order[step * BATCH : (step + 1) * BATCH], len(noises))
        batches = [
            optimizers.batch_of(examples[noise].rows[part], examples[noise].inputs_length)
            for noise, part in zip(noises, parts, strict=True)
        ]
        for noise, batch in zip(noises, batches, strict=True):
            if noise.replaced:
                rng = np.random.default_rng((trial.seed, step))
                inputs = batch["encoder_input_tokens"]
                changed = bigrams[noise].replace(inputs, noise.replaced, rng)
                batch |= {"encoder_input_tokens": changed, "replaced": changed != inputs}
        yield batches


class Bigrams:
    """How often each ordinary token follows another in inputs [N, I]."""

    def __init__(self, rows: np.ndarray):
        pairs = rows[:, :-1].astype(np.int64) * VOCABULARY_SIZE + rows[:, 1:]
        both = np.isin(rows[:, :-1], ORDINARY) & np.isin(rows[:, 1:], ORDINARY)
        counts = np.bincount(pairs[both], minlength=VOCABULARY_SIZE**2)
        self.counts = counts.reshape(VOCABULARY_SIZE, VOCABULARY_SIZE).astype(np.float32)

    def replace(self, inputs: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
        """Return int32 [B, I] in which a share of the ordinary tokens is replaced.

        Tokens between two ordinary ones are chosen, and drawn by how often the one before, and the
        one behind, have been seen beside them. What is drawn may be the token itself.
        """
        ordinary = np.isin(inputs, ORDINARY)
        inner = np.zeros_like(ordinary)
        inner[:, 1:-1] = ordinary[:, 1:-1] & ordinary[:, :-2] & ordinary[:, 2:]
        places = np.argwhere(inner & (rng.random(inputs.shape) < share))
        row, column = places.T
        before, behind = inputs[row, column - 1], inputs[row, column + 1]
        after, ahead = self.counts[before][:, ORDINARY], self.counts[:, behind].T[:, ORDINARY]
        total = self.counts.sum(1)[ORDINARY] + 1
        sums = np.cumsum(after * ahead / total + 1e-9, axis=1, dtype=np.float64)
        drawn = (sums < rng.random(len(places))[:, None] * sums[:, -1:]).sum(1)
        changed = inputs.copy()
        changed[row, column] = ORDINARY[drawn]
        return changed


class DetectingTransformer(network.Transformer):
    """A T5 with a linear layer that says which tokens of the encoder's inputs were replaced."""

    def setup(self):
        """Create the T5 and the layer's weights."""
        super().setup()
        init = nn.with_logical_partitioning(nn.initializers.normal(0.05), ("embed",))
        self.detector = self.param("detector", init, (self.config.emb_dim,), jnp.float32)

    def detect(self, encoded_BID: jax.Array) -> jax.Array:
        """Return logits [B, I] of a replacement."""
        return encoded_BID @ self.detector


class DetectingModel(models.EncoderDecoderModel):
    """An encoder-decoder whose loss has that of detection, where a batch has `replaced` [B, I]."""

    def loss_fn(self, params, batch, dropout_rng):
        """Return the sum of the losses of target tokens, and of detection at the same scale."""
        inputs, settings = batch["encoder_input_tokens"], {"enable_dropout": False}
        encoded = self.module.apply({"params": params}, inputs, method="encode", **settings)
        loss, others = super().loss_fn(params, {**batch, "encoded": encoded}, dropout_rng)
        if "replaced" not in batch:
            return loss, others
        logits = self.module.apply({"params": params}, encoded, method="detect")
        labels = batch["replaced"].astype(jnp.float32)
        found = optax.sigmoid_binary_cross_entropy(logits, labels).mean()
        return loss + DETECTION_WEIGHT * found * batch["decoder_target_tokens"].size, others

    def logits(self, params, batch, dropout_rng=None):
        """Return float32 logits [B, T, V] from `encoded` [B, I, D] of the batch."""
        names = ("encoded", "encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
        values = [batch[name] for name in names]
        settings = {"method": "decode", "enable_dropout": False}
        return self.module.apply({"params": params}, *values, **settings)


def train(trial: Trial, corpus: pathlib.Path, work: pathlib.Path) -> dict:
    """Train on an objective; return the result on span corruption, see `optimizers.fit`."""
    stages = stages_of(trial)
    noises = dict.fromkeys(noise for stage in stages for noise in stage)
    examples = {noise: prepare(noise, corpus, work) for noise in noises}
    validation = optimizers.prepare(PRETRAINING, corpus, work)["validation"]
    detects = any(noise.replaced for noise in noises)
    model = optimizers.model_of(
        trial,
        DetectingTransformer if detects else network.Transformer,
        DetectingModel if detects else models.EncoderDecoderModel,
    )
    steps = steps_of(trial, stages, examples)
    return optimizers.fit(trial, model, steps, optimizers.batches(JOB, validation, 0))[0]


def parse(text: str) -> Trial:
    """Return the trial that a flag names, or raise ValueError."""
    trial = optimizers.parse(text)
    stages_of(trial)
    return trial


def main() -> None:
    """Run trials until all are done, or print the tables."""
    parser = abilities.parser_of(__doc__, "table", RESULTS)
    parser.add_argument("--trials", type=parse, nargs="+", default=[], help="to run first")
    values = abilities.parse(parser)
    if values.action == "table":
        print("\n".join(Comparison(JOB, optimizers.read(values.results)).table()))
        return
    values.results.parent.mkdir(parents=True, exist_ok=True)
    while trial := Comparison(JOB, optimizers.read(values.results)).next_trial(values.trials):
        result = train(trial, values.corpus, values.work)
        abilities.append(values.results, result)
        print(f"{trial}: {result['loss']:.4f}, {result['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
