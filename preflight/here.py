"""The train step of a recipe on the devices of this machine: what it needs, and how long it takes.

Unlike `preflight.aot`, which compiles for a slice that need not exist, this compiles for the local
CPU, GPU or TPU, and runs the step on rows without padding.
"""

import argparse
import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from command_line.results import (
    CheckResult,
    NotChecked,
    counted,
    fails,
    ok,
    run_check,
    time_span,
    warning,
)
from preflight import search
from preflight.aot import recipe_step
from preflight.aot.compiler import OutOfMemory, gib_on_a_device
from preflight.aot.recipe import Recipe, load
from preflight.aot.tpu_slices import GIB, Chip, Slice
from preflight.checks import checklist
from preflight.run_context import RunContext
from t5x.monitoring import flops
from t5x.train_state import initial_state
from t5x.trainer import Shapes, Trainer

NAME = "here"
CHECKS = ("memory", "speed", "duration", "input")
TIMED = 5  # steps
# A step of a large batch takes minutes on a CPU, so only so many FLOP of its rows are timed there.
_CPU_FLOPS = 1e12
_ATTEMPTS = 4  # settings that are compiled to make a step fit
_NEARLY_FULL, _LONG_HOURS = 0.95, 31 * 24.0


class LocalDevices(Slice):
    """The devices of this machine, in the place of a slice."""

    @property
    def hosts(self) -> int:
        """One, this machine."""
        return 1

    def devices(self) -> list:
        """Return the devices."""
        return jax.devices()


def find() -> LocalDevices:
    """Return the devices of this machine, with the memory that a program may use on each."""
    first, count = jax.devices()[0], jax.device_count()
    limit = (first.memory_stats() or {}).get("bytes_limit")
    if not limit:  # of a CPU, whose devices share the memory
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / count
    chip = Chip(0.0, 0.0, 0.0, limit / GIB, 1, 1, 0.0, first.platform)
    kind = first.device_kind if first.platform != "cpu" else f"CPU, {os.cpu_count()} cores"
    return LocalDevices(kind, chip, (count,))


@dataclasses.dataclass(frozen=True)
class Step:
    """A compiled step on a device, and its time if it was run."""

    used_gib: float  # of arguments, temporary arrays and program
    state_gib: float  # of it for parameters and optimizer state
    compile_seconds: float
    tokens: int  # inputs and targets of the recipe's batch
    seconds: float = 0.0  # of a step of the recipe's batch
    rows: int = 0  # that were timed
    mfu: float | None = None  # None where the peak of the device is unknown


def measure(run: argparse.Namespace, limit_gib: float, is_timed: bool = True) -> Step:
    """Compile the step of `run`, and time it if it fits into `limit_gib`.

    Raise ValueError, one sentence, for a recipe that does not fit the devices.
    """
    trainer, shapes = recipe_step.train_step(run, jax.devices())
    started = time.monotonic()
    memory = trainer.lower(shapes).compile().memory_analysis()
    seconds = time.monotonic() - started
    if memory is None:
        raise NotChecked("this backend does not report the memory of a program")
    arrays = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    step = Step(
        used_gib=(arrays + memory.generated_code_size_in_bytes) / GIB,
        state_gib=gib_on_a_device(trainer.specs.state),
        compile_seconds=seconds,
        tokens=flops.batch_tokens(shapes),
    )
    if not is_timed or step.used_gib > limit_gib:
        return step
    rows = timed_rows(run, trainer, shapes)
    full = shapes["encoder_input_tokens"].shape[0]
    seconds = time_steps(run, trainer, shapes, rows) * full / rows
    share = flops.peak_share(run.model, shapes, jax.device_count(), jax.devices()[0].device_kind)
    return dataclasses.replace(step, seconds=seconds, rows=rows, mfu=share and share / seconds)


def timed_rows(run: argparse.Namespace, trainer: Trainer, shapes: Shapes) -> int:
    """Return how many rows of the batch are timed: all, or on a CPU what takes seconds."""
    rows = shapes["encoder_input_tokens"].shape[0]
    count = flops.batch_flops(run.model, shapes)
    if jax.devices()[0].platform != "cpu" or count is None:
        return rows
    per_row = count / rows
    pieces = trainer.partitioner.mesh.shape["data"] * trainer.num_microbatches
    while rows * per_row > _CPU_FLOPS and rows % (2 * pieces) == 0:
        rows //= 2
    return rows


def time_steps(run: argparse.Namespace, trainer: Trainer, shapes: Shapes, rows: int) -> float:
    """Return the median seconds of TIMED steps on `rows` rows, after two that are not counted."""
    trainer.state = initial_state(run.model, trainer.specs, jax.random.key(0))
    batch = {name: np.ones((rows, *x.shape[1:]), np.int32) for name, x in shapes.items()}
    ends = []
    for _ in trainer.training_steps(itertools.repeat(batch), TIMED + 2):
        ends.append(time.monotonic())  # each waits for the step before
    return statistics.median(np.diff(ends)[-TIMED:])


