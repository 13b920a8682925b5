"""All checks in their order, one line each, and how they are run.

rows = inspect(recipe, slices.find("v4-8"), offline=True)
print(verdicts.table(rows))
"""

import functools
from collections.abc import Callable

from preflight.aot import recipe
from preflight.aot.compiler import OutOfMemory
from preflight.aot.recipe import Recipe
from preflight.aot.tpu_slices import Slice
from preflight.checks import compiled_step, config, corpus, storage, vocabulary
from preflight.results import NOT_CHECKED, OK, NotChecked, Row, judge, ok
from preflight.run_context import Subject
from preflight.search import fit
from preflight.search.trial import Trial, attempt

# What looks at gin, before there is a run.
GIN = ("gin parses", "all is set", "objects")

# What looks at the run: each is told what it is to run on.
RUN: tuple[tuple[str, Callable[[Subject], Row]], ...] = (
    ("periods", config.periods),
    ("partitions", config.partitions),
    ("batch", config.batch),
    ("task", config.task),
    ("first records", corpus.records_read),
    ("vocabulary", vocabulary.vocabulary),
    ("unknown words", vocabulary.words),
    ("fill", corpus.fill),
    ("example", corpus.example),
    ("shards", corpus.shards),
    ("epochs", corpus.epochs),
    ("start", storage.start),
    ("MODEL_DIR", storage.model_dir),
    ("checkpoints", storage.checkpoints),
    ("disk", storage.disk),
)

# What looks at the compiled step.
STEP = ("memory", "speed", "duration", "input", "collectives", "compilation", "decoding")


def inspect(
    asked: Recipe,
    tpu: Slice,
    offline: bool = False,
    cache: str | None = None,
    say: Callable[[str], None] = print,
) -> list[Row]:
    """Every row, whatever happens in one of them.

    Args:
      asked: gin files and bindings.
      tpu: the slice.
      offline: nothing is asked for over the network.
      cache: folder for JAX's compilation cache, None to keep none.
      say: is told what takes long.
    """
    rows, run = of_gin(asked)
    if run is None:
        names = [name for name, _ in RUN] + list(STEP)
        first = next(row for row in rows if row.verdict != OK)
        return rows + [Row(NOT_CHECKED, f"after “{first.check}”", check=name) for name in names]
    subject = Subject(run, tpu, offline)
    rows += [judge(name, check, subject) for name, check in RUN]
    return rows + of_step(asked, subject, cache, say)


def of_gin(asked: Recipe) -> tuple[list[Row], object | None]:
    """The rows of gin, and the run if there is one."""
    rows, made = [], []

    def parsed() -> Row:
        recipe.parse(asked)
        return ok(f"{', '.join(asked.gin_files)} and what they include: every name is known")

    def complete() -> Row:
        recipe.finalize(asked)
        return ok("every macro has a value that something uses")

    def built() -> Row:
        made.append(recipe.build())
        return ok(f"model, data, partitioner and checkpoints of {asked.name} can be made")

    for name, check in zip(GIN, (parsed, complete, built), strict=True):
        if rows and rows[-1].verdict != OK:
            broken = next(row for row in rows if row.verdict != OK)
            rows.append(Row(NOT_CHECKED, f"after “{broken.check}”", check=name))
        else:
            rows.append(judge(name, check))
    return rows, made[0] if made else None


def of_step(asked: Recipe, s: Subject, cache: str | None, say: Callable[[str], None]) -> list[Row]:
    """The rows of the compiler."""
    say(f"Compiling the train step of {asked.name} for {s.tpu.name}: a minute or two.")
    trial, cheapest = Trial(()), None

    def compiled() -> Row:
        nonlocal trial, cheapest
        trial = attempt(asked, s.tpu, (), s.steps_left, cache)
        if isinstance(trial.error, OutOfMemory):
            say(f"It {trial.outcome}. Trying what makes it fit:")
            cheapest, _ = fit.find(asked, s, trial, say)
        return compiled_step.memory(trial, s.tpu, cheapest)

    rows = [judge(STEP[0], compiled)]
    priced = functools.partial(_priced, lambda: trial)
    checks = (
        lambda t: compiled_step.speed(t, s.tpu),
        lambda t: compiled_step.duration(t, s.tpu, s),
        lambda t: compiled_step.feed(t, s.tpu),
        compiled_step.collectives,
        lambda t: compiled_step.compilation(t, cache),
    )
    rows += [judge(n, priced, check) for n, check in zip(STEP[1:-1], checks, strict=True)]
    return [*rows, judge(STEP[-1], compiled_step.decoding, asked, s.tpu, s)]


def _priced(trial: Callable[[], Trial], check: Callable[[Trial], Row]) -> Row:
    found = trial()
    if found.error is not None:
        raise NotChecked("the step was not compiled")
    if found.figures is None:
        raise NotChecked("after “memory”")
    return check(found)
