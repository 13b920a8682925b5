r"""Train a recipe, or resume its run.

    python -m t5x.train --gin_file=gin/ro_t5x_tiny.gin --gin.MODEL_DIR='"runs/tiny"'

The flags set most often are --gin.TRAIN_STEPS, --gin.BATCH_SIZE and
--gin.TASK_FEATURE_LENGTHS; docs/settings.md lists all. --dry_run checks everything and trains
nothing.

The trainer checks the configuration before it uses the devices. If MODEL_DIR holds checkpoints,
the run resumes from the newest undamaged one, and from its data position if that was saved. If
not, the run starts from the checkpoint of another run that the recipe names, or else from step 0.
If the run has reached TRAIN_STEPS, the command says so and ends. Only one run at a time trains in
a MODEL_DIR.

The run writes these to MODEL_DIR: `checkpoint_<step>/`, `config.gin`, `vocabulary.model`,
TensorBoard events under `train/` and `training_eval/<task>/`, inference results under
`inference_eval/`, events with their times in `events.jsonl`, and the libraries' logs in
`log_<host>.txt`.
"""

import sys

if __name__ == "__main__":  # before any library is imported
    if not __package__:  # started as `python t5x/train.py`
        sys.path[0] = sys.path[0].removesuffix("t5x")
    from common import log

    log.start()

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import seqio
from absl import logging

from common import log
from common.new_files import named_disk
from common.tables import CheckResult
from common.waiting import waiting
from t5x import gin_utils, schedules
from t5x.array_types import HostBatch
from t5x.checkpointing import layout
from t5x.checkpointing.config import CheckpointConfig
from t5x.checkpointing.lease import Lease
from t5x.checkpointing.restore import check_name
from t5x.cli import dry_run as dry_run_table
from t5x.cli import main
from t5x.inference.evaluator import InferenceEvaluator
from t5x.input_pipeline.config import DatasetConfig, Datasets
from t5x.input_pipeline.stream import TrainStream, eval_sets
from t5x.loop.training_loop import TrainingRun, is_finished, nothing_left
from t5x.loop.triggers import TrainingPlan, check_end, training_plan
from t5x.models import EncoderDecoderModel
from t5x.partitioning import PjitPartitioner
from t5x.start import cooldown, preconditions, publishable
from t5x.start import model_dir as run_folder
from t5x.start.checkpoint import (
    Start,
    delete_damaged_after,
    find_start,
    first_sound,
    last_step,
    record_first_step,
)
from t5x.start.seed import make_seed
from t5x.start.single_device import single_device as on_single_device
from t5x.start.state import match, stream_and_state
from t5x.start.stream import open_stream
from t5x.start.vocabulary import verify_matching_vocabs
from t5x.train_state import TrainState, state_specs
from t5x.trainer import Trainer
from t5x.watch import Watch


