"""The very train step of a run, for devices that need not exist.

  trainer, batch = train_step(run, slices.find("v4-8").devices())
  lowered = trainer.lower(batch)

Model, optimizer, trainer and layout are those that `t5x.train` would make of the same gin.
"""

import argparse
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from t5x import precompile
from t5x.inference import predictor as inference
from t5x.input_pipeline.checks import feature_shapes
from t5x.partitioning import PjitPartitioner
from t5x.train_state import StateSpecs, state_specs
from t5x.trainer import Trainer


def train_step(
    run: argparse.Namespace, devices: list[jax.Device]
) -> tuple[Trainer, dict[str, jax.ShapeDtypeStruct]]:
    """The trainer of `run` over `devices`, and the shapes of its batch.

    Raises:
      ValueError: batch, microbatches or partitions do not fit the devices.
    """
    partitioner = run.partitioner.over(devices)
    specs = state_specs(run.model, partitioner, feature_shapes(run.train_dataset_cfg))
    # The generator decides what program dropout becomes; the seed does not.
    kind = "rbg" if run.use_hardware_rng or run.random_seed is None else None
    trainer = run.trainer_cls(
        model=run.model,
        train_state=None,
        partitioner=partitioner,
        train_state_axes=specs,
        rng=jax.random.key(0, impl=kind),
    )
    trainer.check_batch(run.train_dataset_cfg.batch_size)
    return trainer, batch_shapes(run)


def decoding(
    run: argparse.Namespace, devices: list[jax.Device]
) -> tuple[jax.stages.Lowered, StateSpecs]:
    """What decodes a batch of `infer_eval` over `devices`, and the state that stands beside it.

    Lengths that are taken from the examples are those of training here.
    """
    cfg = run.infer_eval_dataset_cfg
    lengths = cfg.task_feature_lengths or run.train_dataset_cfg.task_feature_lengths
    cfg = dataclasses.replace(cfg, task_feature_lengths=lengths)
    partitioner = run.partitioner.over(devices)
    specs = state_specs(run.model, partitioner, feature_shapes(cfg))
    predictor = inference.Predictor(run.model, partitioner, cfg.batch_size)
    example = precompile.example_of(run.model, cfg)
    (program,) = predictor.lower("predict", specs.state.params, example)
    return program, specs


def batch_shapes(run: argparse.Namespace) -> dict[str, jax.ShapeDtypeStruct]:
    """A global batch of the run, int32, from feature lengths alone: no data is read."""
    cfg = run.train_dataset_cfg
    feature_shapes(cfg)  # refuses lengths that are no lengths
    converter = run.model.FEATURE_CONVERTER_CLS(pack=cfg.pack)
    lengths = converter.get_model_feature_lengths(cfg.task_feature_lengths)
    return {k: jax.ShapeDtypeStruct((cfg.batch_size, n), jnp.int32) for k, n in lengths.items()}


def settings(run: argparse.Namespace) -> Trainer:
    """The trainer with nothing to train, for what it was set to."""
    nothing: Any = None
    return run.trainer_cls(
        model=run.model,
        train_state=nothing,
        partitioner=nothing,
        train_state_axes=nothing,
        rng=nothing,
    )


def state_on_one_device(run: argparse.Namespace) -> StateSpecs:
    """Shapes of the state, laid on one device of this machine."""
    partitioner = PjitPartitioner(
        1, devices=jax.devices()[:1], logical_axis_rules=run.partitioner.rules
    )
    return state_specs(run.model, partitioner, feature_shapes(run.train_dataset_cfg))
