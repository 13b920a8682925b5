"""What a train step of an encoder costs by the TPU compiler, beside the same written plainly.

For one of NVIDIA's GPUs the compiler counts memory alone.

  .venv/bin/python benchmarks/encoder_step.py                      # both models of README
  .venv/bin/python benchmarks/encoder_step.py --model modernbert --batch 128 --top 20
  .venv/bin/python benchmarks/encoder_step.py --model bert --set remat_policy=none --without_plain
  .venv/bin/python benchmarks/encoder_step.py --compile_for h100 --batch 32
  python benchmarks/encoder_step.py --model bert --steps 8 --beside attention=xla   # times it here

Batches are synthetic and packed, optimizer and loss those of the recipes; see
`benchmarks/baselines/plain_encoder.py` for the plain model, whose logits are of all places.
"""

import argparse
import dataclasses
import functools
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

from benchmarks.synthetic_encoder import (  # noqa: E402
    MODELS,
    EncoderRequest,
    synthetic_batch,
    train_step,
)
from benchmarks.synthetic_step import add_beside, settings  # noqa: E402
from preflight.aot import compiler, gpus  # noqa: E402
from preflight.aot.cost_model import Figures  # noqa: E402


def describe(figures: Figures) -> str:
    """Return cycles, memory and compile time."""
    return (
        f"{figures.cycles / 1e9:.4f} G cycles, {figures.temp_gib:.2f} GiB temp, "
        f"{figures.used_gib:.2f} used, {figures.compile_seconds:.0f} s to compile"
    )


def time_here(request: EncoderRequest, steps: int, beside: list[dict[str, Any]]) -> None:
    """Print the median time of a step on this machine, beside those with other fields."""
    import jax

    from benchmarks import timing

    changes, ways = [{}, *beside], []
    batch = synthetic_batch(request.batch, request.length)
    for fields in changes:
        changed = dataclasses.replace(request, network={**request.network, **fields})
        ways.append(timing.timed_step(*train_step(changed, jax.devices()), batch))
    timing.take_turns(ways, steps)
    for way, fields in zip(ways, changes, strict=True):
        label = f"{request.model}, {request.batch} x {request.length} {fields or ''}"
        print(
            f"{label}: {1e3 * way.median:.1f} ms a step, "
            f"{way.median / ways[0].median:.2f} of the first, loss {way.loss:.1f}{way.costs}",
            flush=True,
        )


def main() -> None:
    """Compile, and print a line for each model and way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--compile_for", metavar="SLICE", default="v4-8", help="or GPU")
    add("--model", choices=MODELS, help="default: each")
    add("--batch", type=int, help="rows on the slice; default 128 of BERT, 32 of ModernBERT")
    add("--microbatches", type=int, default=1, help="of the first program")
    add("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="of the configuration")
    add("--without_plain", action="store_true")
    add("--top", type=int, default=0, help="print the costliest instructions")
    add("--dump", help="file for the optimized program")
    add("--steps", type=int, default=0, help="to time on this machine; on a GPU turns of 4")
    add_beside(parser)
    args = parser.parse_args()
    try:
        gpus.check_target(args.compile_for, bool(args.top))
    except ValueError as error:
        parser.error(str(error))
    if args.beside and not args.steps:
        parser.error("--beside is timed alternately: set --steps, such as --steps 8")
    fields = settings(args.set)
    beside = [settings(changes) for changes in args.beside]
    for name in [args.model] if args.model else MODELS:
        length, batch = MODELS[name][2:4]
        request = EncoderRequest(
            args.compile_for, name, fields, args.batch or batch, length, args.microbatches
        )
        if args.steps:
            time_here(request, args.steps, beside)
            continue
        if args.compile_for in gpus.GPUS:
            label = f"{name}, {request.batch} x {length}:"
            make = functools.partial(train_step, request)
            gpus.report(label, request.slice, make, args.dump)
            continue
        ours = compiler.compile_step(dataclasses.replace(request, dump=args.dump))
        print(f"{name}, {request.batch} x {length}: {describe(ours)}", flush=True)
        for cycles, times, instruction, source in ours.costliest[: args.top]:
            print(f"  {cycles / 1e6:8.2f} M  {times:3}x  {instruction[:44]:44} {source[-100:]}")
        if not args.without_plain:
            single = dataclasses.replace(request, microbatches=1)
            plain = compiler.compile_step(single, module="benchmarks.baselines.plain_encoder")
            share = ours.cycles / plain.cycles
            print(f"  plainly: {describe(plain)}: ours takes {share:.3f} of it", flush=True)


if __name__ == "__main__":
    main()
