"""Steps that each optimizer needs for the same loss: real text, tuned rates, three seeds.

    python benchmarks/optimizers.py run --corpus /data/ro --work /tmp/optimizers
    python benchmarks/optimizers.py table --png docs/optimizers.png

The corpus is a folder of train*.jsonl and validation*.jsonl with a column `text`. `run` makes a
vocabulary of 2,048 pieces and a fixed list of examples, then trains a T5 1.1 of 2.1 million
parameters on batches of 64: for each optimizer a sweep of learning rates at the shortest budget,
then the best rate with three seeds at every budget. All optimizers see the same examples in the
same order; a seed sets that order and the initial parameters. Rates warm up over the first tenth
and fall to zero in a straight line, but for `adafactor_rsqrt`, the recipe of T5X: it stays flat for
a tenth and then falls with 1 / sqrt(step). Losses are compared at the end of each schedule only.

The task is span corruption: 128 input tokens, 29 target tokens. Each finished trial is a line of
--results, and is not repeated; an interrupted trial is. `table` reads these lines alone. Other
trials run first if they are given: `--trials 'muon matrix_rate=0.4, 0.05, 250, 0'` (optimizer,
rate, steps, seed).
"""

import argparse
import ast
import dataclasses
import functools
import itertools
import math
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import study  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "optimizers.jsonl"
TASK = "pretraining"
LENGTHS = {"inputs": 128, "targets": 29}  # 141 tokens of text: density 0.15, spans of 3
VOCABULARY_SIZE = 2048
BATCH = 64
VALIDATION_BATCHES = 16
MODEL = {  # 2.1 million parameters
    "emb_dim": 128, "num_heads": 4, "head_dim": 32, "mlp_dim": 256,
    "num_encoder_layers": 4, "num_decoder_layers": 4,
    "mlp_activations": ("gelu", "linear"), "dropout_rate": 0.0,
}  # fmt: skip
SEEDS = (0, 1, 2)
LOGGED = 10  # steps between two points of the curve
RELATIVE = (0.0125, 0.025, 0.05, 0.1, 0.2)
BUDGETS = (250, 500, 1000)  # steps
# First rates of each sweep, which is extended until the best rate is not the first or last.
RATES: dict[str, tuple[float, ...]] = {
    "adafactor_rsqrt": RELATIVE, "adafactor": RELATIVE, "adamw_scaled": RELATIVE,
    "muon": (0.05, 0.1, 0.2, 0.4, 0.8),
}  # fmt: skip
REFERENCES = ("adafactor_rsqrt", "adafactor")  # their steps to the losses of others are counted


@dataclasses.dataclass(frozen=True, order=True)
class Trial:
    """One training run: rate is the peak."""

    optimizer: str  # a name in RATES, perhaps with settings: "muon matrix_rate=0.4"
    rate: float
    steps: int
    seed: int


# The data: made once, the same for all trials.


def prepare(corpus: pathlib.Path, work: pathlib.Path) -> dict:
    """Return arrays `train` and `validation` of examples [N, I + T] uint16, inputs then targets."""
    import numpy as np

    from tasks import corpora
    from tasks.corpus.source import CorpusSource

    work.mkdir(parents=True, exist_ok=True)
    examples = work / f"{TASK}.npz"
    if not examples.exists():
        vocabulary = train_vocabulary(corpus, work)
        corpora.add(
            TASK,
            CorpusSource(str(corpus), held_out={"validation": 0.01}),
            str(vocabulary),
            cedilla=True,
        )
        rows = {"train": max(BUDGETS) * BATCH, "validation": VALIDATION_BATCHES * BATCH}
        arrays = {split: first_examples(split, number) for split, number in rows.items()}
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
        command = [sys.executable, "-m", "vocabulary.train", "--corpus", str(text), "--cedilla"]
        command += ["--size", str(VOCABULARY_SIZE), "--out", str(model)]
        subprocess.run(command, cwd=ROOT, check=True)
    return model


def first_examples(split: str, number: int):
    """Return the first examples of a split, [number, I + T] uint16, none with shorter targets."""
    import numpy as np
    import seqio

    dataset = seqio.get_mixture_or_task(TASK).get_dataset(
        LENGTHS, split, shuffle=split == "train", seed=0, num_epochs=None
    )
    rows = np.zeros((number, sum(LENGTHS.values())), np.uint16)
    examples = dataset.as_numpy_iterator()
    # The last chunk of an epoch is shorter.
    full = (example for example in examples if len(example["targets"]) == LENGTHS["targets"])
    for row, example in zip(rows, full, strict=False):
        row[: len(example["inputs"])] = example["inputs"]
        row[LENGTHS["inputs"] :] = example["targets"]
    return rows


