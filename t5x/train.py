r"""Train a recipe, or resume its run.

    python -m t5x.train --gin_file=gin/ro_t5x_tiny.gin --gin.MODEL_DIR='"runs/tiny"'

Often set are --gin.TRAIN_STEPS, --gin.BATCH_SIZE and --gin.TASK_FEATURE_LENGTHS; docs/settings.md
lists all. --dry_run checks everything and trains nothing.

The configuration is checked before the devices are used. Then the run resumes from its newest
complete checkpoint, data position included, or starts. It writes to MODEL_DIR `checkpoint_<step>/`,
`config.gin`, `vocabulary.model`, TensorBoard events under `train/` and `training_eval/<task>/`,
inference results under `inference_eval/`, events with their times in `events.jsonl`, and the
libraries' logs in `log_<host>.txt`.
"""

import sys

if __name__ == "__main__":  # before any library is imported
    if not __package__:  # started as `python t5x/train.py`
        sys.path[0] = sys.path[0].removesuffix("t5x")
    from common import log

    log.start()

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import seqio
from absl import logging

from common import log
from common.errors import UserError
from t5x import gin_utils, schedules
from t5x.array_types import HostBatch
from t5x.checkpointing import layout
from t5x.checkpointing.config import CheckpointConfig
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.checkpointing.lease import Lease
from t5x.checkpointing.restore import Match, check_name, match, restore
from t5x.cli import dry_run as dry_run_table
from t5x.cli import main
from t5x.inference.evaluator import InferenceEvaluator
from t5x.input_pipeline import mixed, position
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.corpora import Corpora
from t5x.input_pipeline.stream import TrainStream, eval_sets
from t5x.loop.training_loop import TrainingRun, missed_evaluation, nothing_left
from t5x.loop.triggers import check_periods, training_plan
from t5x.models import EncoderDecoderModel
from t5x.multihost import roll_call
from t5x.multihost.broadcast import broadcast_from_first, raise_together
from t5x.partitioning import PjitPartitioner
from t5x.start import cooldown, preconditions, publishable
from t5x.start.checkpoint import (
    Start,
    delete_damaged_after,
    find_start,
    first_sound,
    last_step,
    record_first_step,
)
from t5x.start.model_dir import (
    check_labels,
    check_vocabulary,
    saved_by_another,
    write_description,
    write_labels,
)
from t5x.start.vocabulary import verify_matching_vocabs
from t5x.train_state import TrainState, from_disk, initial_state, state_specs, to_disk
from t5x.trainer import Trainer
from t5x.watch import Watch


