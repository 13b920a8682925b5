"""A train step of given sizes, without gin, data or vocabulary: for benchmarks.

request = SyntheticRequest("v4-8", network={"vocab_size": 64000, "dtype": "bfloat16"}, batch=128)
trainer, batch = train_step(request, devices)

Run as a module it compiles a `SyntheticRequest`, see `preflight.aot.compiler`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from preflight.aot import compiler, slices
from t5x import adafactor, models, partitioning, schedules
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
    """

    network: Mapping[str, Any]
    batch: int = 128
    inputs: int = 512
    targets: int = 114
    partitions: int = 1
    microbatches: int = 1
    rules: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    z_loss: float = 1e-4


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compile a request in this process."""
    step = train_step(SyntheticRequest(**request), slices.find(request["slice"]).devices())
    return compiler.measure_step(*step)


def train_step(
    request: SyntheticRequest, devices: list[jax.Device]
) -> tuple[Trainer, dict[str, jax.ShapeDtypeStruct]]:
    """Return the trainer of `request` over `devices` and its batch's shapes."""
    rules = partitioning.standard_logical_axis_rules(**request.rules)
    partitioner = partitioning.PjitPartitioner(
        request.partitions, devices=devices, logical_axis_rules=rules
    )
    partitioner.check_batch(request.batch, request.microbatches, "--batch")
    model, rate = make_model(request), schedules.create_learning_rate_scheduler
    trainer = Trainer(
        model,
        None,
        partitioner,
        state_specs(model, partitioner),
        jax.random.key(0),
        learning_rate_fn=rate("constant * rsqrt_decay", 1.0, warmup_steps=10000),
        num_microbatches=request.microbatches,
    )
    return trainer, batch_shapes(request)


def make_model(request: SyntheticRequest) -> models.EncoderDecoderModel:
    """Return the model of `request`, without a vocabulary: it never decodes."""
    fields = dict(request.network)
    fields["dtype"] = jnp.dtype(fields.get("dtype", "float32"))
    fields["mlp_activations"] = tuple(fields.get("mlp_activations", ("relu",)))
    rules = adafactor.standard_logical_factor_rules()
    optimizer = adafactor.Adafactor(decay_rate=0.8, logical_factor_rules=rules)
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