def batches(examples, seed: int) -> Iterator[dict]:
    """Return the batches of an epoch in the order of `seed`."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(examples))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        rows = examples[order[start : start + BATCH]].astype(np.int32)
        inputs, targets = np.split(rows, [LENGTHS["inputs"]], axis=1)
        yield {
            "encoder_input_tokens": inputs,
            "decoder_input_tokens": np.pad(targets[:, :-1], ((0, 0), (1, 0))),
            "decoder_target_tokens": targets,
            "decoder_loss_weights": np.ones_like(targets),
        }


# One trial.


def optimizer_of(name: str):
    """Return the optimizer definition that `Trial.optimizer` names."""
    from t5x import adafactor, optimizers

    name, *pairs = name.split()
    settings = {key: ast.literal_eval(value) for key, _, value in (p.partition("=") for p in pairs)}
    if name.startswith("adafactor"):
        rules = adafactor.standard_logical_factor_rules()
        return adafactor.Adafactor(decay_rate=0.8, logical_factor_rules=rules, **settings)
    return getattr(optimizers, name)(**settings)


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


def train(trial: Trial, data: dict) -> dict:
    """Train a T5; return its loss in nats a target token, core-seconds of a step, and the curve."""
    import jax
    import seqio

    from t5x import models, train_step
    from t5x.examples.t5 import network
    from t5x.partitioning import PjitPartitioner
    from t5x.train_state import initial_state, state_specs

    config = network.T5Config(vocab_size=VOCABULARY_SIZE, **MODEL)
    vocabulary = seqio.PassThroughVocabulary(VOCABULARY_SIZE, eos_id=1)
    optimizer = optimizer_of(trial.optimizer)
    model = models.EncoderDecoderModel(
        network.Transformer(config), vocabulary, vocabulary, optimizer, z_loss=1e-4
    )
    tokens = BATCH * LENGTHS["targets"]

    def mean_loss(params, batch, rng):
        loss, sums = model.loss_fn(params, batch, rng)
        return loss / tokens, sums

    specs = state_specs(model, PjitPartitioner(num_partitions=1))
    state = initial_state(model, specs, jax.random.key(trial.seed))
    step = functools.partial(
        train_step.train_step, loss_fn=mean_loss, optimizer=model.optimizer_def, axes=specs.axes,
        learning_rate_fn=rate_of(trial),
    )  # fmt: skip
    compiled = jax.jit(step, donate_argnums=0)
    evaluate = jax.jit(functools.partial(train_step.eval_step, loss_fn=model.loss_fn))
    nats = lambda sums: float(sums["cross_ent_loss"] / sums["target_tokens"])

    losses, ends, started = [], [], time.monotonic()
    for batch in itertools.islice(batches(data["train"], trial.seed), trial.steps):
        state, sums = compiled(state, batch, jax.random.key(0))
        losses.append(nats(sums))
        ends.append(time.process_time())
    curve = [statistics.mean(losses[i : i + LOGGED]) for i in range(0, trial.steps, LOGGED)]
    validation = [nats(evaluate(state.params, b)) for b in batches(data["validation"], 0)]
    return {
        **dataclasses.asdict(trial),
        "loss": statistics.mean(validation),
        "core_seconds_a_step": (ends[-1] - ends[0]) / (len(ends) - 1),  # the first one compiles
        "seconds": time.monotonic() - started,
        "parameters": sum(x.size for x in jax.tree.leaves(state.params)),
        "curve": [round(loss, 4) for loss in curve],
    }


# Which trials, and what they say.


def parse(text: str) -> Trial:
    """Return the trial that a flag names, or raise ValueError."""
    optimizer, rate, steps, seed = text.rsplit(",", 3)
    return Trial(optimizer.strip(), float(rate), int(steps), int(seed))


def read(path: pathlib.Path) -> dict[Trial, dict]:
    """Return the results by trial."""
    fields = [field.name for field in dataclasses.fields(Trial)]
    return {Trial(*(line[name] for name in fields)): line for line in study.read(path)}


def finite(result: dict) -> float:
    """Return the loss, infinity for a trial that diverged."""
    return result["loss"] if math.isfinite(result["loss"]) else math.inf


class Comparison:
    """Which trials are next, and what their results say."""

    def __init__(self, results: dict[Trial, dict]):
        self.results = results

    def sweep(self, optimizer: str) -> list[tuple[float, float]]:
        """Return pairs (loss, rate) at the shortest budget with the first seed."""
        return [
            (finite(result), trial.rate)
            for trial, result in self.results.items()
            if (trial.optimizer, trial.steps, trial.seed) == (optimizer, BUDGETS[0], SEEDS[0])
        ]

    def next_rate(self, optimizer: str) -> float | None:
        """Return the next rate to try, None when the best one has neighbours on both sides."""
        tried = {rate: loss for loss, rate in self.sweep(optimizer)}
        for rate in RATES[optimizer]:
            if rate not in tried:
                return rate
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
        for optimizer in RATES:
            rate = self.next_rate(optimizer)
            if rate:
                return Trial(optimizer, rate, BUDGETS[0], SEEDS[0])
        for steps in BUDGETS:
            for seed in SEEDS:
                for optimizer in RATES:
                    trial = Trial(optimizer, self.best_rate(optimizer), steps, seed)
                    if trial not in self.results:
                        return trial
        return None

    def at_best(self, optimizer: str, steps: int) -> list[dict]:
        """Return the results of all seeds at the best rate."""
        rate = self.best_rate(optimizer)
        trials = (Trial(optimizer, rate, steps, seed) for seed in SEEDS) if rate else ()
        return [self.results[trial] for trial in trials if trial in self.results]

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
        ratios, least = [], []  # least: where no budget of `other` was enough
        for result in self.at_best(optimizer, steps):
            needed = study.steps_needed(finite(result), losses.get(result["seed"], {}))
            if needed == math.inf:
                least.append(max(losses[result["seed"]]) / steps)
            elif needed:
                ratios.append(needed / steps)
        if not ratios:
            return f"more than {max(least):.2f}" if least else ""
        spread = f" ± {statistics.stdev(ratios):.2f}" if len(ratios) > 1 else ""
        hours = statistics.mean(ratios) * self.cost(other) / self.cost(optimizer)
        return f"{statistics.mean(ratios):.2f}{spread} ({len(ratios)}), core-hours {hours:.2f}"

    def table(self) -> Iterator[str]:
        """Return the lines of the tables; the number of seeds is in brackets."""
        yield f"| | rate | {' | '.join(f'{n:,} steps' for n in BUDGETS)} | core-s a step |"
        yield "|---" * (len(BUDGETS) + 3) + "|"
        for optimizer in RATES:
            cells = [str(self.best_rate(optimizer) or "open")]
            for steps in BUDGETS:
                losses = [finite(result) for result in self.at_best(optimizer, steps)]
                cells.append(f"{study.mean(losses)} ({len(losses)})" if losses else "")
            tried = any(trial.optimizer == optimizer for trial in self.results)
            cells.append(f"{self.cost(optimizer):.2f}" if tried else "")
            yield f"| {optimizer} | {' | '.join(cells)} |"
        yield from ("", f"| loss of | after | {' | '.join(REFERENCES)} |")
        yield "|---" * (2 + len(REFERENCES)) + "|"
        for optimizer in RATES:
            for steps in BUDGETS:
                cells = [
                    "" if other == optimizer else self.times_as_many(optimizer, steps, other)
                    for other in REFERENCES
                ]
                if any(cells):
                    yield f"| {optimizer} | {steps:,} | {' | '.join(cells)} |"
        others = sorted(trial for trial in self.results if trial.optimizer not in RATES)
        if others:
            yield from ("", "| other trials | rate | steps | loss |", "|---|---|---|---|")
        for trial in others:
            loss = self.results[trial]["loss"]
            yield f"| {trial.optimizer} | {trial.rate} | {trial.steps} | {loss:.3f} |"

    def draw(self, path: pathlib.Path) -> None:
        """Draw the losses at the best rates against steps and core-hours; bars are deviations."""
        with study.picture(path, 2, "validation nats a token", legend=1) as axes:
            for optimizer in RATES:
                by_steps = {steps: self.at_best(optimizer, steps) for steps in BUDGETS}
                losses = {n: list(map(finite, trials)) for n, trials in by_steps.items() if trials}
                means = list(map(statistics.mean, losses.values()))
                bars = [statistics.stdev(x) if len(x) > 1 else 0.0 for x in losses.values()]
                hours = [steps / 3600 * self.cost(optimizer) for steps in losses]
                for axis, places in zip(axes, (list(losses), hours), strict=True):
                    axis.errorbar(places, means, bars, marker=".", capsize=2, label=optimizer)
            for axis, name in zip(axes, ("steps", "core-hours"), strict=True):
                axis.set_xlabel(name)
            study.set_ticks(axes[0], BUDGETS)


def main() -> None:
    """Run trials until all are done, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, help="folder of the vocabulary and examples")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--trials", type=parse, nargs="+", default=[], help="to run first")
    parser.add_argument("--png", type=pathlib.Path, help="plot that table draws")
    values = parser.parse_args()
    if values.action == "table":
        comparison = Comparison(read(values.results))
        print("\n".join(comparison.table()))
        if values.png:
            comparison.draw(values.png)
        return
    if not (values.corpus and values.work):
        parser.error("run needs --corpus and --work")
    data = prepare(values.corpus.resolve(), values.work.resolve())
    while trial := Comparison(read(values.results)).next_trial(values.trials):
        result = train(trial, data)
        study.add(values.results, result)
        print(f"{trial}: {result['loss']:.4f}, {result['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
