"""What each optimizer adds to a train step, counted by the TPU compiler for a slice.

  .venv/bin/python benchmarks/optimizer_step.py                        # T5 1.1 base on a v4-8
  .venv/bin/python benchmarks/optimizer_step.py --recipe t5_1_1/large --slice v4-32
  .venv/bin/python benchmarks/optimizer_step.py --optimizers adafactor muon --partitions 2

Prints a line for each optimizer: cycles of the step and their ratio to the first line's, what the
optimizer's state and the step's temporary arrays take on a device, and the bytes that a device
receives from others in a step. Batches are those of `benchmarks/step.py`. Nothing is run.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import step  # noqa: E402
from benchmarks.synthetic_step import SyntheticRequest  # noqa: E402
from preflight.aot import tpu_slices  # noqa: E402
from preflight.aot.compiler import compile_step  # noqa: E402

OPTIMIZERS = ("adafactor", "adamw_scaled", "muon")
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
PARSER.add_argument("--recipe", default="t5_1_1/base", help="of t5x/examples/t5, or a gin file")
PARSER.add_argument("--slice", default="v4-8")
PARSER.add_argument("--batch", type=int, default=128)
PARSER.add_argument("--partitions", type=int, default=1)
PARSER.add_argument("--optimizers", nargs="+", default=OPTIMIZERS)
PARSER.add_argument("--top", type=int, default=0, help="print the costliest instructions")
PARSER.add_argument("--dump", help="folder for the optimized programs")


def main():
    args = PARSER.parse_args()
    chip, first = tpu_slices.find(args.slice).chip, None
    fields = step.network_fields(args.recipe, ["dtype=bfloat16"])
    for name in args.optimizers:
        request = SyntheticRequest(
            args.slice, fields, batch=args.batch, partitions=args.partitions, optimizer=name,
            dump=f"{args.dump}/{name}.txt" if args.dump else None,
        )  # fmt: skip
        figures = compile_step(request)
        cycles = figures.seconds(chip) * chip.clock
        first = first or cycles
        received = sum(figures.collectives.values()) / 1e9
        print(
            f"{name:14} {cycles / 1e9:7.4f} G cycles ({cycles / first:.3f})  "
            f"state {figures.optimizer_gib:5.2f} GiB  temporary {figures.temp_gib:5.2f} GiB  "
            f"collectives {received:5.2f} GB  {figures.compile_seconds:4.0f} s to compile",
            flush=True,
        )
        for cycles, times, instruction, source in figures.costliest[: args.top]:
            print(f"  {cycles / 1e6:8.2f} M  {times:3}x  {instruction[:44]:44} {source[-100:]}")


if __name__ == "__main__":
    main()
