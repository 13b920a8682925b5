"""A train step of given sizes, without gin, data or vocabulary: what benchmarks compile and time.

request = Request(slice="v4-8", network={"vocab_size": 64000, "dtype": "bfloat16"}, batch=128)
trainer, batch = train_step(request, devices)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Request:
    """A train step to compile.

    Args:
      slice: see `slices.find`.
      network: fields of `network.T5Config`; `dtype` by name.
      batch: sequences a step, of the whole slice.
      inputs: tokens a sequence of the encoder.
      targets: tokens a sequence of the decoder.
      partitions: see `partitioning.PjitPartitioner.num_partitions`.
      microbatches: see `trainer.Trainer.num_microbatches`.
      rules: arguments of `partitioning.standard_logical_axis_rules`.
      z_loss: see `models.EncoderDecoderModel`.
      dump: file for the optimized program, none by default.
    """

    slice: str
    network: Mapping[str, Any]
    batch: int = 128
    inputs: int = 512
    targets: int = 114
    partitions: int = 1
    microbatches: int = 1
    rules: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    z_loss: float = 1e-4
    dump: str | None = None


def train_step(request: Request, devices: list) -> tuple[Any, dict[str, Any]]:
    """The trainer of `request` over `devices`, with Adafactor, and the shapes of its batch."""
    import jax

    from t5x import partitioning, schedules
    from t5x.train_state import state_specs
    from t5x.trainer import Trainer

    model = make_model(request)
    partitioner = partitioning.PjitPartitioner(
        request.partitions,
        devices=devices,
        logical_axis_rules=partitioning.standard_logical_axis_rules(**request.rules),
    )
    partitioner.check_batch(request.batch, request.microbatches, "--batch")
    batch = batch_shapes(request)
    trainer = Trainer(
        model,
        None,
        partitioner,
        state_specs(model, partitioner, {k: v.shape for k, v in batch.items()}),
        jax.random.key(0),
        learning_rate_fn=schedules.create_learning_rate_scheduler(
            factors="constant * rsqrt_decay", base_learning_rate=1.0, warmup_steps=10000
        ),
        num_microbatches=request.microbatches,
    )
    return trainer, batch


def make_model(request: Request) -> Any:
    """The model of `request`; it has no vocabulary, since nothing is decoded."""
    import jax.numpy as jnp

    from t5x import adafactor, models
    from t5x.examples.t5 import network

    fields = dict(request.network)
    fields["dtype"] = jnp.dtype(fields.get("dtype", "float32"))
    fields["mlp_activations"] = tuple(fields.get("mlp_activations", ("relu",)))
    optimizer = adafactor.Adafactor(
        decay_rate=0.8, logical_factor_rules=adafactor.standard_logical_factor_rules()
    )
    module = network.Transformer(config=network.T5Config(**fields))
    return models.EncoderDecoderModel(module, None, None, optimizer, z_loss=request.z_loss)


def batch_shapes(request: Request) -> dict[str, Any]:
    """ShapeDtypeStructs int32 of a packed batch."""
    import jax
    import jax.numpy as jnp

    encoder = ("input_tokens", "segment_ids", "positions")
    decoder = ("input_tokens", "target_tokens", "segment_ids", "positions", "loss_weights")
    lengths = {f"encoder_{name}": request.inputs for name in encoder}
    lengths |= {f"decoder_{name}": request.targets for name in decoder}
    return {k: jax.ShapeDtypeStruct((request.batch, n), jnp.int32) for k, n in lengths.items()}
