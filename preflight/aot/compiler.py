"""Compile a train step ahead of time for a TPU slice that need not exist, and measure it.

libtpu may abort the process, so each program is compiled in a subprocess on the CPU. The subprocess
runs the module of the request's class, such as `preflight.aot.recipe_step`, which reads the request
as JSON and prints the figures. A large model takes two cores a minute or two.
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
from collections.abc import Callable, Mapping
from typing import Any

import jax

from common.errors import ROOT, CommandError, Failure, UserError
from preflight.aot import hlo, slices
from preflight.aot.cost import Figures
from preflight.aot.slices import GIB
from t5x import precompile
from t5x.array_types import PyTree
from t5x.monitoring.flops import batch_flops, batch_tokens
from t5x.train_state import StateSpecs
from t5x.trainer import Shapes, Trainer

_LIMIT_S = 1800.0  # seconds that the compiler may take
_OUT_OF_MEMORY = (
    re.compile(r"for HLO temporaries \(([\d.]+)(\w?)\) exceeds available HBM \(([\d.]+)(\w?)\)"),
    re.compile(r"in memory space hbm\. Used ([\d.]+)(\w?) of ([\d.]+)(\w?) hbm"),
)
_SIZES = {"": 2**-30, "K": 2**-20, "M": 2**-10, "G": 1.0, "T": 2**10}


@dataclasses.dataclass(frozen=True)
class Request:
    """A program to compile for a slice, see `slices.find`, by the module of its class."""

    slice: str


class CompileError(Failure):
    """The compiler refused the program; the message is its own."""


class OutOfMemory(CompileError):
    """The step does not fit a device: GiB used, GiB available, and GiB of its arguments."""

    def __init__(self, message: str, used: float, limit: float, arguments: float):
        super().__init__(why=message)
        self.used, self.limit, self.arguments = used, limit, arguments


def error_of(message: str, arguments: float) -> CompileError:
    """Return the error that the compiler's message describes, of a program with these arguments.

    Where the compiler gives up early, it counts arguments among the temporaries.
    """
    first = message.splitlines()[0]
    for pattern in _OUT_OF_MEMORY:
        if match := pattern.search(message):
            number, unit, limit, limit_unit = match.groups()
            used, available = float(number) * _SIZES[unit], float(limit) * _SIZES[limit_unit]
            return OutOfMemory(first, used, available, arguments)
    return CompileError(why=first)


# --- in the requesting process


def compile_step(
    request: Request, cache: str | None = None, limit_s: float = _LIMIT_S, module: str | None = None
) -> Figures:
    """Compile a train step in a subprocess, which runs `module`, by default the request's.

    The program is added to the folder `cache` of JAX's compilation cache. One that barely fits can
    take the compiler very long, so there is a timeout, `limit_s`. Raise UserError for an unknown
    slice, before anything is started, or a recipe that does not fit it; CompileError with the
    compiler's message, which is an OutOfMemory if the step does not fit.
    """
    # A process that compiles for a described slice can write the cache but not read it.
    with tempfile.TemporaryDirectory() as fresh:
        answer = _ask(request, limit_s, module, fresh if cache else None)
        cached = _move_to_cache(fresh, cache) if cache else ()
    return Figures(**{**answer, "cached": cached})


def compile_decoding(request: Request) -> Mapping[str, float]:
    """Compile an evaluation's decoding in a subprocess.

    Return `used_gib`, `held_gib` of it by training, and `compile_seconds`. Raise the errors of
    `compile_step`.
    """
    return _ask(request)


def _ask(
    request: Request, limit_s: float = _LIMIT_S, module: str | None = None, cache: str | None = None
) -> dict[str, Any]:
    """Return the answer of a subprocess, or raise its error."""
    slices.find(request.slice)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **slices.ENVIRONMENT, "PYTHONPATH": paths}
    try:
        process = subprocess.run(
            [sys.executable, "-m", module or type(request).__module__],
            input=json.dumps(dataclasses.asdict(request)),
            capture_output=True,
            text=True,
            env=environment | ({"JAX_COMPILATION_CACHE_DIR": cache} if cache else {}),
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as error:
        why = f"the compiler has not ended within {limit_s:,.0f} s"
        raise CompileError(why=why) from error
    lines = process.stdout.splitlines()
    if process.returncode or not lines:
        last = (process.stderr.strip().splitlines() or ["no message"])[-1]
        why = f"the compiler's process ended with status {process.returncode}: {last}"
        raise CompileError(why=why)
    answer = json.loads(lines[-1])
    if "refused" in answer:
        raise UserError(**answer["refused"])
    if "error" in answer:
        raise error_of(answer["error"], answer["arguments_gib"])
    return answer


def _move_to_cache(fresh: str, cache: str) -> tuple[str, ...]:
    os.makedirs(cache, exist_ok=True)
    names = sorted(n for n in os.listdir(fresh) if n.startswith("jit_train_step"))
    move = lambda name: shutil.move(os.path.join(fresh, name), os.path.join(cache, name))
    return tuple(os.fspath(move(name)) for name in names)


# --- in the subprocess, which has been started with `slices.ENVIRONMENT`


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read a request from stdin and print `answer(request)`, or why it is refused, as JSON."""
    try:
        reply = answer(json.load(sys.stdin))
    except CommandError as error:
        reply = {"refused": error.as_fields}
    except ValueError as error:
        reply = {"refused": {"why": str(error)}}
    except _NotCompiled as error:
        reply = {"error": error.args[0], "arguments_gib": error.args[1]}
    print(json.dumps(reply))