def check_recipe(
    recipe: Recipe, local: LocalDevices, offline: bool, say: Callable[[str], None]
) -> list[CheckResult]:
    """Return the results of all checks, as `checklist.check_recipe` does for a slice."""
    found, run = checklist.check_gin(recipe)
    if run is None:
        return found
    context = RunContext(run, local, offline)
    found += [run_check(name, check, context) for name, check in checklist.RUN]
    say(f"Compiling the train step of {recipe.name} and timing {TIMED} steps: minutes on a CPU.")
    steps: list[Step] = []

    def memory() -> CheckResult:
        step = measure(run, local.chip.hbm)
        if not step.seconds:
            say(f"It needs {step.used_gib:.1f} GiB. Compiling settings that may make it fit:")
            return does_not_fit(step, context, smaller(recipe, context, step, say))
        steps.append(step)
        return memory_of(step, context)

    def timed() -> Step:
        if not steps:
            raise NotChecked("the step was not run")
        return steps[0]

    checks = (
        memory,
        lambda: speed(timed(), context),
        lambda: duration(timed(), context),
        lambda: ok(f"{timed().tokens / timed().seconds:,.0f} tokens/s"),
    )
    return found + [run_check(name, check) for name, check in zip(CHECKS, checks, strict=True)]


def memory_of(step: Step, context: RunContext) -> CheckResult:
    """Return the memory of a step that fits."""
    limit = context.tpu.chip.hbm
    figure = (
        f"{step.used_gib:.2f} GiB of {limit:.2f}, {step.state_gib:.2f} of it for parameters and "
        f"optimizer state; {step.compile_seconds:.0f} s to compile"
    )
    numbers = {"used_gib": step.used_gib, "limit_gib": limit, "state_gib": step.state_gib}
    if step.used_gib > _NEARLY_FULL * limit:
        to_set = f"--gin.{search.MICROBATCHES}=2, or {search.remat_name(context)}"
        return warning(f"{figure}; nearly full", to_set, numbers=numbers)
    return ok(figure, numbers=numbers)


def does_not_fit(step: Step, context: RunContext, cheapest: search.Settings | None) -> CheckResult:
    """Return by how much a step does not fit, and the flags with which it does."""
    limit = context.tpu.chip.hbm
    figure = (
        f"the step needs {step.used_gib:.2f} GiB, {step.used_gib - limit:.2f} more than the "
        f"{limit:.2f} of {context.tpu.name}, {step.state_gib:.2f} of it for parameters and "
        "optimizer state"
    )
    to_set = "a smaller model: no settings that were tried make it fit"
    if cheapest is not None:
        to_set = search.Trial(cheapest).flags
    return fails(figure, to_set, numbers={"used_gib": step.used_gib, "limit_gib": limit})


def smaller(
    recipe: Recipe, context: RunContext, step: Step, say: Callable[[str], None]
) -> search.Settings | None:
    """Return the first settings with which the step fits, None if none of those tried does."""
    limit = context.tpu.chip.hbm
    error = OutOfMemory("", step.used_gib, limit, step.state_gib)

    def candidates() -> Iterator[search.Settings]:
        for column in search.single_changes(context, error):
            yield column[0]
        yield from search.combined_changes(context)

    for settings in itertools.islice(candidates(), _ATTEMPTS):
        changed = recipe.with_bindings(*(f"{name} = {value!r}" for name, value in settings))
        used = measure(load(changed), limit, is_timed=False).used_gib
        say(f"  {search.Trial(settings).flags}: {used:.1f} GiB")
        if used <= limit:
            return settings
    return None


def speed(step: Step, context: RunContext) -> CheckResult:
    """Return steps a second, and on how many rows they were measured."""
    figure = f"{step.seconds:.3g} s a step, {1 / step.seconds:.3g} steps/s"
    if step.mfu:
        figure += f", MFU {step.mfu:.0%}"
    rows = context.data.batch_size
    if step.rows < rows:
        figure += f", timed with {step.rows} of {rows} rows"
    return ok(figure, numbers={"seconds": step.seconds, "rows": step.rows, "mfu": step.mfu})


def duration(step: Step, context: RunContext) -> CheckResult:
    """Return the time to the last step."""
    hours = context.steps_left * step.seconds / 3600
    steps = counted(context.steps_left, "step")
    figure = f"{time_span(3600 * hours)} for {steps}, without evaluations and saves"
    if hours > _LONG_HOURS:
        to_set = "TRAIN_STEPS lower, a smaller model, or a slice: preflight with v4-8 says more"
        return warning(figure, to_set, numbers={"hours": hours})
    return ok(figure, numbers={"hours": hours})
