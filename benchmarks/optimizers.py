"""Steps that each optimizer needs for the same loss: real text, tuned rates, three seeds.

    python benchmarks/optimizers.py run --corpus /data/ro --work /tmp/optimizers
    python benchmarks/optimizers.py table --png docs/optimizers.png
    python benchmarks/optimizers.py run --job diacritics --corpus /data/ro --work /tmp/optimizers

The corpus is a folder of train*.jsonl and validation*.jsonl with a column `text`. `run` makes a
vocabulary of 2,048 pieces and a fixed list of examples, then trains a T5 1.1 of 2.1 million
parameters on batches of 64: for each optimizer a sweep of learning rates at the shortest budget,
then the best rate with three seeds at every budget. All optimizers see the same examples in the
same order; a seed sets that order and, in pretraining, the initial parameters. Rates warm up over
the first tenth and fall to zero in a straight line, but for `adafactor_rsqrt`, the recipe of T5X:
it stays flat for a tenth and then falls with 1 / sqrt(step). Losses are compared at the end of each
schedule only.

The job `pretraining` is span corruption: 128 input tokens, 29 target tokens. `diacritics` restores
diacritics, 64 tokens each, from the parameters that a run of 500 steps of pretraining has left:
"muon after adafactor" fine-tunes with Muon what Adafactor has pretrained. `pretraining_20m` is
span corruption of a T5 of 18 million parameters, by the two best optimizers.

Each finished trial is a line of --results, and is not repeated; an interrupted trial is. `table`
reads these lines alone. Other trials run first if they are given (optimizer, rate, steps, seed):
`--trials 'muon matrix_rate=0.4, 0.05, 250, 0'`. `sophia` is an optimizer of such trials only.
"""

import ast
import dataclasses
import itertools
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import abilities, sophia  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
VOCABULARY_SIZE = 2048
BATCH = 64
VALIDATION_BATCHES = 16
MODEL = {  # 2.1 million parameters
    "emb_dim": 128, "num_heads": 4, "head_dim": 32, "mlp_dim": 256,
    "num_encoder_layers": 4, "num_decoder_layers": 4,
    "mlp_activations": ("gelu", "linear"), "dropout_rate": 0.0,
}  # fmt: skip
# 18 million parameters.
LARGER_MODEL = {**MODEL, "emb_dim": 384, "num_heads": 6, "head_dim": 64, "mlp_dim": 1024}
SEEDS = (0, 1, 2)
LOGGED = 10  # steps between two points of the curve
AFTER = " after "  # in the name of an optimizer that fine-tunes
ON = " on "  # in the name of one that trains on an objective, see `benchmarks.objectives`
RELATIVE = (0.0125, 0.025, 0.05, 0.1, 0.2)
TASKS = """
from tasks import corpora, diacritics
from tasks.sources import CorpusSource

source = CorpusSource({corpus!r})
corpora.add("pretraining", source, {vocabulary!r}, cedilla=True)
diacritics.add("diacritics", source, {vocabulary!r}, lengths={lengths!r})
"""


@dataclasses.dataclass(frozen=True, order=True)
class Trial:
    """One training run: rate is the peak."""

    optimizer: str  # a name in `Job.rates`, perhaps with settings: "muon matrix_rate=0.4"
    rate: float
    steps: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Job:
    """What optimizers are compared at.

    `lengths`: tokens of inputs and targets. `rates`: the first ones of each sweep, which is
    extended until the best rate is not the first or last; a single rate is not swept. `references`:
    the optimizers whose steps are counted for the losses of the others. `model`: T5Config's fields.
    """

    task: str
    lengths: Mapping[str, int]
    budgets: tuple[int, ...]
    rates: Mapping[str, tuple[float, ...]]
    references: tuple[str, ...]
    model: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MODEL)