@dataclasses.dataclass(frozen=True)
class Ready:
    """A run that is checked and built, and has not taken the lease of its folder yet."""

    trainer: Trainer  # holds no state
    train_cfg: DatasetConfig
    plan: TrainingPlan
    start: Start  # found before the lease was taken
    open_stream: Callable[[Start], TrainStream]
    init_rng: jax.Array
    publishing: CheckResult


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
    cooldown_restore_dataset: bool = True,
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
      cooldown_restore_dataset: whether the branch goes on at the data position of `cooldown_from`;
        if not, its corpora begin, in the order of its own seed.
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
        partitioner = on_single_device(partitioner)
    cfgs = {
        "train": train_dataset_cfg,
        "train_eval": train_eval_dataset_cfg,
        "infer_eval": infer_eval_dataset_cfg,
    }
    watch, actions = watch or Watch(), actions or {}
    checkpoint_cfg = cooldown.branch(
        cooldown_from, relative_steps, model_dir, checkpoint_cfg, cooldown_restore_dataset
    )
    save, evaluates = checkpoint_cfg.save, bool(train_eval_dataset_cfg or infer_eval_dataset_cfg)
    total_steps = last_step(model_dir, total_steps, relative_steps, checkpoint_cfg.restore)
    plan = training_plan(total_steps, eval_period, stats_period, save, evaluates)
    verify_fn = verify_matching_vocabs_fn
    preconditions.check_training(
        model, partitioner, cfgs, plan, save, actions, watch, eval_steps, verify_fn, model_dir
    )
    cooldown.check_optimizer(cooldown_from, model.optimizer_def)

    # Start: the run's newest checkpoint, another run's, or nothing.
    start = find_start(model_dir, checkpoint_cfg.restore, checkpoint_cfg.saves_position)
    run_folder.check_description(start, model, train_dataset_cfg.tasks_with_split)
    if not start.is_own:
        check_end(plan, start.step)
    if start.is_own and not dry_run and is_finished(*start.folder_and_step, plan):
        check_name(layout.step_folder(*start.folder_and_step))
        print(nothing_left(*start.folder_and_step), file=sys.stderr)
        return start.step, None

    ready = prepare(
        model,
        partitioner,
        train_dataset_cfg,
        plan,
        start,
        trainer_cls=trainer_cls,
        get_dataset_fn=get_dataset_fn,
        random_seed=random_seed,
        use_hardware_rng=use_hardware_rng,
        cooldown_from=cooldown_from,
        allow_unpublishable=allow_unpublishable,
    )
    if dry_run:
        show_checks(ready, cfgs, model_dir)
        return 0, None
    return run(
        ready,
        cfgs,
        model_dir,
        checkpoint_cfg,
        relative_steps,
        eval_steps=eval_steps,
        eval_sets_fn=train_eval_get_dataset_fn,
        evaluator_cls=inference_evaluator_cls,
        summarize_config_fn=summarize_config_fn,
        actions=actions,
        watch=watch,
        evaluate_first=run_eval_before_training,
        take_over=take_over,
    )


def prepare(
    model: EncoderDecoderModel,
    partitioner: PjitPartitioner,
    cfg: DatasetConfig,
    plan: TrainingPlan,
    start: Start,
    *,
    trainer_cls: Callable[..., Trainer],
    get_dataset_fn: Callable[..., TrainStream],
    random_seed: int | None,
    use_hardware_rng: bool,
    cooldown_from: str | None,
    allow_unpublishable: bool,
) -> Ready:
    """Build the trainer, whose steps are compiled later, and check what only it can check.

    A run that begins is exported once, untrained: what could not be published is refused here, not
    after weeks. A run that resumes was exported when it began. The arguments are those of `train`.
    """
    seed = make_seed(random_seed, use_hardware_rng)
    specs = state_specs(model, partitioner)
    trainer = trainer_cls(
        model=model,
        train_state=None,
        partitioner=partitioner,
        train_state_axes=specs,
        rng=seed.step_rng,
    )
    trainer.check_batch(cfg.batch_size)
    rows = cfg.batch_size // trainer.num_microbatches  # rows of a microbatch
    preconditions.check_memory(model, specs.state, partitioner, rows, cfg.task_feature_lengths)
    rate = cooldown.cooled(trainer.learning_rate_fn, cooldown_from, plan.total_steps)
    trainer.learning_rate_fn = rate
    publishing = publishable.NOT_ASKED
    if not start.is_own:
        optimizer = model.optimizer_def
        if unusual := preconditions.check_rate(rate, optimizer, start, plan.total_steps):
            logging.warning("%s", unusual)
        if not allow_unpublishable:
            lines = functools.partial(publishable.first_lines, cfg)
            with waiting("checking that the run can be published"):
                publishing = publishable.check(model, specs, lines)
    stream = functools.partial(
        open_stream,
        trainer=trainer,
        cfg=cfg,
        get_dataset_fn=get_dataset_fn,
        seed=seed.number,
        total_steps=plan.total_steps,
    )
    return Ready(trainer, cfg, plan, start, stream, seed.init_rng, publishing)


