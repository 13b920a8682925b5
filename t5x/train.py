r"""Trains: `python -m t5x.train --gin_file=gin/ro_t5x_tiny.gin --gin.MODEL_DIR='"runs/tiny"'`.

Before a device is touched everything that can be refused is refused. Then a run goes on where its
newest whole checkpoint stands, data included, or starts. What it leaves in MODEL_DIR:
`checkpoint_<step>/`, `config.gin`, `vocabulary.model`, TensorBoard events under `train/` and
`training_eval/<task>/`, inference results under `inference_eval/`, what happened when in
`events.jsonl`, and what the libraries said in `log_<host>.txt`.
"""

import sys

if __name__ == "__main__":  # before any library is imported
    if not __package__:  # started as `python t5x/train.py`
        sys.path[0] = sys.path[0].removesuffix("t5x")
    from t5x.cli import log_capture

    log_capture.start()

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import seqio
from absl import logging
from jax.experimental import multihost_utils

from t5x import batches, gin_utils, schedules
from t5x.checkpointing.config import CheckpointConfig
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.checkpointing.restore import match, restore
from t5x.cli import log_capture, main
from t5x.inference import evaluator
from t5x.input_pipeline import checks, corpora
from t5x.input_pipeline.config import DatasetConfig
from t5x.loop import model_dir as model_folder
from t5x.loop import selection_metric, triggers
from t5x.loop.training_loop import TrainingRun, nothing_left
from t5x.multihost import startup_check
from t5x.partitioning import PjitPartitioner
from t5x.train_state import (
    StateSpecs,
    TrainState,
    from_disk,
    initial_state,
    state_specs,
    to_disk,
)
from t5x.trainer import Trainer
from t5x.watch import Watch


