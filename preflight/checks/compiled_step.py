"""The rows that the compiler gives: memory, time, money, what goes over the wires.

  trial = trials.attempt(recipe, tpu, steps=subject.steps_left)
  row = memory(trial, tpu)

Each takes the trial of the run as its gin files have it. Without figures there is nothing to say,
and the rows read "not checked".
"""

from preflight.aot.compiler import CompileError, Figures, OutOfMemory, RunRequest, compile_decoding
from preflight.aot.recipe import Recipe
from preflight.aot.tpu_slices import Slice
from preflight.results import NotChecked, Row, fails, many, ok, warning
from preflight.run_context import Subject
from preflight.search.trial import Trial

_NEARLY_FULL = 0.95
_WIRES = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}


def memory(trial: Trial, tpu: Slice, cheapest: Trial | None = None) -> Row:
    """Whether the step fits a device, and what takes how much.

    Args:
      trial: of the run as it is.
      tpu: the slice.
      cheapest: the settings, of those tried, that would make it fit at the lowest price.
    """
    if isinstance(trial.error, OutOfMemory):
        error = trial.error
        figure = (
            f"the step needs {error.used:.2f} GiB, {error.used - error.limit:.2f} more than the "
            f"{error.limit:.2f} that {_place(tpu)} has, {error.arguments:.2f} of it for parameters "
            "and optimizer state"
        )
        numbers = {"used_gib": error.used, "limit_gib": error.limit}
        if cheapest is None:
            todo = "a larger slice: nothing that was tried makes it fit"
            return fails(figure, todo, numbers=numbers)
        return fails(figure, f"{cheapest.flags} ({cheapest.outcome})", numbers=numbers)
    figures = _figures(trial)
    parts = {
        "parameters": figures.parameter_gib,
        "optimizer": figures.optimizer_gib,
        "activations": figures.activation_gib,
    }
    parts["batch and program"] = figures.used_gib - sum(parts.values())
    figure = f"{figures.used_gib:.2f} GiB of {tpu.chip.hbm:.2f} on {_place(tpu)}: "
    figure += ", ".join(f"{name} {_size(gib)}" for name, gib in parts.items())
    numbers = {f"{name.replace(' ', '_')}_gib": gib for name, gib in parts.items()}
    numbers |= {"used_gib": figures.used_gib, "limit_gib": tpu.chip.hbm}
    if figures.used_gib > _NEARLY_FULL * tpu.chip.hbm:
        return warning(f"{figure}; nearly full", numbers=numbers)
    return ok(figure, numbers=numbers)


def speed(trial: Trial, tpu: Slice) -> Row:
    """Steps a second and what bounds them."""
    figures, cost = _figures(trial), trial.price
    bound = "arithmetic" if cost.arithmetic_seconds >= cost.memory_seconds else "memory"
    counted, least = 1e3 * cost.compiler_seconds, 1e3 * cost.roofline_seconds
    figure = (
        f"{cost.steps_per_second:.3g} steps/s, MFU {cost.mfu:.0%}: {figures.flops / 1e12:.4g} "
        f"TFLOP a step, {figures.cycles / 1e6:,.1f} M cycles at {tpu.chip.clock / 1e9:.2f} GHz "
        f"{'and kernels at their best ' if figures.kernels else ''}are {counted:,.1f} ms; at least "
        f"{least:,.1f} ms ({bound})"
    )
    numbers = {
        "steps_per_second": cost.steps_per_second,
        "mfu": cost.mfu,
        "flops": figures.flops,
        "cycles": figures.cycles,
        "compiler_seconds": cost.compiler_seconds,
        "roofline_seconds": cost.roofline_seconds,
    }
    return ok(figure, numbers=numbers)


def duration(trial: Trial, tpu: Slice, s: Subject) -> Row:
    """Hours and chip-hours to the end."""
    cost = trial.price or _figures(trial)
    figure = (
        f"{cost.hours:,.1f} hours for {s.steps_left:,} steps, {cost.chip_hours:,.0f} chip-hours on "
        f"{tpu.chips} chips, evaluations and saves not counted"
    )
    return ok(figure, numbers={"hours": cost.hours, "chip_hours": cost.chip_hours})


def feed(trial: Trial, tpu: Slice) -> Row:
    """Tokens a second that the hosts have to prepare."""
    cost = trial.price or _figures(trial)
    each = cost.tokens_per_second / tpu.hosts
    figure = (
        f"{cost.tokens_per_second:,.0f} tokens/s, {each:,.0f} for each of {many(tpu.hosts, 'host')}"
    )
    return ok(figure, numbers={"tokens_per_second": cost.tokens_per_second, "per_host": each})


def collectives(trial: Trial) -> Row:
    """What goes between devices in a step, by kind."""
    found = {k: v for k, v in _figures(trial).collectives.items() if k in _WIRES}
    figure = ", ".join(f"{kind} {size / 1e6:,.1f} MB" for kind, size in sorted(found.items()))
    return ok(f"{figure or 'none'} a step and device", numbers=found)


def compilation(trial: Trial, cache: str | None) -> Row:
    """How long the compiler took, and what may spare the slice that."""
    figures: Figures = _figures(trial)
    seconds = (figures.trace_seconds, figures.compile_seconds)
    figure = f"{seconds[0]:.0f} s to trace and {seconds[1]:.0f} s to compile"
    numbers = {"compile_seconds": figures.compile_seconds, "cache": list(figures.cached)}
    if not figures.cached:
        return ok(figure, numbers=numbers)
    todo = f"JAX_COMPILATION_CACHE_DIR to a copy of {cache} on the slice"
    return ok(
        f"{figure}; {many(len(figures.cached), 'program')} kept", to_set=todo, numbers=numbers
    )


def decoding(asked: Recipe, tpu: Slice, s: Subject) -> Row:
    """Whether there is room to decode at an evaluation, beside the state of training."""
    cfg = s.run.infer_eval_dataset_cfg
    if cfg is None:
        return ok("nothing is decoded")
    s.require_vocabulary()
    batch = f"a batch of {cfg.batch_size} at an evaluation"
    less = "infer_eval/utils.DatasetConfig.batch_size to less"
    try:
        found = compile_decoding(RunRequest(tpu.name, asked))
    except OutOfMemory as error:
        need = f"{error.used:.2f} GiB beside the {_size(error.arguments)} of training"
        has = f"{_place(tpu)} has {error.limit:.2f}"
        return fails(f"to decode {batch} needs {need}, and {has}", less)
    except CompileError as error:
        raise NotChecked(str(error)) from error
    used, held, most = found["used_gib"], found["held_gib"], tpu.chip.hbm
    figure = f"{batch}: {used:.2f} GiB of {most:.2f} on {_place(tpu)}, {_size(held)} of it held by "
    figure += f"training; {found['compile_seconds']:.0f} s to compile"
    if used > most:
        return fails(figure, less, numbers=found)
    return ok(figure, numbers=found)


def _figures(trial: Trial) -> Figures:
    if isinstance(trial.error, OutOfMemory):
        raise NotChecked("the step does not fit")
    if trial.error is not None:
        raise trial.error if isinstance(trial.error, ValueError) else NotChecked(str(trial.error))
    return trial.figures


def _size(gib: float) -> str:
    return f"{gib:.2f}" if gib >= 0.01 else f"{1024 * gib:.1f} MiB"


def _place(tpu: Slice) -> str:
    return "a core" if tpu.chip.devices == 2 else "a chip"
