"""Checks of the compiled step: memory, time, money, collectives, and the decoding program.

Each check takes the trial of the recipe's own settings. A trial without figures is "not checked".
"""

from pathlib import Path

from common.tables import CheckResult, NotChecked, counted, fails, ok, time_span, warning
from preflight.aot.compiler import CompileError, OutOfMemory, compile_decoding
from preflight.aot.cost import Figures, Price
from preflight.aot.recipe import Recipe
from preflight.aot.recipe_step import RecipeRequest
from preflight.aot.slices import Slice
from preflight.here import LocalDevices
from preflight.run_context import RunContext
from preflight.search import Trial
from t5x.cli import dry_run

_NEARLY_FULL = 0.95


def memory(trial: Trial, tpu: Slice, cheapest: Trial | None = None) -> CheckResult:
    """Check that the step fits a device; list its uses of memory, or the `cheapest` that fits."""
    if isinstance(trial.error, OutOfMemory):
        return _does_not_fit(trial.error, tpu, cheapest)
    if isinstance(trial.error, ValueError):
        raise trial.error
    if trial.figures is None:
        raise NotChecked(trial.reason)
    figures = trial.figures
    parts = {
        "parameters": figures.parameter_gib,
        "optimizer": figures.optimizer_gib,
        "activations": figures.activation_gib,
    }
    parts["batch and program"] = figures.used_gib - sum(parts.values())
    figure = f"{figures.used_gib:.2f} GiB of {tpu.chip.hbm:.2f} on {_device(tpu)}: "
    figure += ", ".join(f"{name} {_size(gib)}" for name, gib in parts.items())
    numbers = {f"{name.replace(' ', '_')}_gib": gib for name, gib in parts.items()}
    numbers |= {"used_gib": figures.used_gib, "limit_gib": tpu.chip.hbm}
    if figures.used_gib > _NEARLY_FULL * tpu.chip.hbm:
        to_set = "set BATCH_SIZE to less, or trainer.Trainer.num_microbatches to more, for room"
        return warning(f"{figure}; nearly full", to_set, numbers=numbers)
    return ok(figure, numbers=numbers)


def _does_not_fit(error: OutOfMemory, tpu: Slice, cheapest: Trial | None) -> CheckResult:
    figure = (
        f"the step needs {error.used:.2f} GiB, {error.used - error.limit:.2f} more than the "
        f"{error.limit:.2f} that {_device(tpu)} has, {error.arguments:.2f} of it for parameters "
        "and optimizer state"
    )
    to_set = "take a larger slice or a smaller model: no settings that were tried make it fit"
    if cheapest is not None:
        to_set = f"set {cheapest.flags} ({cheapest.outcome})"
    return fails(figure, to_set, numbers={"used_gib": error.used, "limit_gib": error.limit})


def speed(trial: Trial, context: RunContext) -> CheckResult:
    """Return steps per second, and what bounds them or how many rows were timed."""
    figures, price = _measured(trial)
    if figures.timed_seconds:
        figure = f"{figures.timed_seconds:.3g} s a step, {price.steps_per_second:.3g} steps/s"
        figure += f", MFU {price.mfu:.0%}" if price.mfu else ""
        if figures.timed_rows < figures.rows:
            figure += f", timed with {figures.timed_rows} of {figures.rows} rows"
        numbers = {"seconds": figures.timed_seconds, "rows": figures.timed_rows}
        return ok(figure, numbers={**numbers, "mfu": price.mfu or None})
    figure = (
        f"{price.steps_per_second:.3g} steps/s, MFU {price.mfu:.0%}: {figures.flops / 1e12:.4g} "
        f"TFLOP a step, {figures.cycles / 1e6:,.1f} M cycles at "
        f"{context.tpu.chip.clock / 1e9:.2f} GHz are "
        f"{1e3 * price.compiler_seconds:,.1f} ms; at least "
        f"{1e3 * price.roofline_seconds:,.1f} ms ({price.bound})"
    )
    names = ("steps_per_second", "mfu", "compiler_seconds", "roofline_seconds")
    numbers = {name: getattr(price, name) for name in names}
    return ok(figure, numbers=numbers | {"flops": figures.flops, "cycles": figures.cycles})