def train(
    *,
    model: Any,
    train_dataset_cfg: DatasetConfig,
    train_eval_dataset_cfg: DatasetConfig | None,
    infer_eval_dataset_cfg: DatasetConfig | None,
    checkpoint_cfg: CheckpointConfig,
    partitioner: PjitPartitioner,
    trainer_cls: Callable[..., Trainer],
    model_dir: str,
    total_steps: int,
    eval_steps: int,
    eval_period: int,
    stats_period: int | None = None,
    random_seed: int | None,
    use_hardware_rng: bool = False,
    summarize_config_fn: Callable[..., None] = gin_utils.summarize_gin_config,
    inference_evaluator_cls: Callable[..., seqio.Evaluator] = seqio.Evaluator,
    get_dataset_fn: Callable[..., batches.TrainStream] = batches.TrainStream,
    concurrent_metrics: bool = True,
    actions: Mapping[str, Sequence[Any]] | None = None,
    train_eval_get_dataset_fn: Callable[..., Mapping] = batches.eval_sets,
    run_eval_before_training: bool = False,
    verify_matching_vocabs_fn: Callable[..., None] | None = checks.verify_matching_vocabs,
    gc_period: int = 0,
    watch: Watch | None = None,
    single_device: bool = False,
    dry_run: bool = False,
) -> tuple[int, TrainState | None]:
    """Trains `model` to step `total_steps`.

    Args:
      model: see `models.EncoderDecoderModel`.
      train_dataset_cfg: what is trained on.
      train_eval_dataset_cfg: what the loss is evaluated on; None for nothing.
      infer_eval_dataset_cfg: what is decoded and measured; None for nothing.
      checkpoint_cfg: where to start and when to save.
      partitioner: of parameters and batches over devices.
      trainer_cls: `trainer.Trainer` with its gin bindings.
      model_dir: where everything is kept.
      total_steps: the step at which training ends, steps of the restored checkpoint included.
      eval_steps: batches an evaluation takes.
      eval_period: steps between evaluations.
      stats_period: steps between log entries, default `eval_period`.
      random_seed: of initial values, dropout and data; None draws one.
      use_hardware_rng: bits from the accelerator's own generator, quick, but not the same on
        another mesh; also used where `random_seed` is None.
      summarize_config_fn: (model_dir, writer, step), writes the configuration down.
      inference_evaluator_cls: seqio evaluator of decoded outputs.
      get_dataset_fn: makes the training stream.
      concurrent_metrics: accepted; metrics are always read while the next step runs.
      actions: 'TRAIN', 'TRAIN_EVAL', 'INFER_EVAL' to objects whose `run` can end training.
      train_eval_get_dataset_fn: makes the evaluation batches.
      run_eval_before_training: evaluates what training begins with too.
      verify_matching_vocabs_fn: (dataset cfg, model), refuses what does not fit.
      gc_period: accepted; Python's garbage is left to Python.
      watch: where metrics go, and what else shows whether it learns.
      single_device: takes the first device only and compiles nothing, so that `breakpoint()` and
        `print` in a model show numbers; slow.
      dry_run: builds and checks everything, then returns without training.

    Returns:
      The last step and the state there, None where nothing was left to do.

    Raises:
      ValueError: one sentence on what does not fit, before a device is touched.
    """
    if single_device:
        partitioner = alone(partitioner)
    plan = plan_of(checkpoint_cfg, total_steps, eval_period, stats_period)
    if not (train_eval_dataset_cfg or infer_eval_dataset_cfg):
        plan = dataclasses.replace(plan, eval_period=None)
    triggers.check_periods(plan)
    cfgs = {
        "train": train_dataset_cfg,
        "train_eval": train_eval_dataset_cfg,
        "infer_eval": infer_eval_dataset_cfg,
    }
    spool_streams(cfgs)
    check_data(model, cfgs, eval_steps, verify_matching_vocabs_fn)
    selection_metric.check(cfgs, checkpoint_cfg.save, actions)
    watch = watch or Watch()
    watch.check(model, train_dataset_cfg.task_feature_lengths)
    model_folder.check_writable(model_dir)
    keeps_place = bool(checkpoint_cfg.save and checkpoint_cfg.save.save_dataset)
    start = model_folder.find_start(model_dir, checkpoint_cfg.restore, keeps_place)
    triggers.check_periods(plan, start.foreign_step)
    check_batches(partitioner, cfgs)
    if not dry_run and start.is_own and start.step >= total_steps:
        print(nothing_left(model_dir, start.step), file=sys.stderr)  # before anything is built
        return start.step, None

    seed = agreed_seed(random_seed)
    kind = "rbg" if use_hardware_rng or random_seed is None else None
    init_rng, trainer_rng = jax.random.split(jax.random.key(seed, impl=kind))
    rows = batches.host_rows(partitioner, train_dataset_cfg.batch_size)
    specs = state_specs(model, partitioner, checks.feature_shapes(train_dataset_cfg))
    trainer = trainer_cls(
        model=model,
        train_state=None,
        partitioner=partitioner,
        train_state_axes=specs,
        rng=trainer_rng,
    )
    trainer.check_batch(train_dataset_cfg.batch_size)
    if not start.is_own:
        schedules.check_start(trainer.learning_rate_fn, start.known_step, total_steps)
    open_at = lambda start: open_stream(train_dataset_cfg, model, rows, start, seed, get_dataset_fn)
    if dry_run:
        open_at(start)
        if start.path:
            match(start.path, specs.on_disk, start.config)
        return 0, None

    log_capture.write_to(model_dir, jax.process_index())
    state_at = lambda start: start_state(model, specs, start, init_rng)
    start, stream, trainer.state = begin(start, open_at, state_at)
    if not start.is_own and (at := int(trainer.state.step)) != start.known_step:
        schedules.check_start(trainer.learning_rate_fn, at, total_steps)
    eval_sets, infer_evaluator = {}, None
    if train_eval_dataset_cfg:
        eval_rows = batches.host_rows(partitioner, train_eval_dataset_cfg.batch_size)
        eval_sets = train_eval_get_dataset_fn(
            train_eval_dataset_cfg, model.FEATURE_CONVERTER_CLS, eval_rows, eval_steps
        )
    if infer_eval_dataset_cfg:
        infer_evaluator = evaluator.InferenceEvaluator(
            infer_eval_dataset_cfg, inference_evaluator_cls, model, partitioner, model_dir
        )
    run = TrainingRun(
        trainer,
        stream,
        plan,
        model_dir,
        checkpoint_cfg.save,
        eval_sets=eval_sets,
        infer_evaluator=infer_evaluator,
        actions=actions or {},
        watch=watch,
    )
    model_folder.describe(model_dir, model, specs)
    summarize_config_fn(model_dir, run.writer("train"), int(trainer.state.step))
    step = run.go(evaluate_first=run_eval_before_training and not start.is_own)
    return step, trainer.state


def alone(partitioner: PjitPartitioner) -> PjitPartitioner:
    """The layout on the first device, where from now on nothing is compiled.

    Raises:
      ValueError: there are several hosts.
    """
    if jax.process_count() > 1:
        raise ValueError(
            f"train.single_device is True on {jax.process_count()} hosts; start it on one, without "
            "--process_count, or set it to False."
        )
    jax.config.update("jax_disable_jit", True)
    devices = jax.devices(partitioner.backend)[:1]
    return PjitPartitioner(devices=devices, logical_axis_rules=partitioner.rules)


def plan_of(
    checkpoint_cfg: CheckpointConfig, total_steps: int, eval_period: int, stats_period: int | None
) -> triggers.Plan:
    """When things happen, from the periods of the gin file (0 and None: never)."""
    save = checkpoint_cfg.save
    return triggers.Plan(
        total_steps,
        eval_period or None,
        save.period if save else None,
        stats_period or eval_period or None,
        checkpoint_steps=tuple((save.checkpoint_steps if save else None) or ()),
    )


