"""The largest T5s on large slices, compiled without one: memory, cycles, and traffic on the links.

    .venv/bin/python benchmarks/scale.py run     # an hour or two on two cores; resumes
    .venv/bin/python benchmarks/scale.py table

Each model is compiled for each slice with several numbers of partitions, 8 packed sequences of
512/114 a chip for XL and 4 for XXL. A step takes at least as long as the slowest of arithmetic,
memory and links (`preflight.aot.cost_model`); the time that decides is the greater of that and of
the compiler's cycles. Each result is a line of --results, and is not repeated.
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import abilities  # noqa: E402
from benchmarks.step import network_fields  # noqa: E402
from benchmarks.synthetic_step import SyntheticRequest  # noqa: E402
from preflight.aot import tpu_slices  # noqa: E402
from preflight.aot.compiler import CompileError, compile_step  # noqa: E402
from preflight.aot.cost_model import Price  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "scale.jsonl"
SLICES = ("v4-256", "v4-512", "v5p-512")
A_CHIP = {"t5_1_1/xl": 8, "t5_1_1/xxl": 4}  # sequences
PARTITIONS = {"t5_1_1/xl": (1, 2, 4), "t5_1_1/xxl": (1, 2, 4, 8)}


@dataclasses.dataclass(frozen=True)
class Layout:
    """A model with a number of partitions on a slice."""

    recipe: str
    slice: str
    partitions: int


def layouts() -> Iterator[Layout]:
    """Yield what is to be compiled."""
    for partitions in sorted({n for choice in PARTITIONS.values() for n in choice}):
        for name in SLICES:
            for recipe, choice in PARTITIONS.items():
                if partitions in choice:
                    yield Layout(recipe, name, partitions)


def measure(layout: Layout) -> dict:
    """Return the memory in GiB and the times in ms of a step, or why it does not compile."""
    tpu = tpu_slices.find(layout.slice)
    batch = A_CHIP[layout.recipe] * tpu.chips
    network = network_fields(layout.recipe, ["dtype=bfloat16"])
    request = SyntheticRequest(layout.slice, network, batch, partitions=layout.partitions)
    found = dataclasses.asdict(layout) | {"batch": batch}
    try:
        figures = compile_step(request, limit_s=3 * 3600)  # a busy machine is no result
    except CompileError as error:
        return {**found, "refused": str(error)}
    price = Price(figures, tpu, 1)
    times = ("compiler", "arithmetic", "memory", "communication")
    return {
        **found,
        "used_gib": round(figures.used_gib, 2),
        **{name: round(1e3 * getattr(price, f"{name}_seconds"), 1) for name in times},
        "bound": price.bound,
        "mfu": round(price.mfu, 3),
        "compile_seconds": round(figures.compile_seconds),
    }


def decides(result: dict) -> float:
    """Return the time that decides, ms; infinity if it does not compile."""
    if "refused" in result:
        return float("inf")
    return max(result[name] for name in ("compiler", "arithmetic", "memory", "communication"))


def table(results: list[dict]) -> Iterator[str]:
    """Yield the lines of the table, the best partitions of each model and slice in bold."""
    yield "| model | slice | batch | partitions | GiB | compiler | arithmetic | links | MFU |"
    yield "|---" * 9 + "|"
    key = lambda result: (result["recipe"], SLICES.index(result["slice"]), result["partitions"])
    for result in sorted(results, key=key):
        place = key(result)[:2]
        same = [other for other in results if key(other)[:2] == place]
        mark = "**" * (result is min(same, key=decides) and "refused" not in result)
        name = result["recipe"].removeprefix("t5_1_1/").upper()
        partitions = f"{mark}{result['partitions']}{mark}"
        cells = [name, result["slice"], f"{result['batch']:,}", partitions]
        if "refused" in result:
            yield f"| {' | '.join(cells)} | does not fit | | | | |"
            continue
        cells.append(f"{result['used_gib']:.1f} of {tpu_slices.find(result['slice']).chip.hbm:.1f}")
        times = ("compiler", "arithmetic", "communication")
        cells += [f"{result[time]:,.0f} ms" for time in times] + [f"{result['mfu']:.0%}"]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Compile what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    values = parser.parse_args()
    results = abilities.read_results(values.results)
    if values.action == "table":
        print("\n".join(table(results)))
        return
    done = {Layout(r["recipe"], r["slice"], r["partitions"]) for r in results}
    values.results.parent.mkdir(parents=True, exist_ok=True)
    for layout in layouts():
        if layout not in done:
            result = measure(layout)
            abilities.append(values.results, result)
            print(result, flush=True)


if __name__ == "__main__":
    main()
