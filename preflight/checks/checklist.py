"""Lists all checks of preflight in their order, and runs them (`check_recipe`).

The other modules of this package hold most checks. Those of the gin files are in
`preflight.aot.recipe`, and those of a sample of the corpus in `tasks.look.lines`.
"""

import argparse
import functools
from collections.abc import Callable

from common.tables import NOT_CHECKED, OK, CheckResult, ok, run_check
from preflight import here
from preflight.aot import recipe as recipes
from preflight.aot.recipe import Recipe
from preflight.aot.slices import Slice
from preflight.checks import data, gin, step, storage, vocabulary
from preflight.run_context import RunContext
from preflight.search import Say, Trial, cheapest, compile_trial, fit
from tasks.look import lines

# Checks of the gin files, before a run can be built.
GIN = ("gin parses", "all is set", "objects")

# Checks of the run.
RUN: tuple[tuple[str, Callable[[RunContext], CheckResult]], ...] = (
    ("periods", gin.periods),
    ("partitions", gin.partitions),
    ("batch", gin.batch),
    ("task", gin.task),
    ("first records", data.first_records),
    ("vocabulary", vocabulary.vocabulary),
    ("publishing", vocabulary.publishing),
    *((name, functools.partial(data.sample_line, name=name)) for name in lines.NAMES),
    ("fill", data.fill),
    ("shards", data.shards),
    ("order", data.order),
    ("epochs", data.epochs),
    ("corpus on disk", data.copies),
    ("start", storage.start),
    ("MODEL_DIR", storage.model_dir),
    ("checkpoints", storage.checkpoints),
    ("disk", storage.disk),
)

# Checks of the compiled step, between "memory" and "decoding".
STEP: tuple[tuple[str, Callable[[Trial, RunContext], CheckResult]], ...] = (
    ("speed", step.speed),
    ("duration", step.duration),
    ("input", step.input_rate),
    ("collectives", step.collectives),
    ("compilation", step.compilation),
)
NAMES = (*GIN, *dict(RUN), "memory", *dict(STEP), "decoding")


def check_recipe(
    recipe: Recipe,
    tpu: Slice,
    offline: bool = False,
    cache: str | None = None,
    say: Say = print,
) -> list[CheckResult]:
    """Return the results of all checks, whatever happens in one of them.

    With `offline` nothing is accessed over the network. The step is added to the folder `cache` of
    JAX's compilation cache; `say` receives a line before each slow step.
    """
    results, run = check_gin(recipe)
    if run is None:
        return results + [_not_checked_after(results, name) for name in NAMES[len(GIN) :]]
    context = RunContext(run, tpu, offline)
    results += [run_check(name, check, context) for name, check in RUN]
    return results + check_step(recipe, context, cache, say)


def check_gin(recipe: Recipe) -> tuple[list[CheckResult], argparse.Namespace | None]:
    """Return the results of the gin files, and the run if it can be built."""
    results: list[CheckResult] = []
    run: argparse.Namespace | None = None

    def build() -> None:
        nonlocal run
        run = recipes.build()

    def take(step: Callable[[], object], figure: str) -> CheckResult:
        step()
        return ok(figure)

    parsed = f"{', '.join(recipe.gin_files)} and {'their' if recipe.gin_files[1:] else 'its'}"
    objects = f"model, data, partitioner and checkpoints of {recipe.name} can be made"
    steps = (
        (lambda: recipes.parse(recipe), f"{parsed} includes: every name is known"),
        (lambda: recipes.finalize(recipe), "every macro in use has a value"),
        (build, objects),
    )
    for name, (function, figure) in zip(GIN, steps, strict=True):
        if all(result.verdict == OK for result in results):
            results.append(run_check(name, take, function, figure))
        else:
            results.append(_not_checked_after(results, name))
    return results, run


def _not_checked_after(results: list[CheckResult], name: str) -> CheckResult:
    failed = next(result for result in results if result.verdict != OK)
    return CheckResult(NOT_CHECKED, f"after “{failed.check}”", check=name)


def check_step(
    recipe: Recipe, context: RunContext, cache: str | None, say: Say
) -> list[CheckResult]:
    """Return the results of the compiled step.

    If the slice is this machine's own devices, "collectives" and "decoding" are left out.
    """
    say(f"Compiling the train step of {recipe.name} for {context.tpu.name}: this takes minutes.")
    trial = Trial()

    def memory() -> CheckResult:
        nonlocal trial
        trial, best = compile_trial(recipe, context, cache=cache), None
        if trial.out_of_memory:
            say(f"It {trial.outcome}. Trying settings that make it fit:")
            best = cheapest(fit(recipe, context, trial, say))
        return step.memory(trial, context.tpu, best)

    results = [run_check("memory", memory)]
    is_here = isinstance(context.tpu, here.LocalDevices)
    for name, check in STEP:
        if name != "collectives" or not is_here:
            results.append(run_check(name, check, trial, context))
    if not is_here:
        results.append(run_check("decoding", step.decoding, recipe, context))
    return results
