"""Time train steps on the devices of this machine, next to the count of the compiler.

    python3 launch/tpu.py run NAME ZONE launch/step_benchmark.sh      # on all workers of a slice
    bash launch/step_benchmark.sh --steps 20                       # on this machine

The step as one writes it first (`plain`) and ours are timed at three batch sizes. A way that does
not compile or does not fit is a line with the reason. Batches are synthetic and packed. Worker 0
prints the table and writes it as JSON.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import timing  # noqa: E402
from benchmarks.step import network_fields  # noqa: E402
from benchmarks.synthetic_step import SyntheticRequest  # noqa: E402
from common.arguments import version  # noqa: E402
from preflight.aot.hlo import Program  # noqa: E402
from preflight.aot.slices import CHIPS  # noqa: E402
from t5x.monitoring.flops import peak_flops, step_flops  # noqa: E402
from t5x.multihost.xla_options import generation  # noqa: E402

WAYS: dict[str, Callable[..., timing.Timed]] = {
    "plain": timing.plain_step,
    "ours": timing.our_step,
}


@dataclasses.dataclass
class Row:
    """What was measured of one way; `refused` says why it was not.

    `counted` and `careful` are seconds of the compiler's count, in `careful` with the branches that
    run where a softmax or a normalizer leaves the safe range of float32.
    """

    way: str
    batch: int
    seconds: float | None = None
    spread: float | None = None  # between the quartiles
    counted: float | None = None
    careful: float | None = None
    mfu: float | None = None
    temp_gib: float | None = None
    compile_seconds: float | None = None
    loss: float | None = None
    refused: str = ""


def measure(row: Row, network: Mapping[str, Any], args: argparse.Namespace, kind: str | None):
    """Fill in the figures of `row`."""
    import jax

    rules = {"parameter_partitioning_dims": 1} if row.way == "plain" else {}
    request = SyntheticRequest(
        "", network, row.batch, args.inputs, args.targets, args.partitions,
        rules=rules,
    )  # fmt: skip
    try:
        timed = WAYS[row.way](request)
        for _ in range(args.steps + 2):
            timed.turn(1)
    except Exception as error:  # an error of XLA or of a kernel: the next way may work
        row.refused = " ".join(str(error).split())[:300] or type(error).__name__
        return
    row.seconds, row.spread = timed.median, timed.spread
    row.temp_gib, row.compile_seconds = timed.temp_gib, timed.compile_seconds
    row.loss = timed.loss / row.batch / args.targets
    peak = (peak_flops(jax.devices()[0].device_kind) or 0.0) * jax.device_count()
    flops = step_flops(argparse.Namespace(**network), row.batch, args.inputs, args.targets)
    row.mfu = flops / row.seconds / peak if peak else None
    if kind:
        clock = CHIPS[kind].clock
        row.counted = Program(timed.program).cycles() / clock
        row.careful = Program(timed.program, fallbacks=True).cycles() / clock


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of the table."""
    form = "{:>6} {:6} {:>9} {:>8} {:>9} {:>9} {:>7} {:>6} {:>9} {:>8}".format
    yield form("batch", "step", "ms", "spread", "counted", "careful", "ratio", "MFU", "GiB temp",
               "compile")  # fmt: skip
    best = {row.batch: row.seconds for row in rows if row.way == "plain"}
    show = lambda value, scale, digits, unit="": (
        "-" if value is None else f"{value * scale:.{digits}f}{unit}"
    )
    for row in rows:
        if row.refused:
            yield f"{row.batch:6} {row.way:6} {row.refused}"
            continue
        plain = best.get(row.batch)
        ratio = plain / row.seconds if plain and row.seconds else None
        milliseconds = (
            show(v, 1e3, 1) for v in (row.seconds, row.spread, row.counted, row.careful)
        )
        yield form(
            row.batch, row.way, *milliseconds, show(ratio, 1, 2),
            show(row.mfu, 100, 1, "%"), show(row.temp_gib, 1, 2),
            show(row.compile_seconds, 1, 0, " s"),
        )  # fmt: skip


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser("benchmarks/tpu_step.py", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--recipe", default="t5_1_1/base", help="a gin file, or one of t5x/examples/t5")
    add("--set", nargs="*", default=["vocab_size=64000", "dtype=bfloat16"], metavar="FIELD=VALUE")
    add("--rows", type=int, nargs="+", default=[8, 16, 32], help="sequences on each device")
    add("--inputs", type=int, default=512)
    add("--targets", type=int, default=114)
    add("--partitions", type=int, default=1)
    add("--steps", type=int, default=20, help="to time, after two")
    add("--out", type=Path, default=ROOT / "runs" / "tpu_benchmark.json")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Time all ways, print the table, and write it as JSON."""
    args = parse(argv)
    import jax

    from t5x.cli.main import is_tpu_machine

    if is_tpu_machine():
        jax.distributed.initialize()
    device, devices = jax.devices()[0], jax.device_count()
    kind, first = generation(device.device_kind), jax.process_index() == 0
    network = network_fields(args.recipe, args.set)
    rows = [Row(way, n * devices) for n in args.rows for way in WAYS]
    about = {
        "version": version(), "jax": jax.__version__, "device": device.device_kind,
        "devices": devices, "processes": jax.process_count(), "recipe": args.recipe,
        "network": network, "inputs": args.inputs, "targets": args.targets,
    }  # fmt: skip
    for number, row in enumerate(rows, 1):
        if first:
            print(f"step {number}/{len(rows)}  {row.way}, batch {row.batch}", flush=True)
        measure(row, network, args, kind)
        jax.clear_caches()
    if first:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        results = {**about, "rows": [dataclasses.asdict(row) for row in rows]}
        args.out.write_text(json.dumps(results, indent=1) + os.linesep)
        print(f"{args.recipe}, {devices} x {device.device_kind}, {jax.process_count()} processes")
        print("\n".join(table(rows)))
        print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
