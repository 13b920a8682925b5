"""Compiles the very train step of a model for a slice that is not there, and reads its price.

  figures = compile_step(RunRequest("v4-8", Recipe(("gin/ro_t5x_base.gin",))))     # a recipe's own
  figures = compile_step(Request("v4-8", network={"vocab_size": 64000, …}, batch=128))    # or any
  figures.cycles, figures.temp_gib, figures.compile_seconds

libtpu may end a process that it is not pleased with, so each program is compiled in one of its own,
on the CPU: `python -m preflight.aot.compiler` reads a request as JSON from its input and writes the
figures to its output. A minute or two of two cores for a large model.
"""

import dataclasses
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preflight.aot import synthetic_step, tpu_slices
from preflight.aot.hlo import Program
from preflight.aot.recipe import Recipe
from preflight.aot.synthetic_step import Request

ROOT = Path(__file__).resolve().parents[2]
_OUT_OF_MEMORY = (
    re.compile(r"for HLO temporaries \(([\d.]+)(\w?)\) exceeds available HBM \(([\d.]+)(\w?)\)"),
    re.compile(r"in memory space hbm\. Used ([\d.]+)(\w?) of ([\d.]+)(\w?) hbm"),
)
_SIZES = {"": 2**-30, "K": 2**-20, "M": 2**-10, "G": 1.0, "T": 2**10}


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """The train step of a recipe to compile.

    Args:
      slice: see `slices.find`.
      recipe: gin files and bindings.
      dump: file for the optimized program, none by default.
      decodes: of what decodes at an evaluation, in place of the train step.
    """

    slice: str
    recipe: Recipe
    dump: str | None = None
    decodes: bool = False


@dataclasses.dataclass(frozen=True)
class Figures:
    """The price of one step on one device of the slice.

    Args:
      cycles: the compiler's estimate, loops counted as often as they run.
      argument_gib: parameters, optimizer state and batch.
      parameter_gib: parameters alone.
      optimizer_gib: optimizer state alone.
      peak_gib: all arrays at the moment when they are most, arguments counted.
      temp_gib: room set aside for temporary arrays, which may lie apart and never be full at once.
      code_gib: the program.
      flops: what the model's arithmetic needs, see `t5x.monitoring.flops`, of all devices.
      rows: sequences a step, of all devices.
      tokens: of inputs and targets a step, of all devices.
      compile_seconds: of XLA; tracing is `trace_seconds`.
      trace_seconds: Python and lowering.
      collectives: bytes of results by kind.
      kernels: FLOP and bytes of kernels on one device, see `hlo.Program.kernels`.
      costliest: instructions by cycles, see `hlo.Program.costliest`.
      cached: files of the compilation cache that were written.
    """

    cycles: int
    argument_gib: float
    parameter_gib: float
    optimizer_gib: float
    peak_gib: float
    temp_gib: float
    code_gib: float
    flops: float
    rows: int
    tokens: int
    compile_seconds: float
    trace_seconds: float
    collectives: Mapping[str, float]
    costliest: list[tuple[int, int, str, str]]
    cached: tuple[str, ...] = ()
    kernels: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def kernel_seconds(self, chip: tpu_slices.Chip) -> float:
        """What kernels take at least, at the chip's peak or bandwidth: the cycles lack them."""
        return max(
            self.kernels.get("flops", 0.0) / chip.peak_flops * chip.devices,
            self.kernels.get("bytes", 0.0) / chip.bandwidth * chip.devices,
        )

    def seconds(self, chip: tpu_slices.Chip) -> float:
        """A step, as the compiler estimates it, and its kernels at their best."""
        return self.cycles / chip.clock + self.kernel_seconds(chip)

    @property
    def used_gib(self) -> float:
        """All that the step needs of a device's memory."""
        return max(self.peak_gib, self.argument_gib) + self.code_gib

    @property
    def activation_gib(self) -> float:
        """Arrays of the step itself, gradients among them, when they are most."""
        return max(self.peak_gib - self.argument_gib, 0.0)


class CompileError(RuntimeError):
    """The compiler refused the step; the message is its own."""


class OutOfMemory(CompileError):
    """The step does not fit a device: GiB it uses, may use, and of these its arguments."""

    def __init__(self, message: str, used: float, limit: float, arguments: float):
        super().__init__(message)
        self.used, self.limit, self.arguments = used, limit, arguments

    @classmethod
    def of(cls, message: str, arguments: float) -> "OutOfMemory | None":
        """Read from the compiler's message, None where it tells of something else.

        What it calls temporaries when it gives up early is everything, arguments counted.
        """
        for pattern in _OUT_OF_MEMORY:
            if found := pattern.search(message):
                used, limit = _gib(*found.group(1, 2)), _gib(*found.group(3, 4))
                return cls(message.splitlines()[0], used, limit, arguments)
        return None


def _gib(number: str, unit: str) -> float:
    return float(number) * _SIZES[unit]


def compile_step(
    request: Request | RunRequest,
    cache: str | None = None,
    limit_s: float = 1800.0,
    module: str = "preflight.aot.compiler",
) -> Figures:
    """Compiles in a process of its own.

    Args:
      request: what to compile.
      cache: folder to which the compiled program is added as JAX's compilation cache has it.
      limit_s: seconds it may take; a program that just fits can take the compiler very long.
      module: what the process runs: it answers as this module does.

    Raises:
      ValueError: an unknown slice, before anything is started; a recipe that does not fit it.
      OutOfMemory: it does not fit.
      CompileError: the compiler's own words.
    """
    tpu_slices.find(request.slice)
    # Such a process can write the cache, not read it; so it gets an empty one.
    with tempfile.TemporaryDirectory() as fresh:
        environment = {"JAX_COMPILATION_CACHE_DIR": fresh} if cache else {}
        answer = _ask(request, environment, limit_s, module)
        cached = _keep(fresh, cache) if cache else ()
    return Figures(**{**answer, "cached": cached})


