"""Check once, and in one place, what must be right before a command uses the devices.

    plan = triggers.training_plan(…)
    check_training(model, partitioner, cfgs, plan, …)      # of t5x.train
    check_inference(model, partitioner, cfg, output_dir)   # of t5x.eval and t5x.infer
    check_memory(model, arrays, partitioner, rows, lengths)  # before anything is built

Each raises UserError with the value, the reason and what to set. Types and limits of single
numbers are checked before, when gin files are read (`t5x.settings.limits`).
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from common.errors import UserError
from common.tables import data_size
from t5x import schedules
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.inference import filling
from t5x.inference.predictor import MODES
from t5x.input_pipeline import mixed
from t5x.input_pipeline.config import DatasetConfig, Datasets
from t5x.input_pipeline.corpora import Corpora
from t5x.loop import triggers
from t5x.monitoring import metric_writers
from t5x.partitioning import PjitPartitioner
from t5x.start import selection_metric
from t5x.start.checkpoint import Start
from t5x.start.model_dir import check_writable, holds_run
from t5x.start.vocabulary import check_feature_lengths, check_features, verify_matching_vocabs
from t5x.watch import Watch

_EVAL_STEPS = "EVAL_STEPS (train.eval_steps)"
Lengths = Mapping[str, int] | None  # {feature: length}
Verify = Callable[..., None] | None  # (dataset cfg, model), raises if they do not fit


def check_training(
    model: Any,
    partitioner: PjitPartitioner,
    cfgs: Datasets,
    plan: triggers.TrainingPlan,
    save: SaveCheckpointConfig | None,
    actions: Mapping[Any, Sequence[Any]] | None,
    watch: Watch,
    eval_steps: int,
    verify_fn: Verify,
    model_dir: str,
) -> None:
    """Check the settings of a training run; `cfgs` are its datasets by gin scope."""
    check_model(model)
    check_optimizer(model)
    check_phases(cfgs["train"], save)
    for scope, cfg in cfgs.items():
        if cfg is None:
            continue
        if scope != "train":
            selection_metric.check_split(scope, cfg)
        has_rows = scope != "infer_eval"  # there the longest example may set the length
        check_dataset(cfg, model, verify_fn, lengths=has_rows)
        if scope != "train":  # `Trainer` checks the training batch, since it knows its microbatches
            name = f"{scope}/utils.DatasetConfig.batch_size"
            partitioner.check_batch(cfg.batch_size, None, name)
    if cfg := cfgs["train_eval"]:
        check_eval_steps(eval_steps)
        check_evaluation_rows(cfg, partitioner, eval_steps)
    if cfg := cfgs["infer_eval"]:
        check_metrics(cfg)
        check_decoding(model)
    selection_metric.check(cfgs, save, actions)
    metric_writers.check_names(watch.writers)
    lengths = cfgs["train"].task_feature_lengths if cfgs["train"] else None
    filling.check_sentences(watch.infill_sentences, model.input_vocabulary, lengths)
    check_writable(model_dir)


def check_phases(cfg: DatasetConfig | None, save: SaveCheckpointConfig | None) -> None:
    """Raise UserError if rates change with the step, but checkpoints do not save the step."""
    if cfg and save and not save.save_dataset and len(mixed.phases_of(cfg.provider)) > 1:
        raise UserError(
            "SaveCheckpointConfig.save_dataset",
            False,
            f"but the rates of {cfg.provider.name} change with the step, which the data position "
            "says",
            "set it to True",
        )


def check_model(model: Any) -> None:
    """Raise UserError if `model` is not a model."""
    if not hasattr(model, "get_initial_variables"):
        raise UserError(
            "MODEL",
            why=f"is a {type(model).__name__}, which is no model",
            to_set="set MODEL to one, such as @models.EncoderDecoderModel()",
        )


def check_optimizer(model: Any) -> None:
    """Raise UserError if the model's optimizer is not an optimizer."""
    optimizer = getattr(model, "optimizer_def", None)
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise UserError(
            "OPTIMIZER",
            why=f"is a {type(optimizer).__name__}, which is no optimizer",
            to_set="set OPTIMIZER to one, such as @adafactor.Adafactor()",
        )


def check_dataset(cfg: DatasetConfig, model: Any, verify_fn: Verify, lengths: bool = True) -> None:
    """Check the vocabulary and the first records of a dataset; with `lengths`, that it has them."""
    if lengths:
        check_feature_lengths(cfg)
    check_features(cfg)
    if verify_fn is not None:
        verify_fn(cfg, model)
    Corpora(cfg).check()


def check_inference(
    model: Any,
    partitioner: PjitPartitioner,
    cfg: DatasetConfig,
    output_dir: str,
    verify_fn: Verify = verify_matching_vocabs,
    lengths: bool = True,
) -> None:
    """Check the settings of an evaluation of checkpoints, or of inference; see `check_dataset`."""
    check_model(model)
    check_dataset(cfg, model, verify_fn, lengths)
    check_decoding(model)
    partitioner.check_batch(cfg.batch_size, None, "utils.DatasetConfig.batch_size")
    check_writable(output_dir)
    if holds_run(output_dir):
        raise UserError(
            "EVAL_OUTPUT_DIR or INFER_OUTPUT_DIR",
            output_dir,
            "the folder of a run, whose config.gin would be overwritten",
            f"set it to another folder, such as {output_dir.rstrip('/')}/output",
        )


