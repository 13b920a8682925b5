"""What a dry run has checked, as a table: one line a check, as preflight prints it."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax

from common import tables
from common.tables import CheckResult, counted, ok, warning
from t5x.array_types import PyTree
from t5x.checkpointing.restore import Match
from t5x.input_pipeline.config import DatasetConfig
from t5x.loop.triggers import TrainingPlan
from t5x.partitioning import PjitPartitioner
from t5x.trainer import Trainer

ROW_MULTIPLE = 128  # of an embedding, for accelerators and model parallelism
Configs: TypeAlias = Mapping[str, DatasetConfig | None]


def show(checks: Mapping[str, CheckResult | str]) -> None:
    """Print checks by name, on the first host; a text is what was found to be in order."""
    rows = {name: ok(found) if isinstance(found, str) else found for name, found in checks.items()}
    if jax.process_index() == 0:
        tables.show([dataclasses.replace(row, check=name) for name, row in rows.items()])


def show_inference(cfg: DatasetConfig, paths: Sequence[str], output_dir: str) -> None:
    """Print what a dry run of an evaluation or of inference has checked."""
    results_go = f"{output_dir} can be written"
    show({"data": data({"": cfg}), "checkpoints": ", ".join(paths), "results": results_go})


def show_training(trainer: Trainer, cfgs: Configs, model_dir: str, **more: CheckResult) -> None:
    """Print what a dry run of `t5x.train` or `t5x.precompile` has checked; `more` by name."""
    train_cfg = cfgs["train"]
    assert train_cfg is not None
    rows = getattr(getattr(trainer.model.module, "config", None), "vocab_size", None)
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
    every = lambda period: f"every {period:,}" if period else "never"
    figure = f"{first:,} to {plan.total_steps:,}, saved {every(plan.save_period)}"
    figure += f", evaluated {every(plan.eval_period)}"
    if first >= plan.total_steps:
        return warning(f"{figure}: none is left", f"TRAIN_STEPS above {first}")
    return ok(figure)


def data(cfgs: Configs) -> str:
    """Return the tasks and splits whose first records were read."""
    named = lambda cfg: f"{cfg.provider.name} ({cfg.split})"
    found = dict.fromkeys(named(cfg) for cfg in cfgs.values() if cfg is not None)
    return f"{', '.join(found)}: the first records can be read"


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
    padded = -(-ids // ROW_MULTIPLE) * ROW_MULTIPLE
    if rows is not None and rows > padded + ROW_MULTIPLE:
        unused = f"{rows - ids:,} of {rows:,} rows of the embedding are never used"
        return warning(f"{figure}: {unused}", f"network.*.vocab_size to {padded}")
    return ok(figure)


def start(path: str | None, matched: Match | None) -> CheckResult:
    """Return which checkpoint training starts from, and how much of it the model takes."""
    if path is None or matched is None:
        return ok("from scratch")
    figure = f"{path}: {len(matched.sources)} arrays fit the model"
    absent = [name for name in matched.wanted if name not in matched.sources]
    parameters = [name for name in absent if name.startswith("target/")]
    if parameters or matched.ignored:
        left = [f"{len(parameters)} start from scratch"] if parameters else []
        ignored = f"{len(matched.ignored)} unknown to the model are ignored"
        left += [ignored] if matched.ignored else []
        return warning(f"{figure}, {' and '.join(left)}")
    if matched.why_no_optimizer:
        return warning(f"{figure}; the optimizer state is new: {matched.why_no_optimizer}")
    return ok(figure)
