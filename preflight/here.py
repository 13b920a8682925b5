"""The devices of this machine in the place of a slice: the step is compiled for them and timed.

A slice need not exist. These devices do, so they run the step, on rows without padding.
"""

import argparse
import dataclasses
import itertools
import math
import os
import statistics
import time

import jax
import numpy as np

from common.tables import NotChecked
from preflight.aot import recipe_step
from preflight.aot.compiler import OutOfMemory, figures_of, gib_on_a_device
from preflight.aot.cost import Figures
from preflight.aot.slices import GIB, Chip, Slice
from t5x import precompile
from t5x.monitoring import flops
from t5x.start import preconditions
from t5x.train_state import initial_state
from t5x.trainer import Shapes, Trainer

NAME = "here"
TIMED = 5  # steps
# A step of a large batch takes minutes on a CPU, so only so many FLOP of its rows are timed there.
_CPU_FLOPS = 1e12


class LocalDevices(Slice):
    """The devices of this machine; what its chip can do is infinite where it is unknown."""

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
    limit = preconditions.memory_of(first) or preconditions.host_memory() / count
    peak = flops.peak_flops(first.device_kind) or math.inf
    chip = Chip(peak, math.inf, math.inf, limit / GIB, 1, 1, 0.0, first.platform)
    kind = first.device_kind if first.platform != "cpu" else f"CPU, {os.cpu_count()} cores"
    return LocalDevices(kind, chip, (count,))


def measure(run: argparse.Namespace, limit_gib: float) -> Figures:
    """Compile the step of `run` in this process, and time it.

    Raise UserError, one sentence, for a run that does not fit the devices, and OutOfMemory for one
    that does not fit their memory, which is not run.
    """
    trainer, shapes = recipe_step.train_step(run, jax.devices())
    step = precompile.compile_program(lambda: trainer.lower(shapes))
    memory = step.compiled.memory_analysis()
    if memory is None:
        raise NotChecked("this backend does not report the memory of a program")
    seconds = {"trace_seconds": step.trace_seconds, "compile_seconds": step.compile_seconds}
    figures = figures_of(trainer, shapes, memory, **seconds)
    # Without a schedule as on a TPU, all temporary arrays may be live at once.
    figures = dataclasses.replace(figures, peak_gib=figures.argument_gib + figures.temp_gib)
    if figures.used_gib > limit_gib:
        state = gib_on_a_device(trainer.specs.state)
        raise OutOfMemory("it does not fit", figures.used_gib, limit_gib, state)
    rows = timed_rows(run, trainer, shapes)
    timed = time_steps(run, trainer, shapes, rows) * figures.rows / rows
    return dataclasses.replace(figures, timed_seconds=timed, timed_rows=rows)


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
    del trainer.state  # leaves its memory to the next settings that are tried
    return statistics.median(np.diff(ends)[-TIMED:])