def check_rate(
    rate: Callable[..., jax.Array], optimizer: Any, start: Start, total_steps: int
) -> str | None:
    """Return why a schedule does not suit the optimizer, None if it does or is not used.

    Raise UserError if it has ended before the start, or never ends although it must.
    """
    if getattr(optimizer, "has_own_rate", False):
        return None
    schedules.check_start(rate, start.known_step, total_steps)
    suits = getattr(optimizer, "usual_rates", None)
    return suits.unusual(rate, start.step, total_steps) if suits else None


def check_memory(
    model: Any, arrays: Any, partitioner: PjitPartitioner, rows: int = 0, lengths: Lengths = None
) -> None:
    """Raise UserError if the state, or the state and a step, cannot fit on a device.

    `arrays` are shapes and shardings of the parameters, and of the optimizer's state if there is
    one. A step of `rows` rows holds at least the activations that `least_row_bytes` counts, too.
    """
    config = getattr(model.module, "config", None)
    leaves, network = jax.tree.leaves(arrays), type(config).__name__
    size = lambda shape, dtype: math.prod(shape) * dtype.itemsize
    needed = sum(size(x.sharding.shard_shape(x.shape), x.dtype) for x in leaves)
    limit = memory_of(partitioner.mesh.devices.flat[0])
    if limit is not None and needed > limit:
        total = sum(math.prod(x.shape) for x in leaves)
        raise UserError(
            "The network",
            why=f"has {total:,} numbers in its state, {data_size(needed)} on each device, which "
            f"has {data_size(limit)}",
            to_set=f"lower network.{network}.emb_dim, mlp_dim, num_heads, head_dim, vocab_size or "
            "the number of layers, or divide it among more devices by "
            "partitioning.PjitPartitioner.num_partitions",
        )
    held = rows * least_row_bytes(config, lengths or {}) // partitioner.mesh.size
    if limit is not None and needed + held > limit:
        raise UserError(
            "A step",
            why=f"has {rows:,} rows of {lengths} ids, of which the layers keep at least "
            f"{data_size(held)} on each device, which has {data_size(limit)} and holds a state of "
            f"{data_size(needed)}",
            to_set="lower BATCH_SIZE or TASK_FEATURE_LENGTHS, or divide a batch into more "
            "trainer.Trainer.num_microbatches",
        )


def least_row_bytes(config: Any, lengths: Mapping[str, int]) -> int:
    """Return the least bytes that a step keeps for a row: the input of each layer, and the logits.

    Return 0 for a network whose configuration is unknown.
    """
    size: Callable[[str], Any] = lambda name: getattr(config, name, 0)
    inputs, targets = lengths.get("inputs", 0), lengths.get("targets", 0)
    layers = inputs * (size("num_encoder_layers") or size("num_layers"))
    layers += targets * size("num_decoder_layers")
    logits = targets * size("vocab_size") if size("num_decoder_layers") else 0
    return (layers * size("emb_dim") + logits) * jnp.dtype(size("dtype") or "float32").itemsize


def memory_of(device: jax.Device) -> int | None:
    """Return the bytes that a device can hold, None if unknown; CPUs share the host's memory."""
    if device.platform == "cpu":
        return host_memory() // jax.local_device_count()
    return (device.memory_stats() or {}).get("bytes_limit")


def host_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_eval_steps(steps: int) -> None:
    """Raise UserError if an evaluation of the loss would have no batch."""
    if steps < 1:
        raise UserError(
            _EVAL_STEPS,
            steps,
            to_set="set it to at least 1 batch, or train.train_eval_dataset_cfg to None",
        )


def check_evaluation_rows(cfg: DatasetConfig, partitioner: PjitPartitioner, steps: int) -> None:
    """Raise UserError if a host cannot keep the batches of an evaluation in memory."""
    begin, end = partitioner.host_rows(cfg.batch_size)
    needed = steps * (end - begin) * sum((cfg.task_feature_lengths or {}).values()) * 4
    if needed > (limit := host_memory()):
        raise UserError(
            _EVAL_STEPS,
            steps,
            f"whose batches take {data_size(needed)}, and this machine has {data_size(limit)}",
            "set it to fewer batches",
        )


def check_shares(mode: str, shard_id: int, num_shards: int) -> None:
    """Raise UserError for an unknown mode of `t5x.infer`, or a shard that does not exist."""
    if mode not in MODES:
        raise UserError("infer.mode", mode, to_set=f"set INFER_MODE to one of {MODES}")
    if not 0 <= shard_id < num_shards:
        raise UserError(
            "infer.shard_id",
            shard_id,
            f"but there are {num_shards} shards (infer.num_shards), numbered from 0",
            "set infer.shard_id below infer.num_shards",
        )


def check_output_feature(cfg: DatasetConfig, name: str) -> None:
    """Raise UserError if a task of `cfg` has no output feature of this name."""
    for task in cfg.tasks_with_split:
        if name not in task.output_features:
            raise UserError(
                "infer.output_vocab_feature_name",
                name,
                f"which task {task.name} does not have",
                f"set it to one of {sorted(task.output_features)}",
            )


def check_metrics(cfg: DatasetConfig) -> None:
    """Raise UserError if seqio's evaluator would have nothing to measure."""
    if not any(task.metric_objs for task in cfg.tasks_with_split):
        raise UserError(
            f"task {cfg.provider.name}",
            why="has no metric_fns, so decoding it would measure nothing",
            to_set="name another MIXTURE_OR_TASK_NAME, or leave train.infer_eval_dataset_cfg at "
            "None",
        )


def check_decoding(model: Any) -> None:
    """Run the optional `check` of the model's `decode_fn`; see `decoding.DecodeFn`."""
    getattr(getattr(model, "decode_fn", None), "check", lambda: None)()