def train(
    *,
    model: EncoderDecoderModel,
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
    relative_steps: int | None = None,
    cooldown_from: str | None = None,
    stats_period: int | None = None,
    random_seed: int | None,
    use_hardware_rng: bool = False,
    summarize_config_fn: Callable[..., None] = gin_utils.summarize_gin_config,
    inference_evaluator_cls: Callable[..., seqio.Evaluator] = seqio.Evaluator,
    get_dataset_fn: Callable[..., TrainStream] = TrainStream,
    actions: Mapping[str, Sequence[Any]] | None = None,
    train_eval_get_dataset_fn: Callable[..., Mapping] = eval_sets,
    run_eval_before_training: bool = False,
    verify_matching_vocabs_fn: Callable[..., None] | None = verify_matching_vocabs,
    watch: Watch | None = None,
    single_device: bool = False,
    dry_run: bool = False,
    take_over: bool = False,
    allow_unpublishable: bool = False,
) -> tuple[int, TrainState | None]:
    """Train `model` to step `total_steps`.

    Args:
      train_dataset_cfg: training examples.
      train_eval_dataset_cfg: examples to evaluate the loss on, or None.
      infer_eval_dataset_cfg: examples to decode and measure, or None.
      checkpoint_cfg: which checkpoint to start from and when to save.
      trainer_cls: `trainer.Trainer` with its gin bindings.
      total_steps: the step at which training ends, steps of the restored checkpoint included.
      eval_steps: batches per evaluation.
      eval_period: steps between evaluations.
      relative_steps: steps from where the run begins, a checkpoint's or 0, instead of
        `total_steps`; None or 0 for `total_steps`. A run that resumes counts from where it began.
      cooldown_from: a checkpoint of another run to branch off, whose rate is to fall to zero over
        `relative_steps`; instead of `checkpoint_cfg.restore`. See `t5x.start.cooldown`.
      stats_period: steps between log entries, default `eval_period`.
      random_seed: of initial values, dropout and data; None draws one.
      use_hardware_rng: random bits from the accelerator's generator, which are fast, but differ
        on another mesh; also used if `random_seed` is None.
      summarize_config_fn: (model_dir, writer, step), writes the configuration.
      inference_evaluator_cls: seqio evaluator of decoded outputs.
      get_dataset_fn: makes the training stream.
      actions: 'TRAIN', 'TRAIN_EVAL', 'INFER_EVAL' to objects whose `run` can end training.
      train_eval_get_dataset_fn: makes the evaluation batches.
      run_eval_before_training: also evaluate the state that training starts with.
      verify_matching_vocabs_fn: (dataset cfg, model), raises if they do not fit.
      watch: where metrics go, and what else shows whether the model learns.
      single_device: use the first device only and compile nothing, so that `breakpoint()` and
        `print` in a model show numbers; slow.
      dry_run: build and check everything, then return without training.
      take_over: train although another run holds the lease of `model_dir`; that one then stops
        before its next save.
      allow_unpublishable: train even what `convert` would refuse to publish.

    Returns:
      The last step and its state, None if nothing was left to do.

    Raises:
      UserError: the configuration does not fit, in one sentence.
      Failure: another run holds the lease of `model_dir`, or has taken it over.
    """
    # Preconditions: everything that a user can get wrong, before the devices are used.
    if single_device:
        partitioner = on_first_device(partitioner)
    watch = watch or Watch()
    cfgs = {
        "train": train_dataset_cfg,
        "train_eval": train_eval_dataset_cfg,
        "infer_eval": infer_eval_dataset_cfg,
    }
    checkpoint_cfg = cooldown.branch(cooldown_from, relative_steps, model_dir, checkpoint_cfg)
    save, from_other = checkpoint_cfg.save, checkpoint_cfg.restore
    total_steps = last_step(model_dir, total_steps, relative_steps, from_other)
    evaluates = bool(train_eval_dataset_cfg or infer_eval_dataset_cfg)
    plan = training_plan(total_steps, eval_period, stats_period, save, evaluates)
    preconditions.check_training(
        model,
        partitioner,
        cfgs,
        plan,
        save,
        actions,
        watch,
        eval_steps,
        verify_matching_vocabs_fn,
        model_dir,
    )

    # Start: the run's newest checkpoint, another run's, or nothing.
    has_position = bool(save and save.save_dataset)
    start = find_start(model_dir, from_other, has_position)
    check_vocabulary(start, model)
    check_labels(start, train_dataset_cfg.tasks_with_split)
    check_periods(plan, start.step if start.config else 0)  # counted on from another run
    is_at_end = start.is_own and start.step >= total_steps
    if is_at_end and not dry_run and not missed_evaluation(model_dir, start.step, plan):
        check_name(layout.step_folder(*start.own))
        print(nothing_left(model_dir, start.step), file=sys.stderr)  # before anything is built
        return start.step, None

    # Trainer: the steps, which are compiled later.
    seed = agreed_seed(random_seed)
    kind = "rbg" if use_hardware_rng or random_seed is None else None
    init_rng, rng = jax.random.split(jax.random.key(seed, impl=kind))
    specs = state_specs(model, partitioner)
    trainer = trainer_cls(
        model=model, train_state=None, partitioner=partitioner, train_state_axes=specs, rng=rng
    )
    trainer.check_batch(train_dataset_cfg.batch_size)
    at_once = train_dataset_cfg.batch_size // trainer.num_microbatches
    lengths = train_dataset_cfg.task_feature_lengths
    preconditions.check_memory(model, specs.state, partitioner, at_once, lengths)
    trainer.learning_rate_fn = cooldown.cooled(trainer.learning_rate_fn, cooldown_from, total_steps)
    if not start.is_own:
        check_rate(trainer, start, total_steps)
    publishing = publishable.NOT_ASKED  # a run that resumes was asked at its start
    if not (start.is_own or allow_unpublishable):
        lines = lambda: publishable.first_lines(train_dataset_cfg)
        publishing = publishable.check(model, specs, lines)
    open_stream = lambda start: stream_at(
        start, trainer, train_dataset_cfg, get_dataset_fn, seed, total_steps
    )
    if dry_run:
        opened = first_sound(start, lambda s: (open_stream(s), matched(s, trainer)))
        start, (stream, found) = opened
        dry_run_table.show_training(
            trainer,
            cfgs,
            model_dir,
            **dry_run_table.mixture(stream.phases(start.step), stream.follows),
            **dry_run_table.corpora(train_dataset_cfg, start.step, plan.total_steps, stream.steps),
            start=dry_run_table.start(start.path, found),
            steps=dry_run_table.steps(plan, start.step),
            time=dry_run_table.duration(trainer, stream.global_batch, plan, start.step),
            publishing=publishing,
        )
        return 0, None

    with Lease(model_dir, take_over) as lease:
        log.write_to(model_dir, jax.process_index())
        # Stream and state: of the newest checkpoint that can be read.
        start = find_start(model_dir, from_other, has_position)  # it may have changed
        start, (stream, trainer.state) = first_sound(
            start, lambda s: stream_and_state(s, open_stream, trainer, init_rng)
        )
        delete_damaged_after(start)
        step = int(trainer.state.step)
        if not start.is_own and relative_steps:
            record_first_step(model_dir, total_steps - relative_steps)
        if not start.is_own and step != start.known_step:
            schedules.check_start(trainer.learning_rate_fn, step, total_steps)

        # Evaluation: batches whose loss is measured, and examples that are decoded.
        sets: Mapping[str, Sequence[HostBatch]] = {}
        if cfg := train_eval_dataset_cfg:
            rows = partitioner.host_rows(cfg.batch_size)
            sets = train_eval_get_dataset_fn(cfg, model.FEATURE_CONVERTER_CLS, rows, eval_steps)
        infer_evaluator = None
        if cfg := infer_eval_dataset_cfg:
            infer_evaluator = InferenceEvaluator(
                cfg, inference_evaluator_cls, model, partitioner, model_dir
            )

        # Loop: train, log, evaluate and save as the plan says.
        run = TrainingRun(
            trainer=trainer,
            stream=stream,
            plan=plan,
            model_dir=model_dir,
            save_cfg=save,
            eval_sets=sets,
            infer_evaluator=infer_evaluator,
            actions=actions or {},
            watch=watch,
            begun_from=None if start.is_own else start.path,
            lease=lease,
        )
        write_description(model_dir, model, specs)
        write_labels(model_dir, train_dataset_cfg.tasks_with_split)
        summarize_config_fn(model_dir, run.writer("train"), step)
        step = run.run(evaluate_first=run_eval_before_training and not start.is_own)

    # End: the lease is free again, and everything is written.
    return step, trainer.state