def compile_decoding(request: RunRequest, limit_s: float = 1800.0) -> Mapping[str, float]:
    """Compiles what decodes a batch at an evaluation, likewise.

    Returns:
      `used_gib` of a device, `held_gib` of it the state of training, and `compile_seconds`.

    Raises:
      As `compile_step`.
    """
    tpu_slices.find(request.slice)
    return _ask(dataclasses.replace(request, decodes=True), {}, limit_s)


def _ask(
    request: Any,
    environment: Mapping[str, str],
    limit_s: float,
    module: str = "preflight.aot.compiler",
) -> dict[str, Any]:
    """What a process of its own, which runs `module`, answers to the request."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    try:
        process = subprocess.run(
            [sys.executable, "-m", module],
            input=json.dumps(dataclasses.asdict(request)),
            capture_output=True,
            text=True,
            env=os.environ | tpu_slices.ENVIRONMENT | {"PYTHONPATH": paths} | environment,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"the compiler has not ended within {limit_s:,.0f} s") from error
    return _answer(process)


def _answer(process: subprocess.CompletedProcess) -> dict[str, Any]:
    """The child's figures, or its error raised here."""
    lines = process.stdout.splitlines()
    if process.returncode or not lines:
        last = (process.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise CompileError(f"the compiler's process ended with status {process.returncode}: {last}")
    answer = json.loads(lines[-1])
    if "refused" in answer:
        raise ValueError(answer["refused"])
    if "error" in answer:
        message = answer["error"]
        held = answer["arguments_gib"]
        raise OutOfMemory.of(message, held) or CompileError(message.splitlines()[0])
    return answer


def _keep(fresh: str, cache: str) -> tuple[str, ...]:
    """Moves what was written into the folder to keep it in."""
    os.makedirs(cache, exist_ok=True)
    names = sorted(n for n in os.listdir(fresh) if n.startswith("jit_train_step"))
    return tuple(
        os.fspath(shutil.move(os.path.join(fresh, n), os.path.join(cache, n))) for n in names
    )


def compile_here(request: Request | RunRequest) -> dict[str, Any]:
    """Compiles in this process, which must have been started with `slices.ENVIRONMENT`.

    Returns:
      The fields of `Figures`; or what the compiler says where it refuses, and GiB of arguments.

    Raises:
      ValueError: the recipe is bad, or does not fit the slice.
    """
    import jax

    devices = tpu_slices.find(request.slice).devices()
    started = time.monotonic()
    decodes, specs = False, None
    if isinstance(request, RunRequest):
        from preflight.aot import recipe, recipe_step

        run, decodes = recipe.load(request.recipe), request.decodes
        if decodes:
            lowered, specs = recipe_step.decoding(run, devices)
        else:
            trainer, batch = recipe_step.train_step(run, devices)
    else:
        trainer, batch = synthetic_step.train_step(request, devices)
    if not decodes:
        lowered, specs = trainer.lower(batch), trainer.specs
    held = bytes_held(specs.state) / tpu_slices.GIB
    traced = time.monotonic()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {"error": str(error), "arguments_gib": held}
    seconds = {"compile_seconds": time.monotonic() - traced, "trace_seconds": traced - started}
    if decodes:
        return {"used_gib": held + used_gib(compiled), "held_gib": held, **seconds}
    if request.dump:
        Path(request.dump).write_text(compiled.as_text())
    return dataclasses.asdict(Figures(**figures(compiled, trainer, batch), **seconds))


def figures(compiled: Any, trainer: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of `Figures` but the seconds."""
    from t5x.monitoring.flops import step_flops

    program, memory = Program(compiled.as_text()), compiled.memory_analysis()
    rows, inputs = batch["encoder_input_tokens"].shape
    targets = batch["decoder_target_tokens"].shape[1]
    return {
        "cycles": program.cycles(),
        "argument_gib": memory.argument_size_in_bytes / tpu_slices.GIB,
        "parameter_gib": bytes_held(trainer.specs.state.params) / tpu_slices.GIB,
        "optimizer_gib": bytes_held(trainer.specs.state.param_states) / tpu_slices.GIB,
        "peak_gib": memory.peak_memory_in_bytes / tpu_slices.GIB,
        "temp_gib": memory.temp_size_in_bytes / tpu_slices.GIB,
        "code_gib": memory.generated_code_size_in_bytes / tpu_slices.GIB,
        "flops": step_flops(trainer.model.module.config, rows, inputs, targets),
        "rows": rows,
        "tokens": rows * (inputs + targets),
        "collectives": program.collectives(),
        "kernels": program.kernels(),
        "costliest": program.costliest(40),
    }


def used_gib(compiled: Any) -> float:
    """What a program needs of a device's memory, its arguments counted."""
    memory = compiled.memory_analysis()
    arrays = max(memory.peak_memory_in_bytes, memory.argument_size_in_bytes)
    return (arrays + memory.generated_code_size_in_bytes) / tpu_slices.GIB


def bytes_held(tree: Any) -> int:
    """Bytes of arrays (ShapeDtypeStructs with shardings) on one device, without padding."""
    import jax

    sizes = (
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree)
    )
    return sum(sizes)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """What the process says to a request: what `compile_here` gives, or why it refuses."""
    if "recipe" in asked:
        asked["recipe"] = Recipe(**{k: tuple(v) for k, v in asked["recipe"].items()})
        request = RunRequest(**asked)
    else:
        request = Request(**asked)
    try:
        return compile_here(request)
    except ValueError as error:
        return {"refused": str(error)}


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
