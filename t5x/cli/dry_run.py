"""The table of a dry run: one line a check, as preflight prints it."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from common import tables
from common.embedding import ROW_MULTIPLE, padded_rows
from common.errors import UserError
from common.source import CorpusTask
from common.tables import FAILS, NOT_CHECKED, CheckResult, amount, counted, ok, time_span, warning
from t5x.array_types import PyTree
from t5x.checkpointing.restore import Match
from t5x.input_pipeline import mixed
from t5x.input_pipeline.config import DatasetConfig, Datasets
from t5x.input_pipeline.corpora import Corpora
from t5x.loop.triggers import TrainingPlan
from t5x.monitoring import flops
from t5x.partitioning import PjitPartitioner
from t5x.start.vocabulary import embedding_rows
from t5x.trainer import Trainer

LONGEST_SECONDS = 31 * 24 * 3600.0
_OTHER_START = "start from another checkpoint, unless this is meant"


def show(checks: Mapping[str, CheckResult | str]) -> None:
    """Print checks by name, on the first host; a text is the figure of a check that is passed.

    Raises:
      UserError: one of them fails.
    """
    results = {name: ok(row) if isinstance(row, str) else row for name, row in checks.items()}
    rows = [dataclasses.replace(row, check=name) for name, row in results.items()]
    if jax.process_index() == 0:
        tables.show(rows)
    for row in rows:
        if row.verdict == FAILS:
            raise UserError(row.check, why=f": {row.figure}", to_set=row.to_set)


def show_inference(cfg: DatasetConfig, paths: Sequence[str], output_dir: str) -> None:
    """Print what a dry run of an evaluation or of inference has checked."""
    results = f"{output_dir} can be written"
    show({"data": data({"": cfg}), "checkpoints": ", ".join(paths), "results": results})


def show_training(trainer: Trainer, cfgs: Datasets, model_dir: str, **more: CheckResult) -> None:
    """Print what a dry run of `t5x.train` or `t5x.precompile` has checked, and `more` checks."""
    train_cfg = cfgs["train"]
    assert train_cfg is not None
    rows = embedding_rows(trainer.model)
    show(
        {
            "data": data(cfgs),
            "model": model(trainer.specs.state.params, trainer.model.output_vocabulary, rows),
            "batch": batch(train_cfg.batch_size, trainer.partitioner),
            **more,
            "MODEL_DIR": f"{model_dir} can be written",
        }
    )


def steps(plan: TrainingPlan, first: int) -> CheckResult:
    """Return which steps are trained, and how often the run saves and evaluates."""
    figure = f"{first:,} to {plan.total_steps:,}, saved {saves(plan, first)}"
    figure += f", evaluated {_often(plan.eval_period)}"
    if first >= plan.total_steps:
        to_set = f"set TRAIN_STEPS above {first}, or TRAIN_STEPS_RELATIVE, if it is set, to more"
        return warning(f"{figure}: none is left", to_set)
    return ok(figure)


def saves(plan: TrainingPlan, first: int) -> str:
    """Return when a run that begins at step `first` saves."""
    pinned = plan.checkpoint_steps
    parts = [_often(plan.save_period)] if plan.save_period or not pinned else []
    if alone := [step for step in pinned if first < step < plan.total_steps]:
        parts.append(f"at {counted(len(alone), 'step')} of checkpoint_steps")
    if pinned and not plan.save_period:
        parts.append("at the end")
    return " and ".join(parts)


def _often(period: int | None) -> str:
    return f"every {period:,}" if period else "never"


def mixture(
    phases: Mapping[int, Mapping[str, float]], follows: str | None
) -> dict[str, CheckResult]:
    """Return a line on rates that change with the step, and on data that `follows` other data."""
    figures = []
    for first, shares in sorted(phases.items()):
        parts = (f"{100 * share:.3g} % {part}" for part, share in shares.items() if share)
        figures.append(f"from step {first:,}: {', '.join(parts)}")
    figures += [follows] if follows else []
    return {"mixture": ok("; ".join(figures))} if figures else {}


def corpora(
    cfg: DatasetConfig, first: int, last: int, mixture_steps: int = 0
) -> dict[str, CheckResult]:
    """Return what samples of the training corpora show, and how often they are read, by name.

    `mixture_steps` is the number of steps for which the mixture was read before step `first`.
    """
    looks = Corpora(cfg).looks()
    several = len(mixed.task_shares(cfg.provider, mixture_steps, mixture_steps + last - first)) > 1
    rows: dict[str, CheckResult] = {}
    for task, lines in looks.items():
        of_task = f" of {task}" if several else ""
        rows |= {f"{row.check}{of_task}": row for row in lines}
        numbers = next((row.numbers for row in lines if row.check == "pieces"), {})
        if numbers.get("corpus_tokens") and numbers["row_tokens"]:
            rows[f"epochs{of_task}"] = epochs(cfg, task, numbers, first, last, mixture_steps)
    return rows


def epochs(
    cfg: DatasetConfig,
    task: str,
    numbers: Mapping[str, Any],
    first: int,
    last: int,
    mixture_steps: int = 0,
) -> CheckResult:
    """Return how often the corpus of a task is read from step `first` to step `last`.

    `numbers` are those of the line "pieces", see `common.source.CorpusTask.look`. `mixture_steps`
    is as in `corpora`.
    """
    left = max(last - first, 0)
    # If the rate changes meanwhile, this is the mean.
    share = mixed.task_shares(cfg.provider, mixture_steps, mixture_steps + last - first)[task]
    read = left * share * numbers["row_tokens"] * cfg.batch_size
    tokens, most = numbers["corpus_tokens"], numbers["most_epochs"]
    limits = {t.name: t.most_epochs for t in cfg.tasks_with_split if isinstance(t, CorpusTask)}
    if limit := limits.get(task):  # the others then take over its share
        read = min(read, limit * tokens)
    count = read / tokens
    times = counted(count, "epoch", ".2g")
    figure = f"{amount(read)} tokens are {times} of {amount(tokens)}{numbers['known']}"
    result = {"tokens": tokens, "read": read, "epochs": count}
    if round(count) <= most:  # the limit is no cliff, and recipes aim at it by an estimate
        return ok(figure, numbers=result)
    is_phased = len(mixed.phases_of(cfg.provider)) > 1
    enough = first + int(left * most / count)
    fewer = "a lower rate" if is_phased else f"TRAIN_STEPS to about {enough:,}"
    return warning(
        f"{figure}: beyond {most:.0f} a text teaches less and less",
        f"set {fewer}, or take a larger corpus",
        numbers=result,
    )


def duration(trainer: Trainer, batch: Any, plan: TrainingPlan, first: int) -> CheckResult:
    """Return the least time that the steps from `first` take here, on batches of these shapes.

    It is the time of their matrix products at the devices' peak; a CPU's peak is measured.
    """
    devices = trainer.partitioner.mesh.devices.flat
    work, kind = flops.batch_flops(trainer.model, batch), devices[0].device_kind
    on_cpu = devices[0].platform == "cpu"
    peak = cpu_flops() if on_cpu else len(devices) * (flops.peak_flops(kind) or 0.0)
    if not (work and peak):
        return CheckResult(NOT_CHECKED, f"FLOP of this network, or the peak of {kind}, are unknown")
    count = max(plan.total_steps - first, 0)
    seconds = count * work / peak
    where = "this CPU" if on_cpu else f"{counted(len(devices), 'device')} ({kind})"
    figure = f"at least {time_span(seconds)} for {counted(count, 'step')} on {where}"
    figure += f": {amount(work)}FLOP a step, {amount(peak)}FLOP/s"
    if seconds > LONGEST_SECONDS:
        return warning(figure, "set TRAIN_STEPS lower, or take a smaller model or more devices")
    return ok(figure)


def cpu_flops(size: int = 1024) -> float:
    """Return the FLOP/s of this CPU in a product of matrices, float32 [size, size]."""
    matrix, product = jnp.ones((size, size), jnp.float32), jax.jit(jnp.dot)
    product(matrix, matrix).block_until_ready()  # compiles it
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        seconds.append(time.perf_counter() - started)
    return 2.0 * size**3 / min(seconds)


def data(cfgs: Datasets) -> str:
    """Return the tasks and splits whose first records were read."""
    name = lambda cfg: f"{cfg.provider.name} ({cfg.split})"
    names = dict.fromkeys(name(cfg) for cfg in cfgs.values() if cfg is not None)
    return f"{', '.join(names)}: the first records can be read"


def batch(rows: int, partitioner: PjitPartitioner) -> str:
    """Return how a batch is spread over the devices that are there."""
    copies, model = partitioner.mesh.devices.shape
    kind = partitioner.mesh.devices.flat[0].device_kind
    devices = f"{counted(copies * model, 'device')} ({kind})"
    copy = f"{counted(copies, 'copy')} of the model on {counted(model, 'device')} each"
    return f"{rows} rows, {devices}: {copy}"


def model(params: PyTree, vocabulary: Any, rows: int | None = None) -> CheckResult:
    """Return the size of the model, and how its vocabulary suits the rows of its embedding."""
    size = sum(math.prod(x.shape) for x in jax.tree.leaves(params))
    path = getattr(vocabulary, "sentencepiece_model_file", type(vocabulary).__name__)
    ids = vocabulary.vocab_size
    figure = f"{size / 1e6:,.1f} M parameters; {path}, {ids:,} ids"
    padded = padded_rows(ids)
    if rows is not None and rows > padded + ROW_MULTIPLE:
        unused = f"{rows - ids:,} of {rows:,} rows of the embedding are never used"
        return warning(f"{figure}: {unused}", f"set network.*.vocab_size to {padded}")
    return ok(figure)


def start(path: str | None, matched: Match | None) -> CheckResult:
    """Return which checkpoint training starts from, and how much of it the model takes."""
    if path is None or matched is None:
        return ok("from scratch")
    figure = f"{path}: {len(matched.sources)} arrays fit the model"
    absent = [name for name in matched.leaves if name not in matched.sources]
    parameters = [name for name in absent if name.startswith("target/")]
    if parameters or matched.ignored:
        misfits = [f"{len(parameters)} start from scratch"] if parameters else []
        ignored = f"{len(matched.ignored)} unknown to the model are ignored"
        misfits += [ignored] if matched.ignored else []
        return warning(f"{figure}, {' and '.join(misfits)}", _OTHER_START)
    if matched.why_no_optimizer:
        new = f"the optimizer state is new: {matched.why_no_optimizer}"
        return warning(f"{figure}; {new}", _OTHER_START)
    return ok(figure)