def on_first_device(partitioner: PjitPartitioner) -> PjitPartitioner:
    """Disable jit, and return the partitioner of the first device; raise UserError on a pod."""
    if jax.process_count() > 1:
        raise UserError(
            f"train.single_device is True on {jax.process_count()} hosts; start it on one, without "
            "--process_count, or set it to False."
        )
    jax.config.update("jax_disable_jit", True)
    devices = jax.devices(partitioner.backend)[:1]
    return PjitPartitioner(devices=devices, logical_axis_rules=partitioner.rules)


def check_rate(trainer: Trainer, start: Start, total_steps: int) -> None:
    """Warn of a schedule that does not suit the start of a run, or its optimizer.

    Raise UserError if it has ended before the start, or never ends although it must.
    """
    rate = trainer.learning_rate_fn
    schedules.check_start(rate, start.known_step, total_steps)
    suits = getattr(trainer.model.optimizer_def, "usual_rates", None)
    if suits and (unusual := suits.unusual(rate, start.step, total_steps)):
        logging.warning("%s", unusual)


def agreed_seed(random_seed: int | None) -> int:
    """Return the run's seed, which if drawn is made the same on all hosts."""
    if random_seed is not None:
        return random_seed
    seed = broadcast_from_first(lambda: time.time_ns() % 2**31)
    logging.info("RANDOM_SEED is None; drew %d.", seed)
    return seed


