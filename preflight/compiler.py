"""Compiles the very train step of a model for a slice that is not there, and reads its price.

  request = Request(slice="v4-8", network={"vocab_size": 64000, "dtype": "bfloat16"}, batch=128)
  figures = compile_step(request)          # in a process of its own, on the CPU
  figures.cycles, figures.temp_gib, figures.compile_seconds

libtpu compiles one program a process best; `python -m preflight.compiler` reads a request as JSON
from its input and writes the figures to its output. A minute or two of two cores for a large model.
"""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from preflight import slices
from preflight.hlo import Program


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


@dataclasses.dataclass(frozen=True)
class Figures:
    """The price of one step on one device of the slice.

    Args:
      cycles: the compiler's estimate, loops counted as often as they run.
      argument_gib: parameters, optimizer state and batch.
      temp_gib: what the step needs besides, at its peak.
      code_gib: the program.
      compile_seconds: of XLA; tracing is `trace_seconds`.
      trace_seconds: Python and lowering.
      collectives: bytes of results by kind.
      costliest: instructions by cycles, see `hlo.Program.costliest`.
    """

    cycles: int
    argument_gib: float
    temp_gib: float
    code_gib: float
    compile_seconds: float
    trace_seconds: float
    collectives: Mapping[str, float]
    costliest: list[tuple[int, int, str, str]]


class CompileError(RuntimeError):
    """The compiler refused the step; the message is its own (memory it lacks, say)."""


def compile_step(request: Request) -> Figures:
    """Compiles in a process of its own.

    Raises:
      ValueError: an unknown slice, before anything is started.
      CompileError: the compiler's own words.
    """
    import os

    slices.find(request.slice)
    process = subprocess.run(
        [sys.executable, "-m", "preflight.compiler"],
        input=json.dumps(dataclasses.asdict(request)),
        capture_output=True,
        text=True,
        env=os.environ | slices.ENVIRONMENT,
    )
    if process.returncode:
        raise CompileError(process.stderr.strip().splitlines()[-1])
    return Figures(**json.loads(process.stdout.splitlines()[-1]))


def compile_here(request: Request) -> Figures:
    """Compiles in this process, which must have been started with `slices.ENVIRONMENT`."""
    devices = slices.find(request.slice).devices()
    started = time.monotonic()
    lowered = lower_step(request, devices)
    traced = time.monotonic()
    compiled = lowered.compile()
    seconds = time.monotonic() - traced
    text, memory = compiled.as_text(), compiled.memory_analysis()
    if request.dump:
        with open(request.dump, "w") as file:
            file.write(text)
    program = Program(text)
    return Figures(
        cycles=program.cycles(),
        argument_gib=memory.argument_size_in_bytes / slices.GIB,
        temp_gib=memory.temp_size_in_bytes / slices.GIB,
        code_gib=memory.generated_code_size_in_bytes / slices.GIB,
        compile_seconds=seconds,
        trace_seconds=traced - started,
        collectives=program.collectives(),
        costliest=program.costliest(40),
    )


def lower_step(request: Request, devices: list) -> Any:
    """The train step of `request`, with Adafactor, lowered for `devices`."""
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
    partitioner.check_batch(request.batch, request.microbatches, "BATCH_SIZE")
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
    return trainer.lower(batch)


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


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(compile_here(Request(**json.load(sys.stdin))))))
