r"""Compile the programs of a run before it starts, and print what they need.

python -m t5x.precompile --gin_file=t5x/configs/runs/precompile.gin \
  --gin_file=gin/ro_t5x_tiny.gin --gin.MODEL_DIR='"runs/tiny"'

Nothing is initialized or trained. The programs go into JAX's cache: JAX_COMPILATION_CACHE_DIR, by
default a folder of this user. The next run with the same cache finds them instead of compiling, and
so do t5x.eval and t5x.infer with the same batch sizes and lengths. The command writes into
MODEL_DIR: `lowered_hlo_pre_optimization` and `lowered_hlo_post_optimization` (text of the train
step), `assignment` (numpy, the mesh's device ids) and `log_<host>.txt` (the output of libraries).

For devices that are not there, `python -m preflight` compiles the same step by the functions below.
"""

import sys

if __name__ == "__main__":  # before any library is imported
    if not __package__:  # started as `python t5x/precompile.py`
        sys.path[0] = sys.path[0].removesuffix("t5x")
    from common import log

    log.start()

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from etils import epath

from common import log
from t5x.checkpointing.config import CheckpointConfig
from t5x.cli import dry_run as dry_run_table
from t5x.cli import main
from t5x.inference.predictor import Predictor
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.stream import TrainStream
from t5x.models import EncoderDecoderModel
from t5x.partitioning import PjitPartitioner
from t5x.start import cooldown, preconditions, seed
from t5x.start.checkpoint import last_step
from t5x.start.model_dir import check_writable
from t5x.start.vocabulary import check_feature_lengths, verify_matching_vocabs
from t5x.train_state import state_specs
from t5x.trainer import Trainer

SIDES = ("inputs", "targets")


def precompile(
    *,
    model: EncoderDecoderModel,
    train_dataset_cfg: DatasetConfig,
    partitioner: PjitPartitioner,
    model_dir: str,
    random_seed: int | None,
    use_hardware_rng: bool = False,
    train_eval_dataset_cfg: DatasetConfig | None = None,
    infer_eval_dataset_cfg: DatasetConfig | None = None,
    infer_modes: Sequence[str] = ("predict",),
    length_buckets: int = 1,
    get_dataset_fn: Callable[..., TrainStream] = TrainStream,
    verify_matching_vocabs_fn: Callable[..., None] | None = verify_matching_vocabs,
    trainer_cls: Callable[..., Trainer] | None = None,
    relative_steps: int | None = None,
    cooldown_from: str | None = None,
    dry_run: bool = False,
) -> dict[str, float]:
    """Compile the train step for the batches of `train_dataset_cfg`, and the evaluation programs.

    Args:
      train_dataset_cfg: gives the shapes of a batch; only its first records are read.
      model_dir: where the program is written.
      random_seed: as in `train`; None compiles for the accelerator's own generator, as there.
      train_eval_dataset_cfg: the batches that the loss is evaluated on; None for no evaluation.
      infer_eval_dataset_cfg: the examples that are decoded, with their lengths; None for none.
      infer_modes: names in `predictor.MODES`, how the examples are decoded.
      length_buckets: as in `train` (1), or as in `evaluate` and `infer` (4).
      verify_matching_vocabs_fn: (dataset cfg, model), raises if they do not fit; None for no check.
      trainer_cls: `trainer.Trainer` with the run's bindings; None for no microbatches and a
        constant learning rate.
      relative_steps: as in `train`, for the step of a cooldown branch.
      cooldown_from: as in `train`; the checkpoint need not exist yet.
      dry_run: build and check everything, then return without compiling.

    Returns:
      What the train step needs: 'arguments', 'temporary' and 'program' in bytes per device, 'flops'
      per step and device, and 'seconds' of compiling, as far as the backend reports them. The other
      programs have 'eval_seconds' and 'predict_seconds'.
    """
    preconditions.check_dataset(train_dataset_cfg, model, verify_matching_vocabs_fn)
    branch = cooldown.branch(cooldown_from, relative_steps, model_dir, CheckpointConfig())
    last = last_step(model_dir, 0, relative_steps, branch.restore)
    check_writable(model_dir)
    constant = functools.partial(Trainer, learning_rate_fn=lambda _: jnp.float32(1e-3))
    generator = seed.generator(random_seed, use_hardware_rng)
    cls = trainer_cls or constant
    trainer = trainer_of(model, partitioner, cls, generator, cooldown_from, last)
    trainer.check_batch(train_dataset_cfg.batch_size)

    def open_stream(cfg: DatasetConfig) -> TrainStream:
        rows = partitioner.host_rows(cfg.batch_size)
        return get_dataset_fn(cfg, model.FEATURE_CONVERTER_CLS, rows, 0)

    stream, decoded = open_stream(train_dataset_cfg), infer_eval_dataset_cfg
    if decoded is not None:
        predictor = Predictor(model, partitioner, decoded.batch_size, length_buckets)
        example = example_of(model, decoded)
    if dry_run:
        dry_run_table.show_training(trainer, {"train": train_dataset_cfg}, model_dir)
        return {}

    log.write_to(model_dir, jax.process_index())
    step = compile_program(lambda: trainer.lower(stream.global_batch))
    seconds = step.trace_seconds + step.compile_seconds
    needs = {**needs_of(step.compiled), "seconds": seconds}
    stream.close()
    if train_eval_dataset_cfg is not None:
        stream = open_stream(train_eval_dataset_cfg)
        needs["eval_seconds"] = seconds_of(map(trainer.lower_eval, [stream.global_batch]))
        stream.close()
    if decoded is not None:
        for mode in infer_modes:
            programs = predictor.lower(mode, trainer.specs.state.params, example)
            needs[f"{mode}_seconds"] = seconds_of(programs)
    write_program(model_dir, step, partitioner.mesh.device_ids)
    print("  ".join(f"{name} {value:,.0f}" for name, value in needs.items()))
    return needs