def spool_streams(cfgs: Mapping[str, DatasetConfig | None]) -> None:
    """Reads remote corpora through STREAM_CACHE_DIR, bounded by STREAM_CACHE_GB, if it is set."""
    folder = os.environ.get("STREAM_CACHE_DIR")
    gigabytes = os.environ.get("STREAM_CACHE_GB", "50")
    if folder:
        try:
            bound = float(gigabytes)
        except ValueError:
            raise ValueError(
                f"STREAM_CACHE_GB is {gigabytes!r}, which is no number; set it to the gigabytes "
                f"that {folder} may hold, such as 50."
            ) from None
        for cfg in filter(None, cfgs.values()):
            for _, source in corpora.resumable_sources(cfg):
                source.enable_stream_cache(folder, bound)


def check_data(
    model: Any,
    cfgs: Mapping[str, DatasetConfig | None],
    eval_steps: int,
    verify_fn: Callable[..., None] | None,
) -> None:
    """Refuses, with a ValueError, data that the run cannot use; `cfgs` by gin scope."""
    for cfg in filter(None, cfgs.values()):
        if verify_fn is not None:
            verify_fn(cfg, model)
        corpora.check_corpora(cfg, required=cfg is cfgs["train"])
    if cfgs["infer_eval"]:
        selection_metric.check_split("infer_eval", cfgs["infer_eval"])
        evaluator.check_metrics(cfgs["infer_eval"])
        evaluator.check_decoding(model)
    if cfgs["train_eval"] and eval_steps < 1:
        raise ValueError(
            f"train.eval_steps is {eval_steps}; set EVAL_STEPS to at least 1 batch, or "
            "train.train_eval_dataset_cfg to None."
        )


def check_batches(partitioner: PjitPartitioner, cfgs: Mapping[str, DatasetConfig | None]) -> None:
    """Refuses, with a ValueError, batches that the devices do not divide; `cfgs` by gin scope."""
    for scope, cfg in cfgs.items():
        if cfg is not None:
            name = f"{scope}/utils.DatasetConfig.batch_size"
            partitioner.check_batch(cfg.batch_size, None, name)


def agreed_seed(random_seed: int | None) -> int:
    """The run's seed; one drawn from the clock is made the same on all hosts."""
    if random_seed is not None:
        return random_seed
    drawn = np.int32(time.time_ns() % 2**31)
    seed = int(multihost_utils.broadcast_one_to_all(drawn))
    logging.info("RANDOM_SEED is None; drew %d.", seed)
    return seed


def open_stream(
    cfg: DatasetConfig,
    model: Any,
    rows: tuple[int, int],
    start: model_folder.Start,
    seed: int,
    get_dataset_fn: Callable[..., batches.TrainStream],
) -> batches.TrainStream:
    """The training stream of this host, at the position to go on from.

    Its seed is, first of these that is there: that of the position to go on from, that of `cfg`,
    that of the run.
    """
    saved = batches.saved_stream(start.dataset_folder)
    if saved:
        seed = saved["seed"]
        corpora.pin_revisions(cfg, saved)
    elif cfg.seed is not None:
        seed = cfg.seed
    stream = get_dataset_fn(cfg, model.FEATURE_CONVERTER_CLS, rows, seed)
    if jax.process_count() > 1:
        startup_check.assert_same("data", startup_check.data_facts(lambda: corpora.identities(cfg)))
    if start.dataset_folder:
        stream.restore(start.dataset_folder)
    elif start.is_own:
        logging.warning(
            "%s holds no place in the data: training goes on at its step, but the corpus begins "
            "again; keep SaveCheckpointConfig.save_dataset = True and it goes on where it stood.",
            start.path,
        )
    return stream


def begin(
    start: model_folder.Start,
    open_at: Callable[[model_folder.Start], batches.TrainStream],
    state_at: Callable[[model_folder.Start], TrainState],
) -> tuple[model_folder.Start, batches.TrainStream, TrainState]:
    """Stream and state where the run begins: `start`, or what comes before if that is damaged."""
    while True:
        try:
            start.check_place()
            stream = open_at(start)
            state = state_at(start)
        except DamagedCheckpoint as damage:
            start = model_folder.before(start, damage)
        else:
            model_folder.drop_after(start)
            return start, stream, state


def start_state(
    model: Any, specs: StateSpecs, start: model_folder.Start, init_rng: jax.Array
) -> TrainState:
    """The state that training begins with: restored as `start` says, or fresh."""
    fresh = lambda: initial_state(model, specs, init_rng)
    if start.path is None:
        return fresh()
    initial = lambda: to_disk(fresh(), specs)
    restored = restore(start.path, specs.on_disk, start.config, initial=initial)
    return from_disk(restored.state, specs)


if __name__ == "__main__":
    main.run(train, keeps_programs=True)
