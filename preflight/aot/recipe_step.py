"""The train step of a recipe, and its decoding, for devices that need not exist.

Model, optimizer, trainer and shardings are those that `t5x.train` would make of the same gin files.
Run as a module it compiles a `RecipeRequest`, see `preflight.aot.compiler`.
"""

import argparse
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from preflight.aot import compiler, slices
from preflight.aot.recipe import Recipe, load
from t5x import precompile
from t5x.inference.predictor import Predictor
from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter
from t5x.partitioning import PjitPartitioner
from t5x.start import seed
from t5x.start.vocabulary import check_feature_lengths
from t5x.train_state import StateSpecs, state_specs
from t5x.trainer import Shapes, Trainer


@dataclasses.dataclass(frozen=True)
class RecipeRequest(compiler.Request):
    """The train step of a recipe, or with `decodes` the decoding of an evaluation's batch."""

    recipe: Recipe
    decodes: bool = False


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compile a request in this process."""
    run = load(Recipe(**{name: tuple(value) for name, value in request["recipe"].items()}))
    devices = slices.find(request["slice"]).devices()
    if request["decodes"]:
        return compiler.measure_decoding(*decoding(run, devices))
    return compiler.measure_step(*train_step(run, devices))


def train_step(run: argparse.Namespace, devices: list[jax.Device]) -> tuple[Trainer, Shapes]:
    """Return the trainer of `run` over `devices` and its batch's shapes, or raise UserError."""
    trainer = trainer_of(run, run.partitioner.over(devices))
    trainer.check_batch(run.train_dataset_cfg.batch_size)
    return trainer, batch_shapes(run)


def trainer_of(run: argparse.Namespace, partitioner: PjitPartitioner | None = None) -> Trainer:
    """Return the trainer of `run`, without a state; by default on one device of this machine."""
    if partitioner is None:
        rules, device = run.partitioner.rules, jax.devices()[:1]
        partitioner = PjitPartitioner(1, devices=device, logical_axis_rules=rules)
    return precompile.trainer_of(
        run.model,
        partitioner,
        run.trainer_cls,
        generator=seed.generator(run.random_seed, run.use_hardware_rng),
        cooldown_from=run.cooldown_from,
        last=run.total_steps,
    )


def decoding(
    run: argparse.Namespace, devices: list[jax.Device]
) -> tuple[jax.stages.Lowered, StateSpecs]:
    """Return the decoding of an `infer_eval` batch over `devices`, and the training state.

    Feature lengths that a run takes from its examples are the training data's here.
    """
    cfg = run.infer_eval_dataset_cfg
    lengths = cfg.task_feature_lengths or run.train_dataset_cfg.task_feature_lengths
    cfg = dataclasses.replace(cfg, task_feature_lengths=lengths)
    partitioner = run.partitioner.over(devices)
    specs = state_specs(run.model, partitioner)
    predictor = Predictor(run.model, partitioner, cfg.batch_size)
    example = precompile.example_of(run.model, cfg)
    (program,) = predictor.lower("predict", specs.state.params, example)
    return program, specs


def batch_shapes(run: argparse.Namespace) -> Shapes:
    """Return the int32 shapes of the run's global batch from its feature lengths; read no data."""
    cfg = run.train_dataset_cfg
    check_feature_lengths(cfg)  # raises for lengths that are not positive integers
    converter = run.model.FEATURE_CONVERTER_CLS(pack=cfg.pack)
    lengths = dict(converter.get_model_feature_lengths(cfg.task_feature_lengths))
    features = cfg.provider.output_features
    if isinstance(converter, EncoderFeatureConverter) and "type_ids" in features:  # pairs of texts
        length = lengths["encoder_input_tokens"]
        lengths |= {"encoder_type_ids": length, "next_sentence_label": length if cfg.pack else 1}
    shapes = {k: jax.ShapeDtypeStruct((cfg.batch_size, n), jnp.int32) for k, n in lengths.items()}
    if (weights := shapes.get("encoder_loss_weights")) is not None:
        shapes["encoder_loss_weights"] = jax.ShapeDtypeStruct(weights.shape, jnp.float32)
    return shapes


if __name__ == "__main__":
    compiler.serve(answer)
