"""Time the train step where it runs: steps/s, tokens/s, memory."""

import argparse
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.synthetic_step import SyntheticRequest, train_step
from t5x.monitoring.flops import peak_flops, step_flops

STEPS_A_TURN = 4  # steps in a turn on a GPU


def synthetic_batch(
    shapes: Mapping[str, Any], vocab_size: int, predicted_share: float = 1.0
) -> dict[str, Any]:
    """Return random ids, two segments a row, no padding; at most a share of them is predicted."""
    import numpy as np

    rng, batch = np.random.default_rng(0), {}
    for name, spec in shapes.items():
        rows, length = spec.shape
        if name.endswith("tokens"):
            batch[name] = rng.integers(3, vocab_size, spec.shape, np.int32)
        elif name.endswith("weights"):
            counted = np.arange(length) % math.ceil(1 / predicted_share) == 0
            batch[name] = np.tile(counted.astype(spec.dtype), (rows, 1))
        else:
            half = np.arange(length, dtype=np.int32)
            row = 1 + half // -(-length // 2) if name.endswith("segment_ids") else half
            batch[name] = np.tile(row.astype(np.int32), (rows, 1))
    return batch


@dataclasses.dataclass
class Timed:
    """A train step to run again and again.

    Args:
      advance: dispatches it and returns the loss, a sum over targets, on the device.
      compile_seconds: how long it took to compile, None if unknown.
      temp_gib: temporary memory, without its arguments, None if unknown.
      program: the optimized program's text, "" if unknown.
    """

    advance: Callable[[], Any]
    compile_seconds: float | None = None
    temp_gib: float | None = None
    program: str = ""
    seconds: list[float] = dataclasses.field(default_factory=list)
    loss: float = 0.0

    def turn(self, steps: int) -> None:
        """Run steps one after another, as training does, and note the seconds of one."""
        started = time.perf_counter()
        for _ in range(steps):
            loss = self.advance()
        self.loss = float(loss)  # waits for the device
        self.seconds.append((time.perf_counter() - started) / steps)

    @property
    def costs(self) -> str:
        """Memory and compile time, if they are known, after a comma."""
        temp = f", {self.temp_gib:.2f} GiB temp" if self.temp_gib is not None else ""
        seconds = self.compile_seconds
        return temp + (f", {seconds:.0f} s to compile" if seconds is not None else "")

    @property
    def median(self) -> float:
        """The median of all turns but two, since a mean would measure the load of the machine."""
        return statistics.median(self.seconds[2:])

    @property
    def spread(self) -> float:
        """The distance between the quartiles of all turns but two."""
        low, _, high = statistics.quantiles(self.seconds[2:], n=4)
        return high - low


def our_step(request: SyntheticRequest) -> Timed:
    """Return the trainer's step of a synthetic batch."""
    import jax

    trainer, shapes = train_step(request, jax.devices())
    return timed_step(trainer, shapes, synthetic_batch(shapes, request.network["vocab_size"]))


def timed_step(trainer: Any, shapes: Mapping[str, Any], batch: Mapping[str, Any]) -> Timed:
    """Return a trainer's step of a batch with these shapes; each process has an equal share."""
    import jax

    from t5x.train_state import initial_state

    # With the statistics that only `bad_steps = "skip"` has.
    carried = (initial_state(trainer.model, trainer.specs, jax.random.key(0)), None)
    started = time.perf_counter()
    compiled = trainer.lower(shapes).compile()
    compile_seconds = time.perf_counter() - started
    # Compiled, since processes cannot place an array on the devices of others.
    rng = jax.jit(lambda: jax.random.key(0), out_shardings=trainer.partitioner.replicated)()
    share = lambda rows: rows[: len(rows) // jax.process_count()]
    rest = trainer.put({k: share(rows) for k, rows in batch.items()}), rng

    def advance() -> jax.Array:
        nonlocal carried
        carried, sums = compiled(carried, *rest)
        return sums["loss"]

    temp = compiled.memory_analysis().temp_size_in_bytes / 2**30
    return Timed(advance, compile_seconds, temp, compiled.as_text())


def plain_step(request: SyntheticRequest) -> Timed:
    """Return the same step as upstream writes it."""
    from benchmarks.baselines.plain import plainly

    with plainly():
        return our_step(request)


def take_turns(ways: list[Timed], turns: int) -> None:
    """Run all ways alternately, two turns to warm up and then `turns`.

    A turn is one step, on a GPU `STEPS_A_TURN`: on a fast device the host's time to dispatch a
    step would count.
    """
    import jax

    together = STEPS_A_TURN if jax.devices()[0].platform == "gpu" else 1
    for turn in range(turns + 2):
        for way in ways[:: 1 - 2 * (turn % 2)]:
            way.turn(together)


def report(
    name: str,
    request: SyntheticRequest,
    steps: int,
    others: dict[str, Callable[[SyntheticRequest], Timed]],
) -> None:
    """Compile, run `steps` turns after two to warm up, and print one line.

    Others, by name, take turns with it, and a ratio is printed for each.
    """
    import jax

    ways = [our_step(request), *(other(request) for other in others.values())]
    ours, device = ways[0], jax.devices()[0]
    take_turns(ways, steps)
    flops = step_flops(argparse.Namespace(**request.network), request.batch, request.inputs,
                       request.targets)  # fmt: skip
    peak = (peak_flops(device.device_kind) or 0.0) * jax.device_count()
    rates = lambda way: (
        f"{1 / way.median:.3f} steps/s, "
        f"{request.batch * (request.inputs + request.targets) / way.median:,.0f} tokens/s, "
        f"MFU {f'{flops / way.median / peak:.1%}' if peak else 'unknown'}, "
        f"loss {way.loss / request.batch / request.targets:.3f}{way.costs}"
    )
    print(f"{name:24} {jax.device_count()} x {device.device_kind}: {rates(ours)}", flush=True)
    for other, way in zip(others, ways[1:], strict=True):
        print(f"  {way.median / ours.median:.2f} x as fast as {other}: {rates(way)}")