def trainer_of(
    model: EncoderDecoderModel,
    partitioner: PjitPartitioner,
    trainer_cls: Callable[..., Trainer],
    generator: str | None,
    cooldown_from: str | None,
    last: int,
) -> Trainer:
    """Return the trainer of a run to step `last`, without a state, to lower its programs.

    The kind of random `generator` decides what dropout compiles to; a seed does not.
    """
    rng, specs = jax.random.key(0, impl=generator), state_specs(model, partitioner)
    trainer = trainer_cls(model, None, partitioner, specs, rng)
    trainer.learning_rate_fn = cooldown.cooled(trainer.learning_rate_fn, cooldown_from, last)
    return trainer


class Program(NamedTuple):
    """A program before and after optimization, and the seconds that these took."""

    lowered: jax.stages.Lowered
    compiled: jax.stages.Compiled
    trace_seconds: float
    compile_seconds: float


def compile_program(lower: Callable[[], jax.stages.Lowered]) -> Program:
    """Lower and compile a program."""
    started = time.monotonic()
    lowered = lower()
    traced = time.monotonic()
    compiled = lowered.compile()
    return Program(lowered, compiled, traced - started, time.monotonic() - traced)


def write_program(folder: str, program: Program, device_ids: np.ndarray) -> None:
    """Write the text of a program before and after optimization, and the ids of the mesh."""
    place = epath.Path(folder)
    (place / "lowered_hlo_pre_optimization").write_text(program.lowered.as_text())
    (place / "lowered_hlo_post_optimization").write_text(program.compiled.as_text())
    with (place / "assignment").open("wb") as file:
        np.save(file, device_ids)


def seconds_of(programs: Iterable[jax.stages.Lowered]) -> float:
    """Return the seconds that it takes to lower (while iterating) and compile programs."""
    started = time.monotonic()
    for program in programs:
        program.compile()
    return time.monotonic() - started


def example_of(model: Any, cfg: DatasetConfig) -> dict[str, jax.ShapeDtypeStruct]:
    """Return one example's features as the model decodes it, unread, or raise UserError."""
    check_feature_lengths(cfg)
    ids = tf.TensorSpec([None], tf.int32)
    none = tf.data.Dataset.from_generator(lambda: (), output_signature=dict.fromkeys(SIDES, ids))
    converter = model.FEATURE_CONVERTER_CLS(pack=False)
    converted = converter(none, cfg.task_feature_lengths)
    return {
        name: jax.ShapeDtypeStruct(spec.shape.as_list(), spec.dtype.as_numpy_dtype)
        for name, spec in converted.element_spec.items()
    }


def needs_of(compiled: jax.stages.Compiled) -> dict[str, float]:
    """Return the bytes and FLOP of a program on one device, as far as its backend reports them."""
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
    needs = {
        "arguments": getattr(memory, "argument_size_in_bytes", None),
        "temporary": getattr(memory, "temp_size_in_bytes", None),
        "program": getattr(memory, "generated_code_size_in_bytes", None),
        "flops": cost.get("flops"),
    }
    return {name: float(value) for name, value in needs.items() if value is not None}


if __name__ == "__main__":
    main.run(precompile)
