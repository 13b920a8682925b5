"""A compiler whose memory and cycles are a line of arithmetic, in place of libtpu's.

compiled = fake_compiler.install(monkeypatch, state=2.0, limit=10.0)     # settings, as compiled
"""

import ast
import dataclasses
import functools
import math

from fakes import toy, valid_run
from preflight.aot import slices
from preflight.aot.compiler import OutOfMemory
from preflight.aot.cost import Figures
from preflight.run_context import RunContext
from preflight.search import BATCH, MICROBATCHES, PARTITIONS
from t5x.partitioning import PjitPartitioner
from t5x.trainer import Trainer

REMAT = "network.T5Config.remat_policy"
FIGURES = Figures(
    cycles=105_000_000,
    argument_gib=1.0,
    parameter_gib=0.9,
    optimizer_gib=0.05,
    peak_gib=4.0,
    temp_gib=3.5,
    code_gib=0.1,
    flops=55e12,
    rows=16,
    tokens=16 * 157,
    compile_seconds=40.0,
    trace_seconds=3.0,
    collectives={"all-reduce": 2e9},
    costliest=[],
)
_GIB_A_ROW = {"none": 2.0, "minimal": 1.0, "full": 0.5}
_SLOWER = {"none": 0.9, "minimal": 1.0, "full": 1.3}


def install(monkeypatch, state=2.0, limit=10.0, **recipe) -> list[dict]:
    """Replace the compiler for the search.

    Args:
      monkeypatch: pytest's.
      state: GiB of parameters, and as many again where microbatches add up gradients.
      limit: GiB of a device.
      **recipe: values of the gin files, by gin name.

    Returns:
      A list that grows by the values of each compiled program.
    """
    settings = {BATCH: 16, MICROBATCHES: 1, PARTITIONS: 1, REMAT: "minimal"} | recipe
    compiled: list[dict] = []

    def compile_step(request, cache=None):
        values = dict(settings)
        for binding in request.recipe.bindings:
            name, _, value = binding.partition(" = ")
            values[name] = ast.literal_eval(value)
        compiled.append(values)
        devices = slices.find(request.slice).device_count
        rows, parts, spread, remat = values.values()
        if rows % (devices // spread * parts):
            raise ValueError("does not divide")
        held = state / spread
        work = rows / devices / parts * _GIB_A_ROW[remat]
        work += held if parts > 1 else 0
        if held + work > limit:
            raise OutOfMemory("fake", held + work, limit, held)
        slower = _SLOWER[remat] * (1 + 0.1 * math.log2(parts)) * (1 + 0.2 * math.log2(spread))
        cycles = int(1e7 * rows / devices * slower)
        sizes = {"argument_gib": held, "peak_gib": held + work}
        counts = {"rows": rows, "tokens": rows * 157, "flops": 1e10}
        return dataclasses.replace(FIGURES, cycles=cycles, **sizes, **counts)

    monkeypatch.setattr("preflight.search.compile_step", compile_step)
    return compiled


def context(rows=16, parts=1, remat="minimal", spread=1, tpu="v4-8") -> RunContext:
    """Return a valid run with this batch, microbatches, policy and partitions."""
    return valid_run.context(
        tpu=tpu,
        model=valid_run.model(remat_policy=remat),
        train_dataset_cfg=dataclasses.replace(valid_run.TRAIN, batch_size=rows),
        train_eval_dataset_cfg=None,
        trainer_cls=functools.partial(Trainer, learning_rate_fn=toy.rate, num_microbatches=parts),
        partitioner=PjitPartitioner(spread),
    )
