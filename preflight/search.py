"""Settings tried on the compiler: settings that make a step fit, fast ones, cheap slices."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from preflight import here
from preflight.aot.compiler import CompileError, OutOfMemory, compile_step
from preflight.aot.cost import Figures, Price
from preflight.aot.recipe import Recipe, load
from preflight.aot.recipe_step import RecipeRequest
from preflight.run_context import RunContext

BATCH = "BATCH_SIZE"
MICROBATCHES = "trainer.Trainer.num_microbatches"
PARTITIONS = "partitioning.PjitPartitioner.num_partitions"
REMAT = "network.T5Config.remat_policy"  # of T5s; see `remat_name`
POLICIES = ("none", "minimal", "full")  # to try; `products` is for GPUs
_ATTEMPTS = 2  # of one kind of setting, to make a step fit
_LARGER = 2  # doublings of the batch that a comparison tries
_WORTH = 0.98  # a doubled batch must cost less than this share

Settings = tuple[tuple[str, Any], ...]  # (gin name, value) pairs
Row = dict[str, Any]  # of a report
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Trial:
    """Settings that were compiled, and the figures or the compiler's error."""

    settings: Settings = ()  # empty for the recipe's own
    figures: Figures | None = None  # None if the compiler refused
    price: Price | None = None  # of as many sequences as the recipe reads, None without figures
    error: Exception | None = None

    @property
    def fits(self) -> bool:
        """Whether it compiled."""
        return self.figures is not None

    @property
    def out_of_memory(self) -> bool:
        """Whether it needs more memory than there is."""
        return isinstance(self.error, OutOfMemory)

    @property
    def used_gib(self) -> float | None:
        """The memory needed on a device, None if unknown."""
        return self.figures.used_gib if self.figures else getattr(self.error, "used", None)

    @property
    def hours(self) -> float:
        """The time of the run, infinite if the step does not fit."""
        return self.price.hours if self.price else float("inf")

    @property
    def flags(self) -> str:
        """The settings as command-line flags."""
        quoted = lambda v: f"\"'{v}'\"" if isinstance(v, str) else str(v)
        return " ".join(f"--gin.{name}={quoted(value)}" for name, value in self.settings)

    @property
    def outcome(self) -> str:
        """The result in a few words."""
        if self.figures and self.price:
            speed = f"{self.price.steps_per_second:.3g} steps/s"
            return f"fits in {self.figures.used_gib:.1f} GiB, {speed}"
        if isinstance(self.error, OutOfMemory):
            return f"needs {self.error.used:.1f} GiB of {self.error.limit:.2f}"
        return f"is refused: {self.error}"


def compile_trial(
    recipe: Recipe, context: RunContext, settings: Settings = (), cache: str | None = None
) -> Trial:
    """Compile the train step with `settings`, which precede the recipe's; this takes a minute."""
    changed = recipe.with_bindings(*(f"{name} = {value!r}" for name, value in settings))
    try:
        if isinstance(context.tpu, here.LocalDevices):
            figures = here.measure(load(changed), context.tpu.chip.hbm)
        else:
            figures = compile_step(RecipeRequest(context.tpu.name, changed), cache)
    except (ValueError, CompileError) as error:
        return Trial(settings, error=error)
    steps = context.steps_left * context.data.batch_size / figures.rows
    return Trial(settings, figures, Price(figures, context.tpu, steps))


def compile_column(
    recipe: Recipe,
    context: RunContext,
    column: Iterable[Settings],
    say: Say,
    until: Callable[[Trial], bool] = lambda trial: False,
) -> list[Trial]:
    """Return the trials of settings in their order, to the first that is `until`."""
    trials = []
    for settings in column:
        trial = compile_trial(recipe, context, settings)
        say(f"  {context.tpu.name} {trial.flags}: {trial.outcome}")
        trials.append(trial)
        if until(trial):
            break
    return trials


def cheapest(trials: Iterable[Trial]) -> Trial | None:
    """Return the trial that fits at the lowest price of a sequence, None if none fits."""
    return min((trial for trial in trials if trial.fits), key=lambda t: t.hours, default=None)


# --- what makes a step fit


def fit(recipe: Recipe, context: RunContext, failed: Trial, say: Say = print) -> list[Trial]:
    """Return trials of settings that may make a step fit; none of them fits if none does.

    Each kind is tried by itself first: more microbatches, more rematerialization, more partitions.
    If none of them is enough, all together; and only then a smaller batch, which changes training.
    If the training state does not fit, only partitions can help. `failed` is the trial of the
    recipe, with an OutOfMemory; `say` receives a line for each trial.
    """
    trials: list[Trial] = []
    fits = lambda trial: trial.fits
    for column in single_changes(context, failed.error):
        trials += compile_column(recipe, context, column[:_ATTEMPTS], say, fits)
    if cheapest(trials) is None:
        trials += compile_column(recipe, context, combined_changes(context), say, fits)
    return trials


