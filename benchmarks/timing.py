"""Times the train step where it runs: steps/s, tokens/s, memory."""

import argparse
import statistics
import time

from preflight.synthetic import Request, batch_shapes, make_model
from t5x.flops import peak_flops, step_flops


def synthetic_batch(request: Request) -> dict:
    """Random ids int32, two segments a row, nothing padded."""
    import numpy as np

    rng, batch = np.random.default_rng(0), {}
    for name, spec in batch_shapes(request).items():
        rows, length = spec.shape
        if name.endswith("tokens"):
            batch[name] = rng.integers(3, request.network["vocab_size"], spec.shape, np.int32)
        elif name.endswith("weights"):
            batch[name] = np.ones(spec.shape, np.int32)
        else:
            half = np.arange(length, dtype=np.int32)
            row = 1 + half // -(-length // 2) if name.endswith("segment_ids") else half
            batch[name] = np.tile(row.astype(np.int32), (rows, 1))
    return batch


class Timed:
    """A compiled step with its state, to run again and again."""

    def __init__(self, request: Request):
        import jax

        from t5x import partitioning, schedules
        from t5x.train_state import initial_state, state_specs
        from t5x.trainer import Trainer

        model = make_model(request)
        partitioner = partitioning.PjitPartitioner(
            request.partitions,
            logical_axis_rules=partitioning.standard_logical_axis_rules(**request.rules),
        )
        partitioner.check_batch(request.batch, request.microbatches, "--batch")
        batch = synthetic_batch(request)
        specs = state_specs(model, partitioner, {k: v.shape for k, v in batch.items()})
        self.state = initial_state(model, specs, jax.random.key(0))
        rate = schedules.create_learning_rate_scheduler(
            factors="constant * rsqrt_decay", base_learning_rate=1.0, warmup_steps=10000
        )
        trainer = Trainer(
            model,
            self.state,
            partitioner,
            specs,
            jax.random.key(0),
            learning_rate_fn=rate,
            num_microbatches=request.microbatches,
        )
        started = time.perf_counter()
        self.compiled = trainer.lower(batch_shapes(request)).compile()
        self.compile_seconds = time.perf_counter() - started
        rng = jax.device_put(jax.random.key(0), partitioner.replicated)
        self.rest = trainer.put(batch), rng
        self.seconds: list[float] = []
        self.loss = 0.0

    def step(self) -> None:
        """Runs one step and notes how long it took."""
        started = time.perf_counter()
        self.state, sums = self.compiled(self.state, *self.rest)
        self.loss = float(sums["loss"])
        self.seconds.append(time.perf_counter() - started)

    @property
    def median(self) -> float:
        """Of all steps but the two first: on a shared machine a mean measures the neighbours."""
        return statistics.median(self.seconds[2:])


def report(name: str, request: Request, steps: int, beside_plain: bool = False) -> None:
    """Compiles, runs `steps` steps after two to warm up, prints one line.

    With `beside_plain` the step as one writes it first is run by turns, and a ratio printed.
    """
    import jax

    ways = [Timed(request)]
    if beside_plain:
        from benchmarks.plain import plainly

        with plainly():
            ways.append(Timed(request))
    for turn in range(steps + 2):
        for way in ways[:: 1 - 2 * (turn % 2)]:
            way.step()
    ours = ways[0]
    device, memory = jax.devices()[0], ours.compiled.memory_analysis()
    flops = step_flops(argparse.Namespace(**request.network), request.batch, request.inputs,
                       request.targets)  # fmt: skip
    peak = peak_flops(device.device_kind)
    mfu = f"MFU {flops / ours.median / peak / jax.device_count():.1%}" if peak else "MFU unknown"
    tokens = request.batch * (request.inputs + request.targets)
    print(
        f"{name:24} {jax.device_count()} x {device.device_kind}: {1 / ours.median:.3f} steps/s, "
        f"{tokens / ours.median:,.0f} tokens/s, {mfu}, {memory.temp_size_in_bytes / 2**30:.2f} GiB "
        f"temp, {ours.compile_seconds:.0f} s to compile, loss {ours.loss / tokens:.3f}",
        flush=True,
    )
    if beside_plain:
        plain = ways[1]
        print(
            f"  {plain.median / ours.median:.2f} x as fast as the plain step: "
            f"{1 / plain.median:.3f} steps/s, loss {plain.loss / tokens:.3f}"
        )
