"""What a train step costs: counted by the TPU compiler for a slice, or timed where it runs.

For one of NVIDIA's GPUs the compiler counts memory alone.

  .venv/bin/python benchmarks/step.py --compile_for v4-8               # the three models of README
  .venv/bin/python benchmarks/step.py --compile_for v4-8 --recipe gin/ro_t5x_base.gin --partitions 1
  .venv/bin/python benchmarks/step.py --compile_for v4-8 --beside_plain
  .venv/bin/python benchmarks/step.py --compile_for h100 --recipe gin/ro_t5x_base.gin --batch 16
  .venv/bin/python benchmarks/step.py --recipe t5_1_1/small --batch 8  # times it on this machine
  .venv/bin/python benchmarks/step.py --recipe t5_1_1/tiny --batch 8 --beside_plain
  .venv/bin/python benchmarks/step.py --batch 8 --beside attention=xla --beside remat_policy=full
  python benchmarks/step.py --recipe t5_1_1/base --beside_torch                # on a GPU
  .venv/bin/python benchmarks/step.py --recipe … --set remat_policy=full --top 20

A recipe is a gin file or the name of one below t5x/examples/t5. Batches are synthetic and packed;
tensorflow is not imported. One step a process, one process at a time.
"""

import argparse
import ast
import contextlib
import dataclasses
import functools
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

if "--beside_torch" in sys.argv:
    with contextlib.suppress(ImportError):  # PyTorch's compiler needs it, the trainer hides it
        import triton  # noqa: F401

from benchmarks import gpu_targets, timing  # noqa: E402
from benchmarks.synthetic_step import SyntheticRequest, train_step  # noqa: E402
from common.gin_reader import Bindings  # noqa: E402
from preflight.aot import slices  # noqa: E402
from preflight.aot.compiler import CompileError, compile_step  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Upstream:
    """google-research/t5x at cc342d4, examples/t5, counted in the same way.

    jax 0.10.2, libtpu 0.0.42.1; standard_logical_axis_rules(), Adafactor, z-loss 1e-4, dropout 0,
    packed batch of 128, inputs 512, targets 114; compile time of two busy cores.
    """

    giga_cycles: float
    temp_gib: float
    compile_seconds: float


# Size, vocabulary, partitions and slice of the models that are held against upstream.
COMPARED = {
    ("t5_1_1/base", 64000, 1, "v4-8"): Upstream(0.2210, 13.5, 300),
    ("mt5/base", 250112, 2, "v4-8"): Upstream(0.3420, 16.9, 617),
    ("t5_1_1/large", 64000, 1, "v4-32"): Upstream(0.1805, 8.5, 510),
}
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
PARSER.add_argument("--compile_for", metavar="SLICE", help="or GPU; count instead of running")
PARSER.add_argument("--recipe", help="default: the compared models of that slice")
PARSER.add_argument("--batch", type=int, default=128)
PARSER.add_argument("--inputs", type=int, default=512)
PARSER.add_argument("--targets", type=int, default=114)
PARSER.add_argument("--partitions", type=int, default=1)
PARSER.add_argument("--microbatches", type=int, default=1)
PARSER.add_argument("--parameter_partitioning_dims", type=int, default=2, help="1: upstream's")
PARSER.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="of T5Config")
PARSER.add_argument("--steps", type=int, default=10, help="to time; on a GPU turns of 4")
PARSER.add_argument(
    "--beside",
    nargs="+",
    action="append",
    default=[],
    metavar="FIELD=VALUE",
    help="timed alternately: the same with these fields; may be given several times",
)
PARSER.add_argument("--beside_plain", action="store_true", help="and the step as upstream has it")
PARSER.add_argument("--beside_torch", action="store_true", help="and transformers' T5, compiled")
PARSER.add_argument("--top", type=int, default=0, help="print the costliest instructions")


