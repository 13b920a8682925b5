"""Steps that each optimizer needs for the same loss: span corruption on real text, tuned rates.

    python benchmarks/optimizers.py run --corpus /data/ro --work /tmp/optimizers
    python benchmarks/optimizers.py table --png docs/optimizers.png

The corpus is a folder of train*.jsonl and validation*.jsonl with a column `text`. `run` makes a
vocabulary of 2,048 pieces and a fixed list of examples (128 input tokens, 29 target tokens), then
trains a T5 1.1 of 2.1 million parameters on batches of 64: for each optimizer a sweep of learning
rates at the shortest budget, then the best rate with three seeds at every budget. All optimizers
see the same examples in the same order; a seed sets the initial parameters and that order. Rates
warm up over the first tenth and fall to zero in a straight line, but for `adafactor_rsqrt`, the
recipe of T5X: it stays flat for a tenth and then falls with 1 / sqrt(step). Losses are compared at
the end of each schedule only.

Each finished trial is a line of --results, and is not repeated; an interrupted trial is. `table`
reads these lines alone. Other trials run first if they are given (optimizer, rate, steps, seed):
`--trials 'muon matrix_rate=0.4, 0.05, 250, 0'`.
"""

import ast
import dataclasses
import itertools
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import abilities  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "optimizers.jsonl"
VOCABULARY_SIZE = 2048
LENGTHS = {"inputs": 128, "targets": 29}  # 145 tokens of text: density 0.15, spans of 3
BATCH = 64
VALIDATION_BATCHES = 16
MODEL = {
    "emb_dim": 128, "num_heads": 4, "head_dim": 32, "mlp_dim": 256,
    "num_encoder_layers": 4, "num_decoder_layers": 4,
    "mlp_activations": ("gelu", "linear"), "dropout_rate": 0.0,
}  # fmt: skip
BUDGETS = (250, 500, 1000)
SEEDS = (0, 1, 2)
LOGGED = 10  # steps between two points of the curve
# The first rates of each sweep; it is extended until the best rate is not the first or last.
RATES = {
    "adafactor_rsqrt": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "adafactor": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "adamw_scaled": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "muon": (0.05, 0.1, 0.2, 0.4, 0.8),
}
TASKS = """
from tasks import corpora
from tasks.sources import CorpusSource

corpora.add("optimizers", CorpusSource({corpus!r}), {vocabulary!r}, cedilla=True)
"""


@dataclasses.dataclass(frozen=True, order=True)
class Trial:
    """One training run: rate is the peak."""

    optimizer: str  # a name in RATES, perhaps with settings: "muon matrix_rate=0.4"
    rate: float
    steps: int
    seed: int


# The data: made once, the same for all trials.


def prepare(corpus: pathlib.Path, work: pathlib.Path) -> dict:
    """Return arrays `train` and `validation` of examples [N, 157] uint16, inputs then targets."""
    import numpy as np

    work.mkdir(parents=True, exist_ok=True)
    examples = work / "examples.npz"
    if not examples.exists():
        vocabulary = train_vocabulary(corpus, work)
        rows = {"train": max(BUDGETS) * BATCH, "validation": VALIDATION_BATCHES * BATCH}
        exec(TASKS.format(corpus=str(corpus), vocabulary=str(vocabulary)), {})
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
        flags = ["--corpus", str(text), "--size", str(VOCABULARY_SIZE), "--out", str(model)]
        abilities.call(work, "vocabulary.train", *flags)
    return model


def first_examples(split: str, number: int):
    """Return the first examples of a split, [number, 157] uint16."""
    import numpy as np
    import seqio

    dataset = seqio.get_mixture_or_task("optimizers").get_dataset(
        LENGTHS, split, shuffle=split == "train", seed=0, num_epochs=None
    )
    found = np.zeros((number, sum(LENGTHS.values())), np.uint16)
    rows = (each for each in dataset.as_numpy_iterator() if len(each["targets"]) == 29)
    for row, example in zip(found, rows, strict=False):
        row[:] = np.concatenate([example["inputs"], example["targets"]])
    return found