PRETRAINING = Job(
    "pretraining",
    {"inputs": 128, "targets": 29},  # 141 tokens of text: density 0.15, spans of 3
    (250, 500, 1000),
    {
        "adafactor_rsqrt": RELATIVE, "adafactor": RELATIVE, "adamw_scaled": RELATIVE,
        "muon": (0.05, 0.1, 0.2, 0.4, 0.8),
    },
    ("adafactor_rsqrt", "adafactor"),
)  # fmt: skip
PRETRAINING_20M = dataclasses.replace(
    PRETRAINING,
    budgets=(250, 500),
    rates={"adafactor": (0.025, 0.05, 0.1), "muon": (0.1, 0.2, 0.4)},
    references=("adafactor",),
    model=LARGER_MODEL,
)
# The runs of pretraining that fine-tuning begins with.
STARTS = {
    "adafactor": Trial("adafactor", 0.05, 500, 0),
    "muon": Trial("muon", 0.2, 500, 0),
}
DIACRITICS = Job(
    "diacritics",
    {"inputs": 64, "targets": 64},
    (200,),  # after 100 no model copies its input yet
    {
        f"{optimizer}{AFTER}{start}": (0.05, 0.1, 0.2)
        for start in STARTS
        for optimizer in ("adafactor", "adamw_scaled", "muon")
    },
    ("adafactor after adafactor",),
)
JOBS = {
    "pretraining": PRETRAINING, "pretraining_20m": PRETRAINING_20M, "diacritics": DIACRITICS,
}  # fmt: skip


# The data: made once, the same for all trials.


def prepare(job: Job, corpus: pathlib.Path, work: pathlib.Path) -> dict:
    """Return arrays `train` and `validation` of examples [N, I + T] uint16, inputs then targets."""
    import numpy as np
    import seqio

    work.mkdir(parents=True, exist_ok=True)
    examples = work / f"{job.task}.npz"
    if not examples.exists():
        vocabulary = train_vocabulary(corpus, work)
        longest = max(max(other.budgets) for other in JOBS.values() if other.task == job.task)
        rows = {"train": longest * BATCH, "validation": VALIDATION_BATCHES * BATCH}
        if job.task not in seqio.TaskRegistry.names():
            names = {"corpus": str(corpus), "vocabulary": str(vocabulary)}
            exec(TASKS.format(**names, lengths=DIACRITICS.lengths), {})
        full = job.task == PRETRAINING.task
        arrays = {
            split: first_examples(job.task, job.lengths, split, number, full)
            for split, number in rows.items()
        }
        np.savez(work / "partial.npz", **arrays)
        (work / "partial.npz").rename(examples)
    with np.load(examples) as file:
        return dict(file)