def settings(pairs: list[str]) -> dict:
    """Return the fields that FIELD=VALUE set: what Python reads, else the text."""
    fields = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SystemExit(f"{pair!r} sets no value: write FIELD=VALUE, as in dtype=float32")
        try:
            fields[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            fields[name] = value
    return fields


def network_fields(recipe: str, changes: list[str]) -> dict:
    """Return the recipe's fields of T5Config, changed by FIELD=VALUE; dropout is 0."""
    path = Path(recipe)
    if not path.is_file():
        path = ROOT / "t5x" / "examples" / "t5" / f"{recipe}.gin"
    if not path.is_file():
        raise SystemExit(f"--recipe {recipe} is neither a gin file nor one of t5x/examples/t5.")
    fields = Bindings.follow(path, [ROOT]).of("T5Config")
    return fields | {"dropout_rate": 0.0} | settings(changes)


def request_of(args: argparse.Namespace, fields: dict) -> SyntheticRequest:
    """Return what to compile or to time."""
    return SyntheticRequest(
        slice=args.compile_for or "",
        network=fields,
        batch=args.batch,
        inputs=args.inputs,
        targets=args.targets,
        partitions=args.partitions,
        microbatches=args.microbatches,
        rules={"parameter_partitioning_dims": args.parameter_partitioning_dims},
    )


def report(name: str, request: SyntheticRequest, upstream: Upstream | None, args) -> None:
    """Compile, and print one line, beside upstream's where there is one."""
    tpu = slices.find(request.slice)
    try:
        figures = compile_step(request)
    except CompileError as error:
        print(f"{name:24} {request.slice:8} does not compile: {error}", flush=True)
        return
    seconds = figures.seconds(tpu.chip)
    values = (seconds * tpu.chip.clock / 1e9, figures.temp_gib, figures.compile_seconds)
    columns = [f"{values[0]:.4f}", f"{values[1]:.2f}", f"{values[2]:.0f}"]
    if upstream:
        theirs = dataclasses.astuple(upstream)
        columns = [f"{c} ({v / t:.2f})" for c, v, t in zip(columns, values, theirs, strict=True)]
    print(
        f"{name:24} {request.slice:8} {columns[0]:>15} G cycles  {columns[1]:>13} GiB temp  "
        f"{columns[2]:>11} s to compile  {figures.argument_gib:5.2f} GiB held  "
        f"MFU {figures.flops / seconds / tpu.peak_flops:.1%}",
        flush=True,
    )
    for cycles, times, instruction, source in figures.costliest[: args.top]:
        print(f"  {cycles / 1e6:8.2f} M  {times:3}x  {instruction[:44]:44} {source[-100:]}")
    if args.top:
        print("  " + json.dumps({k: f"{v / 1e6:.1f} MB" for k, v in figures.collectives.items()}))
    if args.beside_plain:
        rules = {"parameter_partitioning_dims": 1}
        plain = compile_step(
            dataclasses.replace(request, rules=rules),
            module="benchmarks.baselines.plain",
        )
        print(
            f"  the plain step: {plain.seconds(tpu.chip) * tpu.chip.clock / 1e9:.4f} G cycles, "
            f"{plain.temp_gib:.2f} GiB temp, {plain.compile_seconds:.0f} s to compile: ours takes "
            f"{figures.compile_seconds / plain.compile_seconds:.2f} of that",
            flush=True,
        )


def step_with(changes: dict, request: SyntheticRequest) -> timing.Timed:
    """Return our step with other fields of T5Config."""
    network = {**request.network, **changes}
    return timing.our_step(dataclasses.replace(request, network=network))


def check(args: argparse.Namespace) -> None:
    """End with a sentence if `--compile_for` is unknown or does not go with the other flags."""
    name, compared = args.compile_for, {tpu for *_, tpu in COMPARED}
    if not name:
        return
    if args.beside:
        PARSER.error("--beside is timed alternately: leave out --compile_for")
    if name in gpu_targets.GPUS:
        if args.top or args.beside_plain:
            PARSER.error(f"--compile_for {name}: a GPU's compiler counts memory alone; leave out "
                         "the flags that show cycles, such as --top")  # fmt: skip
        return
    try:
        slices.find(name)
    except ValueError:
        names = ", ".join(gpu_targets.GPUS)
        PARSER.error(f"--compile_for {name} is no slice of TPUs, such as v4-8, or one of {names}")
    if not args.recipe and name not in compared:
        PARSER.error(f"--compile_for {name} needs --recipe")


def report_gpu(recipe: str, request: SyntheticRequest) -> None:
    """Compile for a GPU, and print the memory."""
    started = time.monotonic()
    try:
        compiled = gpu_targets.compile_step(request.slice, functools.partial(train_step, request))
    except ValueError as error:  # a package is missing
        raise SystemExit(str(error)) from error
    seconds, memory = time.monotonic() - started, compiled.memory_analysis()
    temporary, held = memory.temp_size_in_bytes / 2**30, memory.argument_size_in_bytes / 2**30
    print(f"{recipe:24} {request.slice:8} {temporary:.2f} GiB temp  {held:.2f} GiB held  "
          f"{seconds:.0f} s to compile")  # fmt: skip


def main():
    args = PARSER.parse_args()
    check(args)
    if args.compile_for in gpu_targets.GPUS:
        name = args.recipe or "t5_1_1/base"
        report_gpu(name, request_of(args, network_fields(name, args.set)))
        return
    if not args.compile_for:
        request = request_of(args, network_fields(args.recipe or "t5_1_1/tiny", args.set))
        others = {" ".join(changes): functools.partial(step_with, settings(changes))
                  for changes in args.beside}  # fmt: skip
        if args.beside_plain:
            others["the plain step"] = timing.plain_step
        if args.beside_torch:
            from benchmarks.baselines.torch_step import torch_step

            others["transformers with torch.compile and SDPA"] = torch_step
        timing.report(args.recipe or "t5_1_1/tiny", request, args.steps, others)
        return
    if args.recipe:
        report(args.recipe, request_of(args, network_fields(args.recipe, args.set)), None, args)
        return
    for (recipe, vocabulary, partitions, tpu), upstream in COMPARED.items():
        if tpu == args.compile_for:
            fields = network_fields(recipe, [f"vocab_size={vocabulary}", *args.set])
            args.partitions = partitions
            report(f"{recipe} {vocabulary}", request_of(args, fields), upstream, args)


if __name__ == "__main__":
    main()
