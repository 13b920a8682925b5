"""Time the train step of each network on this GPU, by each kind of attention and by PyTorch.

  python benchmarks/gpus.py                              # all, into runs/gpus.md and runs/gpus.json
  python benchmarks/gpus.py --models t5 bert --ways flash cudnn torch_cudnn --rows 0.25

The ways are our kernels (`flash`), cuDNN's, XLA's, tokamax's (`pip install tokamax`), and
transformers under `torch.compile` with the kernels that SDPA chooses (`torch`) or with cuDNN's
first (`torch_cudnn`). Batches are synthetic, in bfloat16 and without dropout; ours are packed. All
ways of a network take turns in one process; a way that does not compile or fit is a line with the
reason. `--rows` is the share of each batch for GPUs that do not hold it.
"""

import argparse
import contextlib
import dataclasses
import datetime
import functools
import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

with contextlib.suppress(ImportError):  # PyTorch's compiler needs it, the trainer hides it
    import triton  # noqa: F401

from benchmarks.baselines.tokamax_attention import by_tokamax  # noqa: E402
from benchmarks.baselines.torch_step import timed_torch  # noqa: E402
from benchmarks.timing import Timed, synthetic_batch, take_turns, timed_step  # noqa: E402
from common.arguments import version  # noqa: E402
from common.gin_reader import Bindings  # noqa: E402
from convert.sizes import read_gin  # noqa: E402
from preflight.aot import recipe_step  # noqa: E402
from preflight.aot.recipe import Recipe, load  # noqa: E402
from t5x.monitoring import flops  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Model:
    """A network to time: its recipe, the name of its configuration, and the rows of a batch."""

    recipe: str
    config: str
    rows: int


MODELS = {
    "t5": Model("ro_t5x_base", "T5Config", 128),
    "t5gemma2": Model("ro_t5gemma2_base", "T5Gemma2Config", 128),
    "bert": Model("ro_roberta_base", "BertConfig", 128),
    "modernbert": Model("ro_modernbert_base", "ModernBertConfig", 32),
}


@dataclasses.dataclass
class Row:
    """What was measured of one way; `refused` says why it was not."""

    model: str
    way: str
    seconds: float | None = None
    spread: float | None = None  # between the quartiles
    tokens_per_second: float | None = None
    mfu: float | None = None
    temp_gib: float | None = None
    compile_seconds: float | None = None
    refused: str = ""


def build(model: Model, attention: str = "xla", remat: str = "auto") -> tuple[Any, ...]:
    """Return the run of a recipe on one device, its trainer, and a batch after its shapes."""
    import jax

    network = f"network.{model.config}"
    bindings = {
        "BATCH_SIZE": model.rows,
        "DROPOUT_RATE": 0.0,
        "partitioning.PjitPartitioner.num_partitions": 1,
        "trainer.Trainer.num_microbatches": 1,
        f"{network}.dtype": "bfloat16",
        f"{network}.attention": attention,
        f"{network}.remat_policy": remat,
    }
    recipe = Recipe((f"gin/{model.recipe}.gin",), search_paths=(str(ROOT),))
    run = load(recipe.with_bindings(*(f"{name} = {value!r}" for name, value in bindings.items())))
    trainer, shapes = recipe_step.train_step(run, jax.devices()[:1])
    share = getattr(run.model, "predicted_share", 1.0)
    batch = synthetic_batch(shapes, run.model.module.config.vocab_size, share)
    return run, trainer, shapes, batch


def ours(attention: str, model: Model, remat: str = "auto") -> Timed:
    """Return the trainer's step with a kind of attention."""
    _, trainer, shapes, batch = build(model, attention, remat)
    return timed_step(trainer, shapes, batch)


def tokamax(model: Model) -> Timed:
    """Return the trainer's step with tokamax's attention, whose outputs are kept as `flash`'s."""
    with by_tokamax():
        return ours("cudnn", model, remat="none")