def single_changes(context: RunContext, error: Any) -> list[list[Settings]]:
    """Return the settings of each kind, starting with the weakest that may be enough."""
    available = max(error.limit - error.arguments, 1e-3)
    wanted = (error.used - error.arguments) / available
    own = context.run.partitioner.num_partitions
    found = [_enough(PARTITIONS, larger_partitions(context), wanted * own)]
    if error.arguments < 0.97 * error.limit:  # the training state fits
        parts = _enough(
            MICROBATCHES, more_microbatches(context), wanted * context.trainer.num_microbatches
        )
        found = [parts, [(change,) for change in stronger_remat(context)], *found]
    return [column for column in found if column]


def _enough(name: str, values: list[int], wanted: float) -> list[Settings]:
    """Return settings of ascending values without those that save far too little memory."""
    # They do not divide all memory, nor is dividing all of it needed: half of it is tried too.
    likely = [value for value in values if value >= wanted / 2] or values[-1:]
    return [((name, value),) for value in likely]


def combined_changes(context: RunContext) -> Iterator[Settings]:
    """Yield all kinds at their strongest, then ever smaller batches."""
    own, devices = context.run.partitioner.num_partitions, context.tpu.device_count
    remat = stronger_remat(context)[-1:]
    parts = more_microbatches(context)[-1:]
    counts = [own, *larger_partitions(context)]
    spread = lambda count: [(PARTITIONS, count)] if count != own else []
    for count in counts:
        usable = [n for n in parts if context.data.batch_size % (devices // count * n) == 0]
        changes = [*remat, *((MICROBATCHES, n) for n in usable), *spread(count)]
        if len(changes) > 1:
            yield tuple(changes)
    rows = context.data.batch_size // 2
    while rows and rows % (devices // counts[-1]) == 0:
        yield (*remat, *spread(counts[-1]), (MICROBATCHES, 1), (BATCH, rows))
        rows //= 2


def more_microbatches(context: RunContext) -> list[int]:
    """Return multiples of the recipe's number that divide each model copy's rows, ascending."""
    copies = max(context.tpu.device_count // context.run.partitioner.num_partitions, 1)
    rows = context.data.batch_size // copies
    doubled = [context.trainer.num_microbatches * 2**n for n in range(1, 8)]
    return [n for n in doubled if n <= rows and rows % n == 0]


def stronger_remat(context: RunContext) -> list[tuple[str, Any]]:
    """Return the settings of policies that keep less than the recipe's, weakest first."""
    config = getattr(context.run.model.module, "config", None)
    policy = getattr(config, "remat_policy", None)
    if policy is None:
        return []
    policy = {"auto": "minimal", "products": "none"}.get(policy, policy)
    stronger = POLICIES[POLICIES.index(policy) + 1 :]
    return [(remat_name(context), policy) for policy in stronger]


def remat_name(context: RunContext) -> str:
    """Return the gin name of the rematerialization policy of the run's network."""
    config = getattr(context.run.model.module, "config", None)
    return REMAT if config is None else f"network.{type(config).__name__}.remat_policy"


def larger_partitions(context: RunContext) -> list[int]:
    """Return multiples of the recipe's number that divide slice and batch, ascending."""
    if context.run.partitioner.submesh:
        return []
    doubled = [context.run.partitioner.num_partitions * 2**n for n in range(1, 8)]
    return [n for n in doubled if _divides(context, n)]


def _divides(context: RunContext, partitions: int, rows: int | None = None) -> bool:
    """Return whether slice and batch can be divided by a number of partitions."""
    devices, rows = context.tpu.device_count, rows or context.data.batch_size
    if partitions > devices or devices % partitions:
        return False
    return rows % (devices // partitions * context.trainer.num_microbatches) == 0


# --- a grid on one slice


def grid(context: RunContext) -> list[list[Settings]]:
    """Return columns of settings of the same remat and partitions, batches ascending."""
    own, rows = context.run.partitioner.num_partitions, context.data.batch_size
    columns: list[list[Settings]] = []
    for policy, count in itertools.product(POLICIES, sorted({own // 2, own, own * 2} - {0})):
        batches = [n for n in (rows // 2, rows, rows * 2) if n and _divides(context, count, n)]
        remat = (remat_name(context), policy)
        columns.append([(remat, (PARTITIONS, count), (BATCH, n)) for n in batches])
    return columns


def sweep(recipe: Recipe, context: RunContext, say: Say = print) -> list[Trial]:
    """Return trials of batch × remat × partitions: up to 27 programs of about a minute each.

    Batches larger than one that does not fit are not tried.
    """
    until = lambda trial: trial.out_of_memory
    columns = (compile_column(recipe, context, column, say, until) for column in grid(context))
    return [trial for column in columns for trial in column]


def frontier(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials than which no other is faster with as little memory, least memory first."""
    speed = lambda trial: trial.price.tokens_per_second
    fitting = [trial for trial in trials if trial.fits]
    kept: list[Trial] = []
    for trial in sorted(fitting, key=lambda t: (t.used_gib, -speed(t))):
        if not kept or speed(trial) > speed(kept[-1]):
            kept.append(trial)
    return kept


def sweep_rows(trials: Sequence[Trial]) -> list[Row]:
    """Return a row a trial, for `table` and for programs."""
    chosen = frontier(trials)
    return [
        {
            **dict(trial.settings),
            "remat": next((v for k, v in trial.settings if k.endswith("remat_policy")), None),
            "fits": trial.fits,
            "frontier": trial in chosen,
            "used_gib": trial.used_gib,
            **_prices(trial, "steps_per_second", "tokens_per_second", "mfu"),
        }
        for trial in trials
    ]


# --- slices compared


def best_on_slice(recipe: Recipe, context: RunContext, say: Say = print) -> Row:
    """Return a row of the cheapest settings on a slice, which takes some minutes.

    The recipe's batch is tried with its number of partitions and the next ones, then larger batches
    with the best of them, as long as they save at least a fiftieth. `fits` is whether the recipe's
    own batch fits. Prices are of as many sequences as the recipe reads.
    """
    near = (((PARTITIONS, count),) for count in near_partitions(context))
    trials = compile_column(recipe, context, near, say)
    best = cheapest(trials)
    fits = best is not None
    if best is None:
        failed = next((trial for trial in trials if trial.out_of_memory), None)
        best = cheapest(fit(recipe, context, failed, say)) if failed else None
    else:
        for doublings in range(1, _LARGER + 1):
            larger = (best.settings[0], (BATCH, context.data.batch_size * 2**doublings))
            (trial,) = compile_column(recipe, context, [larger], say)
            if trial.hours > _WORTH * best.hours:
                break
            best = trial
    settings, figures = (dict(best.settings), best.figures) if best else (None, None)
    own = context.run.partitioner.num_partitions
    return {
        "slice": context.tpu.name,
        "chips": context.tpu.chips,
        "fits": fits,
        "batch": figures.rows if figures else None,
        "partitions": None if settings is None else settings.get(PARTITIONS, own),
        "settings": settings,
        "flags": best.flags if best else "no settings that were tried fit",
        **_prices(best, "hours", "chip_hours", "steps_per_second", "mfu"),
    }


def near_partitions(context: RunContext) -> list[int]:
    """Return the recipe's number of partitions and the next ones that divide slice and batch."""
    own = context.run.partitioner.num_partitions
    fitting = [n for n in range(1, context.tpu.device_count + 1) if _divides(context, n)]
    near = sorted(fitting, key=lambda n: (abs(n.bit_length() - own.bit_length()), n))
    return sorted(near[:3])


# --- reports: columns as titles and keys of the rows

_SPEED = {"steps/s": "steps_per_second", "MFU": "mfu"}
SWEEP_COLUMNS = {"batch": BATCH, "remat": "remat", "partitions": PARTITIONS, "fits": "fits"}
SWEEP_COLUMNS |= {"GiB": "used_gib", **_SPEED, "tokens/s": "tokens_per_second"}
SWEEP_COLUMNS |= {"fastest with this memory": "frontier"}
COMPARISON_COLUMNS = {name: name for name in ("slice", "chips", "fits", "batch", "partitions")}
COMPARISON_COLUMNS |= {**_SPEED, "hours": "hours", "chip-hours": "chip_hours", "settings": "flags"}
_FORMATS = {"steps_per_second": ".3g", "mfu": ".0%", "used_gib": ".2f", "tokens_per_second": ",.0f"}


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Return rows as columns, all but the last flush right; unknown values stay empty."""
    lines = [list(columns), *([_cell(row[key], key) for key in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths[-1] = 0
    shown = ([f"{cell:>{n}}" for cell, n in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in shown)


def _cell(value: Any, key: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    if key in ("hours", "chip_hours"):
        return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"
    return format(value, _FORMATS.get(key, ""))


def _prices(trial: Trial | None, *names: str) -> dict[str, float | None]:
    return {name: getattr(trial and trial.price, name, None) for name in names}
