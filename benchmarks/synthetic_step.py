"""A train step of given sizes, without gin, data or vocabulary: for benchmarks.

request = SyntheticRequest("v4-8", network={"vocab_size": 64000, "dtype": "bfloat16"}, batch=128)
trainer, batch = train_step(request, devices)

Run as a module it compiles a `SyntheticRequest`, see `preflight.aot.compiler`.
"""

import argparse
import ast
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from preflight.aot import compiler, tpu_slices
from t5x import adafactor, models, optimizers, partitioning, schedules
from t5x.examples.t5 import network
from t5x.train_state import state_specs
from t5x.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class SyntheticRequest(compiler.Request):
    """A train step of given sizes.

    Args:
      network: fields of `network.T5Config`; `dtype` by name.
      batch: sequences a step, on the entire slice.
      inputs: tokens a sequence of the encoder.
      targets: tokens a sequence of the decoder.
      partitions: see `partitioning.PjitPartitioner.num_partitions`.
      microbatches: see `trainer.Trainer.num_microbatches`.
      rules: arguments of `partitioning.standard_logical_axis_rules`.
      z_loss: see `models.EncoderDecoderModel`.
      optimizer: "adafactor", or the name of a function in `t5x.optimizers`.
      dump: file for the optimized program, none by default.
    """

    network: Mapping[str, Any]
    batch: int = 128
    inputs: int = 512
    targets: int = 114
    partitions: int = 1
    microbatches: int = 1
    rules: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    z_loss: float = 1e-4
    optimizer: str = "adafactor"
    dump: str | None = None
    MODULE: ClassVar[str] = "benchmarks.synthetic_step"


def add_beside(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names other settings to time a step with, lists for `settings`."""
    parser.add_argument(
        "--beside",
        nargs="+",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="timed alternately: the same with these fields; may be given several times",
    )


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the fields that FIELD=VALUE set: what Python reads, else the text."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SystemExit(f"{pair!r} sets no value: write FIELD=VALUE, as in dtype=float32")
        try:
            fields[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            fields[name] = value
    return fields


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compile a request in this process."""
    step = train_step(SyntheticRequest(**request), tpu_slices.find(request["slice"]).devices())
    return compiler.measure_step(*step, request["dump"])


def train_step(
    request: SyntheticRequest, devices: list[jax.Device]
) -> tuple[Trainer, dict[str, jax.ShapeDtypeStruct]]:
    """Return the trainer of `request` over `devices` and its batch's shapes."""
    rules = partitioning.standard_logical_axis_rules(**request.rules)
    partitioner = partitioning.PjitPartitioner(
        request.partitions, devices=devices, logical_axis_rules=rules
    )
    batch, rate = batch_shapes(request), ("constant * rsqrt_decay", 1.0)
    return make_trainer(make_model(request), partitioner, batch, request.microbatches, *rate), batch


def make_trainer(
    model: Any,
    partitioner: partitioning.PjitPartitioner,
    batch: Mapping[str, jax.ShapeDtypeStruct],
    microbatches: int,
    factors: str,
    base_learning_rate: float,
) -> Trainer:
    """Return a trainer of batches of these shapes, which must divide evenly."""
    partitioner.check_batch(next(iter(batch.values())).shape[0], microbatches, "--batch")
    return Trainer(
        model,
        None,
        partitioner,
        state_specs(model, partitioner),
        jax.random.key(0),
        learning_rate_fn=schedules.create_learning_rate_scheduler(
            factors, base_learning_rate, warmup_steps=10000
        ),
        num_microbatches=microbatches,
    )


def make_model(request: SyntheticRequest) -> models.EncoderDecoderModel:
    """Return the model of `request`, without a vocabulary: it never decodes."""
    fields = dict(request.network)
    fields["dtype"] = jnp.dtype(fields.get("dtype", "float32"))
    fields["mlp_activations"] = tuple(fields.get("mlp_activations", ("relu",)))
    rules = adafactor.standard_logical_factor_rules()
    optimizer = adafactor.Adafactor(decay_rate=0.8, logical_factor_rules=rules)
    if request.optimizer != "adafactor":
        optimizer = getattr(optimizers, request.optimizer)()
    module = network.Transformer(config=network.T5Config(**fields))
    return models.EncoderDecoderModel(module, None, None, optimizer, z_loss=request.z_loss)


def batch_shapes(request: SyntheticRequest) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the int32 shapes of a packed batch."""
    encoder = ("input_tokens", "segment_ids", "positions")
    decoder = ("input_tokens", "target_tokens", "segment_ids", "positions", "loss_weights")
    lengths = {f"encoder_{name}": request.inputs for name in encoder}
    lengths |= {f"decoder_{name}": request.targets for name in decoder}
    return {k: jax.ShapeDtypeStruct((request.batch, n), jnp.int32) for k, n in lengths.items()}


if __name__ == "__main__":
    compiler.serve(answer)