def torch(by_cudnn: bool, model: Model) -> Timed:
    """Return the step of transformers' network of the same sizes."""
    sizes = read_gin(Bindings.follow(ROOT / f"gin/{model.recipe}.gin", [ROOT]))
    return timed_torch(sizes, build(model)[-1], by_cudnn=by_cudnn)


WAYS: dict[str, Callable[[Model], Timed]] = {
    **{kind: functools.partial(ours, kind) for kind in ("flash", "cudnn", "xla")},
    "tokamax": tokamax,
    "torch": functools.partial(torch, False),
    "torch_cudnn": functools.partial(torch, True),
}


def measure(name: str, model: Model, ways: Sequence[str], turns: int) -> list[Row]:
    """Return a row for each way, which take turns."""
    import jax

    run, _, shapes, _ = build(model)
    count, tokens = flops.batch_flops(run.model, shapes), flops.batch_tokens(shapes)
    peak = flops.peak_flops(jax.devices()[0].device_kind)
    rows, steps = [Row(name, way) for way in ways], {}
    for row in rows:
        print(f"compiling {row.model} {row.way}", flush=True)
        try:
            timed = WAYS[row.way](model)
            timed.turn(1)
        except Exception as error:  # of a kernel, of memory, of a missing package
            row.refused = " ".join(str(error).split())[:300] or type(error).__name__
            continue
        timed.seconds.clear()
        steps[row.way] = timed
    take_turns(list(steps.values()), turns)
    for row in rows:
        if (timed := steps.get(row.way)) is None:
            continue
        row.seconds, row.spread = timed.median, timed.spread
        row.tokens_per_second = tokens / row.seconds
        row.mfu = count / row.seconds / peak if count and peak else None
        row.temp_gib, row.compile_seconds = timed.temp_gib, timed.compile_seconds
    return rows


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a Markdown table; the last column is of the model's first way."""
    yield "| model | way | ms a step | ± | tokens/s | MFU | GiB temporary | s to compile | speed |"
    yield "|---|---|---|---|---|---|---|---|---|"
    first: dict[str, float] = {}
    show = lambda value, scale, form: "–" if value is None else format(value * scale, form)
    for row in rows:
        if row.seconds is None:
            yield f"| {row.model} | {row.way} | {row.refused} |" + " |" * 6
            continue
        cells = [
            show(row.seconds, 1e3, ".1f"), show(row.spread, 1e3, ".1f"),
            show(row.tokens_per_second, 1, ",.0f"), show(row.mfu, 1, ".1%"),
            show(row.temp_gib, 1, ".1f"), show(row.compile_seconds, 1, ".0f"),
            f"{first.setdefault(row.model, row.seconds) / row.seconds:.2f}",
        ]  # fmt: skip
        yield f"| {row.model} | {row.way} | {' | '.join(cells)} |"


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser("benchmarks/gpus.py", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    add("--rows", type=float, default=1.0, help="share of each batch")
    add("--turns", type=int, default=6, help="to time, of four steps each on a GPU")
    add("--out", type=Path, default=ROOT / "runs" / "gpus", help="without the ending")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Time all ways of all models, and write the table after each model."""
    args = parse(argv)
    import jax

    about = {"version": version(), "jax": jax.__version__, "date": str(datetime.date.today())}
    about |= {"device": jax.devices()[0].device_kind, "share of rows": args.rows}
    for package in ("torch", "transformers", "tokamax"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            about[package] = metadata.version(package)
    head, rows = ", ".join(f"{name} {value}" for name, value in about.items()), []
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for name in args.models:
        model = MODELS[name]
        model = dataclasses.replace(model, rows=max(round(model.rows * args.rows), 1))
        rows += measure(name, model, args.ways, args.turns)
        lines = "\n".join([head, "", *table(rows), ""])
        args.out.with_suffix(".md").write_text(lines)
        results = {**about, "rows": [dataclasses.asdict(row) for row in rows]}
        args.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
        jax.clear_caches()
        gc.collect()  # frees the arrays of this model
    print(lines)


if __name__ == "__main__":
    main()