def batches(examples, seed: int) -> Iterator[dict]:
    """Return the batches of an epoch in the order of `seed`."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(examples))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        rows = examples[order[start : start + BATCH]].astype(np.int32)
        inputs, targets = np.split(rows, [LENGTHS["inputs"]], axis=1)
        shifted = np.pad(targets[:, :-1], ((0, 0), (1, 0)))
        yield {
            "encoder_input_tokens": inputs,
            "decoder_input_tokens": shifted,
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


def run(trial: Trial, data: dict) -> dict:
    """Return the result of a trial: loss in nats a target token, CPU seconds, the curve."""
    import functools

    import jax
    import seqio

    from t5x import models, train_step
    from t5x.examples.t5 import network
    from t5x.partitioning import PjitPartitioner
    from t5x.train_state import initial_state, state_specs

    config = network.T5Config(vocab_size=VOCABULARY_SIZE, **MODEL)
    vocabulary = seqio.PassThroughVocabulary(VOCABULARY_SIZE, eos_id=1)
    model = models.EncoderDecoderModel(
        network.Transformer(config), vocabulary, vocabulary, optimizer_of(trial.optimizer),
        z_loss=1e-4, loss_normalizing_factor=BATCH * LENGTHS["targets"],
    )  # fmt: skip
    specs = state_specs(model, PjitPartitioner(num_partitions=1))
    state = initial_state(model, specs, jax.random.key(trial.seed))
    step = functools.partial(
        train_step.train_step, loss_fn=model.loss_fn, optimizer=model.optimizer_def,
        axes=specs.axes, learning_rate_fn=rate_of(trial),
    )  # fmt: skip
    compiled = jax.jit(step, donate_argnums=0)
    evaluate = jax.jit(functools.partial(train_step.eval_step, loss_fn=model.loss_fn))
    nats = lambda sums: float(sums["cross_ent_loss"] / sums["target_tokens"])

    curve, recent, used, started = [], [], 0.0, time.monotonic()
    examples = itertools.islice(batches(data["train"], trial.seed), trial.steps)
    for number, batch in enumerate(examples, 1):
        begun = time.process_time()
        state, sums = compiled(state, batch, jax.random.key(0))
        recent.append(nats(sums))
        if number > 1:  # the first compiles
            used += time.process_time() - begun
        if number % LOGGED == 0:
            curve.append(round(statistics.mean(recent), 4))
            recent = []
    losses = [nats(evaluate(state.params, batch)) for batch in batches(data["validation"], 0)]
    return {
        **dataclasses.asdict(trial),
        "loss": statistics.mean(losses),
        "core_seconds_a_step": used / max(trial.steps - 1, 1),
        "seconds": time.monotonic() - started,
        "parameters": sum(x.size for x in jax.tree.leaves(state.params)),
        "curve": curve,
    }


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


def best_rate(optimizer: str, results: dict[Trial, dict]) -> float | None:
    """Return the best rate of a complete sweep, None if a rate of it is to be tried."""
    return None if next_rate(optimizer, results) else min(sweep(optimizer, results))[1]


def sweep(optimizer: str, results: dict[Trial, dict]) -> list[tuple[float, float]]:
    """Return pairs (loss, rate) at the shortest budget with the first seed."""
    return [
        (finite(result), trial.rate)
        for trial, result in results.items()
        if (trial.optimizer, trial.steps, trial.seed) == (optimizer, BUDGETS[0], SEEDS[0])
    ]


def next_rate(optimizer: str, results: dict[Trial, dict]) -> float | None:
    """Return the next rate to try, None when the best one has neighbours on both sides."""
    tried = {rate: loss for loss, rate in sweep(optimizer, results)}
    for rate in RATES[optimizer]:
        if rate not in tried:
            return rate
    best = min(tried, key=tried.__getitem__)
    if best == min(tried):
        return best / 2
    return best * 2 if best == max(tried) else None


def next_trial(results: dict[Trial, dict], first: Iterable[Trial] = ()) -> Trial | None:
    """Return the next trial: `first`, all sweeps, then the best rates, short budgets first."""
    for trial in first:
        if trial not in results:
            return trial
    for optimizer in RATES:
        rate = next_rate(optimizer, results)
        if rate:
            return Trial(optimizer, rate, BUDGETS[0], SEEDS[0])
    for steps in BUDGETS:
        for seed in SEEDS:
            for optimizer in RATES:
                trial = Trial(optimizer, best_rate(optimizer, results), steps, seed)
                if trial not in results:
                    return trial
    return None


def at_best(optimizer: str, steps: int, results: dict[Trial, dict]) -> list[dict]:
    """Return the results of all seeds at the best rate."""
    rate = best_rate(optimizer, results)
    wanted = (Trial(optimizer, rate, steps, seed) for seed in SEEDS) if rate else ()
    return [results[trial] for trial in wanted if trial in results]


def cost(optimizer: str, results: dict[Trial, dict]) -> float:
    """Return the median core-seconds of a step."""
    return statistics.median(
        result["core_seconds_a_step"]
        for trial, result in results.items()
        if trial.optimizer == optimizer
    )


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


def times_as_many(optimizer: str, steps: int, other: str, results: dict[Trial, dict]) -> str:
    """Return how many times the steps, and core-hours, `other` needs for the same loss."""
    losses: dict[int, dict[int, float]] = {}
    for budget in BUDGETS:
        for result in at_best(other, budget, results):
            losses.setdefault(result["seed"], {})[budget] = finite(result)
    found = []
    for result in at_best(optimizer, steps, results):
        needed = steps_needed(finite(result), losses.get(result["seed"], {}))
        if needed == math.inf:
            return f"more than {max(losses[result['seed']]) / steps:.2f}"
        if needed:
            found.append(needed / steps)
    if not found:
        return ""
    spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
    hours = statistics.mean(found) * cost(other, results) / cost(optimizer, results)
    return f"{statistics.mean(found):.2f}{spread} ({len(found)}), core-hours {hours:.2f}"


def table(results: dict[Trial, dict]) -> Iterator[str]:
    """Return the lines of the tables; the number of seeds is in brackets."""
    yield f"| | rate | {' | '.join(f'{steps:,} steps' for steps in BUDGETS)} | core-s a step |"
    yield "|---" * (len(BUDGETS) + 3) + "|"
    for optimizer in RATES:
        cells = []
        for steps in BUDGETS:
            losses = [finite(result) for result in at_best(optimizer, steps, results)]
            spread = f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else ""
            cells.append(f"{statistics.mean(losses):.3f}{spread} ({len(losses)})" if losses else "")
        tried = any(trial.optimizer == optimizer for trial in results)
        cells.append(f"{cost(optimizer, results):.2f}" if tried else "")
        yield f"| {optimizer} | {best_rate(optimizer, results) or 'open'} | {' | '.join(cells)} |"
    references = ("adafactor_rsqrt", "adafactor")
    yield from (
        "",
        f"| loss of | steps | {' needs | '.join(references)} needs |",
        "|---|---|---|---|",
    )
    for optimizer in RATES:
        for steps in BUDGETS:
            cells = [
                "" if other == optimizer else times_as_many(optimizer, steps, other, results)
                for other in references
            ]
            if any(cells):
                yield f"| {optimizer} | {steps:,} | {' | '.join(cells)} |"
    others = sorted(trial for trial in results if trial.optimizer not in RATES)
    if others:
        yield from ("", "| other trials | rate | steps | loss |", "|---|---|---|---|")
    for trial in others:
        loss = results[trial]["loss"]
        yield f"| {trial.optimizer} | {trial.rate} | {trial.steps} | {loss:.3f} |"


def draw(results: dict[Trial, dict], path: pathlib.Path):
    """Draw the losses at the best rates against steps and core-hours; bars are deviations.

    Return Matplotlib's figure.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
    for optimizer in RATES:
        found = {steps: at_best(optimizer, steps, results) for steps in BUDGETS}
        found = {steps: each for steps, each in found.items() if each}
        losses = [[finite(result) for result in each] for each in found.values()]
        means = [statistics.mean(each) for each in losses]
        bars = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in losses]
        hours = [steps / 3600 * cost(optimizer, results) for steps in found]
        for axis, places in zip(axes, (list(found), hours), strict=True):
            axis.errorbar(places, means, bars, marker=".", capsize=2, label=optimizer)
    for axis, name in zip(axes, ("steps", "core-hours"), strict=True):
        axis.set_xscale("log")
        axis.set_xlabel(name)
    axes[0].set_xticks(BUDGETS, BUDGETS)
    axes[0].set_ylabel("validation nats a token")
    axes[1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return figure


def main() -> None:
    """Run trials until all are done, or print the table."""
    parser = abilities.parser_of(__doc__, "table", RESULTS)
    parser.add_argument("--trials", type=parse, nargs="+", default=[], help="to run first")
    parser.add_argument("--png", type=pathlib.Path, help="plot that table draws")
    values = abilities.parse(parser)
    if values.action == "table":
        results = read(values.results)
        print("\n".join(table(results)))
        if values.png:
            draw(results, values.png)
        return
    data = prepare(values.corpus, values.work)
    values.results.parent.mkdir(parents=True, exist_ok=True)
    while trial := next_trial(read(values.results), values.trials):
        result = run(trial, data)
        abilities.append(values.results, result)
        print(f"{trial}: {result['loss']:.4f}, {result['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
