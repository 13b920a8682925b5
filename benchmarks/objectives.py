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

Each finished trial is a line of --results; an interrupted one begins again. Other trials run first
if they are given: `--trials 'muon on ul2, 0.1, 250, 0'`.
"""

import math
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import abilities, optimizers  # noqa: E402
from benchmarks.optimizers import BATCH, ON, PRETRAINING, Comparison, Job, Trial  # noqa: E402

RESULTS = optimizers.RESULTS / "objectives.jsonl"
TEXT = sum(PRETRAINING.lengths.values()) - 16  # tokens of a sequence: twice 7 sentinels and EOS


class Noise(NamedTuple):
    """Span corruption of one kind, see `tasks.objectives.span_corruption.SpanNoise`."""

    density: float = 0.15
    mean_span: float = 3.0
    prefix: str = ""  # of the inputs

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
}
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
    import numpy as np
    import seqio

    from tasks import corpora, vocabularies
    from tasks.objectives.span_corruption import SpanNoise
    from tasks.objectives.ul2 import Denoiser, DenoiserMixture
    from tasks.sources import CorpusSource

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
    import numpy as np

    number = min(len(found.rows) for found in examples.values())
    order = np.random.default_rng(trial.seed).permutation(number)
    for step in range(trial.steps):
        noises = stages[step * len(stages) // trial.steps]
        parts = np.array_split(order[step * BATCH : (step + 1) * BATCH], len(noises))
        yield [
            optimizers.batch_of(examples[noise].rows[part], examples[noise].inputs_length)
            for noise, part in zip(noises, parts, strict=True)
        ]


def train(trial: Trial, corpus: pathlib.Path, work: pathlib.Path) -> dict:
    """Train on an objective; return the result on span corruption, see `optimizers.fit`."""
    from t5x import models
    from t5x.examples.t5 import network

    stages = stages_of(trial)
    noises = dict.fromkeys(noise for stage in stages for noise in stage)
    examples = {noise: prepare(noise, corpus, work) for noise in noises}
    validation = optimizers.prepare(PRETRAINING, corpus, work)["validation"]
    model = optimizers.model_of(trial, network.Transformer, models.EncoderDecoderModel)
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