def duration(trial: Trial, context: RunContext) -> CheckResult:
    """Return the time and the chips' time to the last step."""
    _, price = _measured(trial)
    seconds, is_here = 3600 * price.hours, isinstance(context.tpu, LocalDevices)
    figure = f"{time_span(seconds)} for {counted(context.steps_left, 'step')}, "
    if not is_here:
        chips = counted(context.tpu.chips, "chip")
        figure += f"{time_span(3600 * price.chip_hours, 'chip')} on {chips}, "
    figure += "without evaluations and saves"
    numbers = {"hours": price.hours, "chip_hours": price.chip_hours}
    if is_here and seconds > dry_run.LONGEST_SECONDS:
        to_set = "set TRAIN_STEPS lower, or take a smaller model or a slice: preflight with v4-8"
        return warning(figure, to_set, numbers=numbers)
    return ok(figure, numbers=numbers)


def input_rate(trial: Trial, context: RunContext) -> CheckResult:
    """Return the tokens per second that the hosts have to prepare."""
    tokens, hosts = _measured(trial)[1].tokens_per_second, context.tpu.hosts
    figure = f"{tokens:,.0f} tokens/s, {tokens / hosts:,.0f} for each of {counted(hosts, 'host')}"
    return ok(figure, numbers={"tokens_per_second": tokens, "per_host": tokens / hosts})


def collectives(trial: Trial, _: RunContext) -> CheckResult:
    """Return the traffic between devices in a step, by kind."""
    figures, price = _measured(trial)
    traffic = figures.collectives
    figure = ", ".join(f"{kind} {size / 1e6:,.1f} MB" for kind, size in sorted(traffic.items()))
    figure = f"{figure or 'none'} a step and device"
    if figures.received:
        figure += f"; at least {1e3 * price.communication_seconds:,.1f} ms on the links"
    numbers = {**traffic, "received": figures.received}
    return ok(figure, numbers=numbers | {"communication_seconds": price.communication_seconds})


def compilation(trial: Trial, _: RunContext) -> CheckResult:
    """Return the compile time, and how to spare the slice that time."""
    figures, _price = _measured(trial)
    figure = f"{figures.trace_seconds:.0f} s to trace, {figures.compile_seconds:.0f} s to compile"
    to_set = ""
    if figures.cached:
        figure += f"; {counted(len(figures.cached), 'program')} kept"
        folder = Path(figures.cached[0]).parent
        to_set = f"set JAX_COMPILATION_CACHE_DIR to a copy of {folder} on the slice"
    numbers = {"compile_seconds": figures.compile_seconds, "cache": list(figures.cached)}
    return ok(figure, to_set, numbers=numbers)


def decoding(recipe: Recipe, context: RunContext) -> CheckResult:
    """Check that an evaluation can decode a batch while the training state stays in memory."""
    cfg, tpu = context.run.infer_eval_dataset_cfg, context.tpu
    if cfg is None:
        return ok("nothing is decoded")
    context.require_vocabulary()
    batch = f"a batch of {cfg.batch_size} at an evaluation"
    to_set = "set infer_eval/utils.DatasetConfig.batch_size to less"
    try:
        sizes = compile_decoding(RecipeRequest(tpu.name, recipe, decodes=True))
    except OutOfMemory as error:
        need = f"{error.used:.2f} GiB beside the {_size(error.arguments)} of training"
        limit = f"{_device(tpu)} has {error.limit:.2f}"
        return fails(f"to decode {batch} needs {need}, and {limit}", to_set)
    except CompileError as error:
        raise NotChecked(error.fault) from error
    used, training, available = sizes["used_gib"], sizes["held_gib"], tpu.chip.hbm
    figure = (
        f"{batch}: {used:.2f} GiB of {available:.2f} on {_device(tpu)}, {_size(training)} of it "
        f"held by training; {sizes['compile_seconds']:.0f} s to compile"
    )
    if used > available:
        return fails(figure, to_set, numbers=sizes)
    return ok(figure, numbers=sizes)


def _measured(trial: Trial) -> tuple[Figures, Price]:
    """Return the figures of a trial and its price, or raise NotChecked."""
    if trial.figures is None or trial.price is None:
        raise NotChecked("the step was not compiled")
    return trial.figures, trial.price


def _size(gib: float) -> str:
    return f"{gib:.2f}" if gib >= 0.01 else f"{1024 * gib:.1f} MiB"


def _device(tpu: Slice) -> str:
    if isinstance(tpu, LocalDevices):
        return "a device"
    return "a core" if tpu.chip.devices == 2 else "a chip"