def stream_at(
    start: Start,
    trainer: Trainer,
    cfg: DatasetConfig,
    get_dataset_fn: Callable[..., TrainStream],
    seed: int,
    total_steps: int,
) -> TrainStream:
    """Return the training stream of this host at the data position of `start`, if it has one.

    Its seed is the first that exists: of the data position, of `cfg`, of the run. Raise
    DamagedCheckpoint, on all hosts, if the position is not as saved, and UserError, with what to
    set, if it cannot be used, or a mixture's rates would change after `total_steps`.
    """
    start.check_data_position()
    folder = start.dataset_folder
    saved = raise_together(lambda: position.saved(folder), DamagedCheckpoint)
    folder = folder if saved else None  # upstream's position is of its own pipeline
    if start.is_own:
        position.check_own(saved, cfg, start.own[0])
    if saved:
        seed = saved["seed"]
        Corpora(cfg).pin(saved)
    elif cfg.seed is not None:
        seed = cfg.seed
    partitioner = trainer.partitioner
    rows = partitioner.host_rows(cfg.batch_size)
    stream = get_dataset_fn(cfg, trainer.model.FEATURE_CONVERTER_CLS, rows, seed)
    stream.saves = partitioner.is_first_with_rows(cfg.batch_size)
    if jax.process_count() > 1:
        roll_call.assert_same(roll_call.data_facts(stream.corpora.identities))
    if folder:
        stream.restore(folder)
    elif start.is_own or (start.config and start.config.restore_dataset):
        logging.warning(
            "%s holds no data position: training resumes at its step, but the corpus starts over. "
            "Keep SaveCheckpointConfig.save_dataset = True to resume the data too.",
            start.path,
        )
    if not stream.steps:
        mixed.check_steps(cfg.provider, total_steps - start.step)
    stream.corpora.check_shards(stream.count)
    for line in (*stream.corpora.understood(), *stream.corpora.mixing(stream.count)):
        logging.info("%s", line)
    return stream


def stream_and_state(
    start: Start,
    open_stream: Callable[[Start], TrainStream],
    trainer: Trainer,
    init_rng: jax.Array,
) -> tuple[TrainStream, TrainState]:
    """Return the stream at its position and the starting state.

    While the state is restored the step compiles and the first batch is made: the only overlap of a
    start. Raise DamagedCheckpoint, on all hosts, if either is not as saved.
    """
    stream = open_stream(start)
    trainer.compile(stream.global_batch)
    stream.start()
    try:
        return stream, starting_state(start, trainer, init_rng)
    except DamagedCheckpoint:
        stream.close()
        raise


def matched(start: Start, trainer: Trainer) -> Match | None:
    """Return what `starting_state` would restore, None to start from scratch; see `match`."""
    if start.path is None:
        return None
    other = saved_by_another(start.path, trainer.model)
    return match(start.path, trainer.specs.on_disk, start.config, other)


def starting_state(start: Start, trainer: Trainer, init_rng: jax.Array) -> TrainState:
    """Return the state that training starts with: restored as `start` says, or initial."""
    specs = trainer.specs
    if start.path is None:
        return initial_state(trainer.model, specs, init_rng)

    def initial() -> dict:
        return to_disk(initial_state(trainer.model, specs, init_rng), specs)

    restored = restore(
        start.path,
        specs.on_disk,
        start.config,
        initial=initial,
        other_optimizer=saved_by_another(start.path, trainer.model),
    )
    return from_disk(restored.state, specs)


if __name__ == "__main__":
    main.run(train)