def train_vocabulary(corpus: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    """Return the file of a vocabulary trained on every fourth record of the corpus."""
    model, text = work / "vocabulary.model", work / "text.jsonl"
    if not model.exists():
        lines = (line for path in sorted(corpus.glob("train*.jsonl")) for line in path.open())
        text.write_text("".join(itertools.islice(lines, 0, None, 4)))
        flags = ["--corpus", str(text), "--size", str(VOCABULARY_SIZE), "--out", str(model)]
        flags += ["--cedilla"]
        abilities.call(work, "vocabulary.train", *flags)
    return model


def first_examples(task: str, lengths: Mapping[str, int], split: str, number: int, full: bool):
    """Return the first examples of a split, [number, I + T] uint16, padded with 0.

    `full`: leave out examples of shorter targets.
    """
    import numpy as np
    import seqio

    dataset = seqio.get_mixture_or_task(task).get_dataset(
        lengths, split, shuffle=split == "train", seed=0, num_epochs=None
    )
    found = np.zeros((number, sum(lengths.values())), np.uint16)
    examples = dataset.as_numpy_iterator()
    if full:  # the last chunk of an epoch is shorter
        examples = (each for each in examples if len(each["targets"]) == lengths["targets"])
    for row, example in zip(found, examples, strict=False):
        row[: len(example["inputs"])] = example["inputs"]
        row[lengths["inputs"] :][: len(example["targets"])] = example["targets"]
    return found


def batches(job: Job, examples, seed: int) -> Iterator[dict]:
    """Return the batches of an epoch in the order of `seed`."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(examples))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        yield batch_of(examples[order[start : start + BATCH]], job.lengths["inputs"])


def batch_of(rows, inputs_length: int) -> dict:
    """Return the batch of examples [B, I + T]."""
    import numpy as np

    inputs, targets = np.split(rows.astype(np.int32), [inputs_length], axis=1)
    return {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": np.pad(targets[:, :-1], ((0, 0), (1, 0))),
        "decoder_target_tokens": targets,
        "decoder_loss_weights": (targets != 0).astype(np.int32),
    }


def start_of(trial: Trial, corpus: pathlib.Path, work: pathlib.Path) -> dict | None:
    """Return the parameters that a trial begins with, by path, and train them if need be."""
    import numpy as np
    from flax import traverse_util

    name = trial.optimizer.partition(AFTER)[2]
    if not name:
        return None
    stored = work / f"start_{name}.npz"
    if not stored.exists():
        print(f"pretraining for {trial.optimizer!r}", flush=True)
        data = prepare(PRETRAINING, corpus, work)
        _, params = train(PRETRAINING, STARTS[name], data)
        np.savez(work / "partial.npz", **traverse_util.flatten_dict(params, sep="/"))
        (work / "partial.npz").rename(stored)
    with np.load(stored) as file:
        return traverse_util.unflatten_dict(dict(file), sep="/")


# One trial.


def optimizer_of(name: str):
    """Return the optimizer definition that `Trial.optimizer` names."""
    from t5x import adafactor, optimizers

    name, *pairs = name.partition(AFTER)[0].partition(ON)[0].split()
    settings = {key: ast.literal_eval(value) for key, _, value in (p.partition("=") for p in pairs)}
    if name.startswith("adafactor"):
        rules = adafactor.standard_logical_factor_rules()
        return adafactor.Adafactor(decay_rate=0.8, logical_factor_rules=rules, **settings)
    return (sophia.sophia if name == "sophia" else getattr(optimizers, name))(**settings)


def rate_of(trial: Trial):
    """Return the schedule of a trial."""
    from t5x.schedules import create_learning_rate_scheduler

    warmup = max(trial.steps // 10, 1)
    if trial.optimizer == "adafactor_rsqrt":
        return create_learning_rate_scheduler(
            "constant * rsqrt_normalized_decay", trial.rate, warmup_steps=warmup
        )
    return create_learning_rate_scheduler(
        "constant * linear_warmup * linear_decay_to_zero", trial.rate, warmup_steps=warmup,
        total_steps=trial.steps,
    )  # fmt: skip


def train(job: Job, trial: Trial, data: dict, start: dict | None = None) -> tuple[dict, dict]:
    """Train a T5 on the examples of a job; see `fit`."""
    from t5x import models
    from t5x.examples.t5 import network

    model = model_of(trial, network.Transformer, models.EncoderDecoderModel, job.model)
    steps = ((batch,) for batch in batches(job, data["train"], trial.seed))
    return fit(trial, model, steps, batches(job, data["validation"], 0), start)


def model_of(trial: Trial, network_class, model_class, fields: Mapping[str, Any] = MODEL):
    """Return a model of these classes, whose loss is a sum over the target tokens.

    `fields` are those of T5Config but for the vocabulary.
    """
    import seqio

    from t5x.examples.t5 import network

    config = network.T5Config(vocab_size=VOCABULARY_SIZE, **fields)
    vocabulary = seqio.PassThroughVocabulary(VOCABULARY_SIZE, eos_id=1)
    optimizer = optimizer_of(trial.optimizer)
    return model_class(network_class(config), vocabulary, vocabulary, optimizer, z_loss=1e-4)


def mean_loss(model, params, parts: Sequence[dict], rng):
    """Return `loss_fn` of one step's batches, which may differ in shape, a target token."""
    import jax

    sophia.objective = lambda params: mean_loss(model, params, parts, rng)[0]
    found = [model.loss_fn(params, part, rng) for part in parts]
    loss, others = jax.tree.map(lambda *values: sum(values), *found)
    return loss / sum(part["decoder_target_tokens"].size for part in parts), others


def fit(
    trial: Trial,
    model,
    steps: Iterable[Sequence[dict]],
    validation: Iterable[dict],
    start: dict | None = None,
) -> tuple[dict, dict]:
    """Train from the parameters `start`, or initial ones; return the result and the parameters.

    Each of `steps` is a sequence of batches, see `mean_loss`. The result has the loss in nats a
    target token, core-seconds and the curve.
    """
    import functools

    import jax
    import jax.numpy as jnp

    from t5x import train_step
    from t5x.partitioning import PjitPartitioner
    from t5x.train_state import initial_state, state_specs

    specs = state_specs(model, PjitPartitioner(num_partitions=1))
    state = initial_state(model, specs, jax.random.key(trial.seed))
    if start is not None:
        state = dataclasses.replace(state, params=jax.tree.map(jnp.asarray, start))
    step = functools.partial(
        train_step.train_step, loss_fn=functools.partial(mean_loss, model),
        optimizer=model.optimizer_def, axes=specs.axes, learning_rate_fn=rate_of(trial),
    )  # fmt: skip
    compiled = jax.jit(step, donate_argnums=0)
    evaluate = jax.jit(functools.partial(train_step.eval_step, loss_fn=model.loss_fn))
    nats = lambda sums: float(sums["cross_ent_loss"] / sums["target_tokens"])

    curve, recent, timed, seen, started = [], [], [], set(), time.monotonic()
    begun = time.process_time()
    for number, parts in enumerate(itertools.islice(steps, trial.steps), 1):
        state, sums = compiled(state, parts, jax.random.key(0))
        recent.append(nats(sums))
        ended = time.process_time()
        shapes = str(jax.tree.map(jnp.shape, parts))
        if shapes in seen:  # else this step was compiled, too
            timed.append(ended - begun)
        begun = ended
        seen.add(shapes)
        if number % LOGGED == 0:
            curve.append(round(statistics.mean(recent), 4))
            recent = []
    losses = [nats(evaluate(state.params, batch)) for batch in validation]
    result = {
        **dataclasses.asdict(trial),
        "loss": statistics.mean(losses),
        "core_seconds_a_step": statistics.mean(timed or [0.0]),
        "seconds": time.monotonic() - started,
        "parameters": sum(x.size for x in jax.tree.leaves(state.params)),
        "curve": curve,
    }
    return result, jax.device_get(state.params)


# Which trials, and what they say.


def parse(text: str) -> Trial:
    """Return the trial that a flag names, or raise ValueError."""
    optimizer, rate, steps, seed = text.rsplit(",", 3)
    return Trial(optimizer.strip(), float(rate), int(steps), int(seed))


def read(path: pathlib.Path) -> dict[Trial, dict]:
    """Return the results by trial."""
    fields = [field.name for field in dataclasses.fields(Trial)]
    results = abilities.read_results(path)
    return {Trial(*(result[name] for name in fields)): result for result in results}


def finite(result: dict) -> float:
    """Return the loss, infinity for a trial that diverged."""
    return result["loss"] if math.isfinite(result["loss"]) else math.inf


def steps_needed(loss: float, losses: dict[int, float]) -> float | None:
    """Return the steps for a loss, on straight lines in log(steps).

    Args:
      loss: to reach.
      losses: at the end of each budget, by its steps.

    Returns:
      Infinity for a loss below that of all budgets, None for one above, or without budgets.
    """
    points = sorted(losses.items())
    for (low, high_loss), (high, low_loss) in itertools.pairwise(points):
        if low_loss <= loss <= high_loss:
            part = (high_loss - loss) / (high_loss - low_loss)
            return math.exp(math.log(low) + part * math.log(high / low))
    return math.inf if points and loss < min(losses.values()) else None


class Comparison:
    """Which trials of a job are next, and what their results say."""

    def __init__(self, job: Job, results: dict[Trial, dict]):
        self.job, self.results = job, results

    def sweep(self, optimizer: str) -> list[tuple[float, float]]:
        """Return pairs (loss, rate) at the shortest budget with the first seed."""
        wanted = (optimizer, self.job.budgets[0], SEEDS[0])
        return [
            (finite(result), trial.rate)
            for trial, result in self.results.items()
            if (trial.optimizer, trial.steps, trial.seed) == wanted
        ]

    def next_rate(self, optimizer: str) -> float | None:
        """Return the next rate to try, None when the best one has neighbours on both sides.

        A single rate is not swept.
        """
        tried = {rate: loss for loss, rate in self.sweep(optimizer)}
        for rate in self.job.rates[optimizer]:
            if rate not in tried:
                return rate
        if len(self.job.rates[optimizer]) == 1:
            return None
        best = min(tried, key=tried.__getitem__)
        if best == min(tried):
            return best / 2
        return best * 2 if best == max(tried) else None

    def best_rate(self, optimizer: str) -> float | None:
        """Return the best rate of a complete sweep, None if a rate of it is to be tried."""
        return None if self.next_rate(optimizer) else min(self.sweep(optimizer))[1]

    def next_trial(self, first: Iterable[Trial] = ()) -> Trial | None:
        """Return the next trial: `first`, all sweeps, then the best rates, short budgets first."""
        for trial in first:
            if trial not in self.results:
                return trial
        for optimizer in self.job.rates:
            rate = self.next_rate(optimizer)
            if rate:
                return Trial(optimizer, rate, self.job.budgets[0], SEEDS[0])
        for steps in self.job.budgets:
            for seed in SEEDS:
                for optimizer in self.job.rates:
                    trial = Trial(optimizer, self.best_rate(optimizer), steps, seed)
                    if trial not in self.results:
                        return trial
        return None

    def at_best(self, optimizer: str, steps: int) -> list[dict]:
        """Return the results of all seeds at the best rate."""
        rate = self.best_rate(optimizer)
        wanted = (Trial(optimizer, rate, steps, seed) for seed in SEEDS) if rate else ()
        return [self.results[trial] for trial in wanted if trial in self.results]

    def cost(self, optimizer: str) -> float:
        """Return the median core-seconds of a step."""
        return statistics.median(
            result["core_seconds_a_step"]
            for trial, result in self.results.items()
            if trial.optimizer == optimizer
        )

    def times_as_many(self, optimizer: str, steps: int, other: str) -> str:
        """Return how many times the steps, and core-hours, `other` needs for the same loss."""
        losses: dict[int, dict[int, float]] = {}
        for budget in {trial.steps for trial in self.results}:
            for result in self.at_best(other, budget):
                losses.setdefault(result["seed"], {})[budget] = finite(result)
        found, least = [], []  # least: where no budget of `other` was enough
        for result in self.at_best(optimizer, steps):
            needed = steps_needed(finite(result), losses.get(result["seed"], {}))
            if needed == math.inf:
                least.append(max(losses[result["seed"]]) / steps)
            elif needed:
                found.append(needed / steps)
        if not found:
            return f"more than {max(least):.2f}" if least else ""
        spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
        hours = statistics.mean(found) * self.cost(other) / self.cost(optimizer)
        return f"{statistics.mean(found):.2f}{spread} ({len(found)}), core-hours {hours:.2f}"

    def table(self) -> Iterator[str]:
        """Return the lines of the tables; the number of seeds is in brackets."""
        job, budgets = self.job, self.job.budgets
        yield f"| | rate | {' | '.join(f'{n:,} steps' for n in budgets)} | core-s a step |"
        yield "|---" * (len(budgets) + 3) + "|"
        for optimizer in job.rates:
            cells = [str(self.best_rate(optimizer) or "open")]
            for steps in budgets:
                losses = [finite(result) for result in self.at_best(optimizer, steps)]
                spread = f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else ""
                mean = f"{statistics.mean(losses):.3f}" if losses else ""
                cells.append(f"{mean}{spread} ({len(losses)})" if losses else "")
            tried = any(trial.optimizer == optimizer for trial in self.results)
            cells.append(f"{self.cost(optimizer):.2f}" if tried else "")
            yield f"| {optimizer} | {' | '.join(cells)} |"
        yield from ("", f"| loss of | after | {' | '.join(job.references)} |")
        yield "|---" * (2 + len(job.references)) + "|"
        for optimizer in job.rates:
            for steps in budgets:
                cells = [
                    "" if other == optimizer else self.times_as_many(optimizer, steps, other)
                    for other in job.references
                ]
                if any(cells):
                    yield f"| {optimizer} | {steps:,} | {' | '.join(cells)} |"
        others = sorted(trial for trial in self.results if trial.optimizer not in job.rates)
        if others:
            yield from ("", "| other trials | rate | steps | loss |", "|---|---|---|---|")
        for trial in others:
            loss = self.results[trial]["loss"]
            yield f"| {trial.optimizer} | {trial.rate} | {trial.steps} | {loss:.3f} |"

    def draw(self, path: pathlib.Path):
        """Draw the losses at the best rates against steps and core-hours; bars are deviations.

        Return Matplotlib's figure.
        """
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
        for optimizer in self.job.rates:
            by_steps = {steps: self.at_best(optimizer, steps) for steps in self.job.budgets}
            losses = {n: [finite(r) for r in found] for n, found in by_steps.items() if found}
            means = [statistics.mean(each) for each in losses.values()]
            bars = [statistics.stdev(x) if len(x) > 1 else 0.0 for x in losses.values()]
            hours = [steps / 3600 * self.cost(optimizer) for steps in losses]
            for axis, places in zip(axes, (list(losses), hours), strict=True):
                axis.errorbar(places, means, bars, marker=".", capsize=2, label=optimizer)
        for axis, name in zip(axes, ("steps", "core-hours"), strict=True):
            axis.set_xscale("log")
            axis.set_xlabel(name)
        axes[0].set_xticks(self.job.budgets, self.job.budgets)
        axes[0].minorticks_off()
        axes[0].set_ylabel("validation nats a token")
        axes[1].legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(path, dpi=100, metadata={"Software": None})
        return figure


def main() -> None:
    """Run trials until all are done, or print the tables."""
    parser = abilities.parser_of(__doc__, "table", None)
    parser.add_argument("--job", choices=JOBS, default="pretraining")
    parser.add_argument("--trials", type=parse, nargs="+", default=[], help="to run first")
    parser.add_argument("--png", type=pathlib.Path, help="plot that table draws")
    values = abilities.parse(parser)
    job = JOBS[values.job]
    name = "optimizers" if job is PRETRAINING else f"optimizers_{values.job}"
    path = values.results or RESULTS / f"{name}.jsonl"
    if values.action == "table":
        comparison = Comparison(job, read(path))
        print("\n".join(comparison.table()))
        if values.png:
            comparison.draw(values.png)
        return
    data = prepare(job, values.corpus, values.work)
    path.parent.mkdir(parents=True, exist_ok=True)
    while trial := Comparison(job, read(path)).next_trial(values.trials):
        start = start_of(trial, values.corpus, values.work)
        result, _ = train(job, trial, data, start)
        abilities.append(path, result)
        print(f"{trial}: {result['loss']:.4f}, {result['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