def show_checks(ready: Ready, cfgs: Datasets, model_dir: str) -> None:
    """Print what a dry run has checked, a line each; raise UserError if one of them fails."""
    trainer, plan = ready.trainer, ready.plan
    start, (stream, restored) = first_sound(
        ready.start, lambda start: (ready.open_stream(start), match(start, trainer))
    )
    first, last = start.step, plan.total_steps
    dry_run_table.show_training(
        trainer,
        cfgs,
        model_dir,
        **dry_run_table.mixture(stream.phases(first), stream.follows),
        **dry_run_table.corpora(ready.train_cfg, first, last, stream.steps),
        start=dry_run_table.start(start.path, restored),
        steps=dry_run_table.steps(plan, first),
        time=dry_run_table.duration(trainer, stream.global_batch, plan, first),
        publishing=ready.publishing,
    )


def run(
    ready: Ready,
    cfgs: Datasets,
    model_dir: str,
    checkpoint_cfg: CheckpointConfig,
    relative_steps: int | None,
    *,
    eval_steps: int,
    eval_sets_fn: Callable[..., Mapping],
    evaluator_cls: Callable[..., seqio.Evaluator],
    summarize_config_fn: Callable[..., None],
    actions: Mapping[str, Sequence[Any]],
    watch: Watch,
    evaluate_first: bool,
    take_over: bool,
) -> tuple[int, TrainState]:
    """Train while the lease of `model_dir` is held; return the last step and its state.

    The arguments are those of `train`.
    """
    trainer, plan, model = ready.trainer, ready.plan, ready.trainer.model
    with named_disk(model_dir), Lease(model_dir, take_over) as lease:
        log.write_to(model_dir, jax.process_index())
        # Stream and state: of the newest checkpoint that can be read, which may be a newer one
        # than `ready` knows, of a run that has held the lease until now.
        with waiting("opening the corpora and the state"):
            start, (stream, trainer.state) = first_sound(
                find_start(model_dir, checkpoint_cfg.restore, checkpoint_cfg.saves_position),
                lambda start: stream_and_state(start, ready.open_stream, trainer, ready.init_rng),
            )
        delete_damaged_after(start)
        step = int(trainer.state.step)
        if not start.is_own and step != start.known_step:  # its name does not say it
            schedules.check_start(trainer.learning_rate_fn, step, plan.total_steps)

        # Evaluation: batches whose loss is measured, and examples that are decoded.
        sets: Mapping[str, Sequence[HostBatch]] = {}
        if cfg := cfgs["train_eval"]:
            rows = trainer.partitioner.host_rows(cfg.batch_size)
            sets = eval_sets_fn(cfg, model.FEATURE_CONVERTER_CLS, rows, eval_steps)
        evaluator = None
        if cfg := cfgs["infer_eval"]:
            evaluator = InferenceEvaluator(
                cfg, evaluator_cls, model, trainer.partitioner, model_dir
            )
            run_folder.write_inference(model_dir, evaluator.evaluator, ready.train_cfg)

        # Loop: train, log, evaluate and save as the plan says.
        loop = TrainingRun(
            trainer=trainer,
            stream=stream,
            plan=plan,
            model_dir=model_dir,
            save_cfg=checkpoint_cfg.save,
            eval_sets=sets,
            infer_evaluator=evaluator,
            actions=actions,
            watch=watch,
            begun_from=None if start.is_own else start.path,
            lease=lease,
        )
        run_folder.write_description(
            model_dir, model, trainer.specs, ready.train_cfg.tasks_with_split
        )
        if not start.is_own and relative_steps:
            record_first_step(model_dir, plan.total_steps - relative_steps)
        summarize_config_fn(model_dir, loop.writer("train"), step)
        step = loop.run(evaluate_first=evaluate_first and not start.is_own)

    # End: the lease is free again, and everything is written.
    return step, trainer.state


if __name__ == "__main__":
    main.run(train)