def measure_step(trainer: Trainer, batch: Shapes) -> dict[str, Any]:
    """Compile a train step of a global batch's shapes, and return the fields of `Figures`."""
    step = _compile(lambda: trainer.lower(batch), trainer.specs)
    program = hlo.Program(step.compiled.as_text() or "")
    figures = figures_of(
        trainer,
        batch,
        step.compiled.memory_analysis(),
        cycles=program.cycles(),
        compile_seconds=step.compile_seconds,
        trace_seconds=step.trace_seconds,
        collectives=program.collectives(),
        received=program.received(),
        costliest=program.costliest(40),
    )
    return dataclasses.asdict(figures)


def figures_of(trainer: Trainer, batch: Shapes, memory: Any, **others: Any) -> Figures:
    """Return the figures of a step: `memory` is its `Compiled.memory_analysis()`."""
    return Figures(
        argument_gib=memory.argument_size_in_bytes / GIB,
        parameter_gib=gib_on_a_device(trainer.specs.state.params),
        optimizer_gib=gib_on_a_device(trainer.specs.state.param_states),
        peak_gib=memory.peak_memory_in_bytes / GIB,
        temp_gib=memory.temp_size_in_bytes / GIB,
        code_gib=memory.generated_code_size_in_bytes / GIB,
        flops=batch_flops(trainer.model, batch) or 0.0,
        rows=batch["encoder_input_tokens"].shape[0],
        tokens=batch_tokens(batch),
        **others,
    )


def measure_decoding(lowered: jax.stages.Lowered, specs: StateSpecs) -> dict[str, Any]:
    """Compile a decoding program that runs next to a training state, and return its figures."""
    program = _compile(lambda: lowered, specs)
    memory: Any = program.compiled.memory_analysis()
    state = gib_on_a_device(specs.state)
    arrays = max(memory.peak_memory_in_bytes, memory.argument_size_in_bytes)
    used = (arrays + memory.generated_code_size_in_bytes) / GIB
    return {"used_gib": state + used, "held_gib": state, "compile_seconds": program.compile_seconds}


class _NotCompiled(Exception):
    """The compiler's message, and the GiB of the training state on a device."""


def _compile(lower: Callable[[], jax.stages.Lowered], specs: StateSpecs) -> precompile.Program:
    """Return the compiled program, or raise the compiler's message."""
    try:
        return precompile.compile_program(lower)
    except jax.errors.JaxRuntimeError as error:
        raise _NotCompiled(str(error), gib_on_a_device(specs.state)) from error


def gib_on_a_device(tree: PyTree) -> float:
    """Return the size of sharded arrays on one device, without padding."""
    size = lambda x: math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
    return sum(map(size, jax.tree.leaves(tree))) / GIB
