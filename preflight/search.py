"""Find settings with which a train step fits into memory, by compiling it.

Microbatches, remat and partitions are tried singly, then together. A smaller batch, which changes
training, is tried last.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from common.errors import CommandError
from preflight import here
from preflight.aot.compiler import CompileError, OutOfMemory, compile_step
from preflight.aot.cost import Figures, Price
from preflight.aot.recipe import Recipe, load
from preflight.aot.recipe_step import RecipeRequest
from preflight.run_context import RunContext

BATCH = "BATCH_SIZE"
MICROBATCHES = "trainer.Trainer.num_microbatches"
PARTITIONS = "partitioning.PjitPartitioner.num_partitions"
POLICIES = ("none", "minimal", "full")  # policies to try; `products` is for GPUs
_ATTEMPTS = 2  # tries of one kind of setting to make a step fit

Settings = tuple[tuple[str, Any], ...]  # (gin name, value) pairs
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Trial:
    """Settings that were compiled, and the figures or the compiler's error."""

    settings: Settings = ()  # empty for the recipe's own
    figures: Figures | None = None  # None if the compiler refused
    # Price of as many sequences as the recipe reads, None without figures.
    price: Price | None = None
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
        return f"is refused: {self.reason}"

    @property
    def reason(self) -> str:
        """Why it was refused."""
        return self.error.fault if isinstance(self.error, CommandError) else str(self.error)


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


def compile_until_fit(
    recipe: Recipe, context: RunContext, candidates: Iterable[Settings], say: Say
) -> list[Trial]:
    """Return the trials of settings in their order, to the first that fits."""
    trials = []
    for settings in candidates:
        trial = compile_trial(recipe, context, settings)
        say(f"  {context.tpu.name} {trial.flags}: {trial.outcome}")
        trials.append(trial)
        if trial.fits:
            break
    return trials


def cheapest(trials: Iterable[Trial]) -> Trial | None:
    """Return the trial that fits at the lowest price of a sequence, None if none fits."""
    return min((trial for trial in trials if trial.fits), key=lambda t: t.hours, default=None)


def fit(recipe: Recipe, context: RunContext, failed: Trial, say: Say = print) -> list[Trial]:
    """Return trials of settings that may make a step fit.

    Each kind is tried by itself first: more microbatches, more rematerialization, more partitions.
    If none of them is enough, all are tried together, and only then a smaller batch, which changes
    training. If the training state does not fit, only partitions can help.

    Args:
      failed: the trial of the recipe as it is, with an OutOfMemory.
      say: receives a line for each trial.
    """
    trials: list[Trial] = []
    for candidates in single_changes(context, failed.error):
        trials += compile_until_fit(recipe, context, candidates[:_ATTEMPTS], say)
    if cheapest(trials) is None:
        tried = {trial.settings for trial in trials}
        others = (changes for changes in combined_changes(context) if changes not in tried)
        trials += compile_until_fit(recipe, context, others, say)
    return trials


def single_changes(context: RunContext, error: Any) -> list[list[Settings]]:
    """Return the settings of each kind, starting with the weakest that may be enough."""
    available = max(error.limit - error.arguments, 1e-3)
    excess = (error.used - error.arguments) / available
    partitions = context.run.partitioner.num_partitions
    kinds = [_likely(PARTITIONS, larger_partitions(context), excess * partitions)]
    if error.arguments < 0.97 * error.limit:  # the training state fits
        parts = context.trainer.num_microbatches
        microbatches = _likely(MICROBATCHES, more_microbatches(context), excess * parts)
        kinds = [microbatches, [(change,) for change in stronger_remat(context)], *kinds]
    return [candidates for candidates in kinds if candidates]


def _likely(name: str, values: list[int], least: float) -> list[Settings]:
    """Return settings of ascending values without those that save far too little memory."""
    # The factor is rough: a setting divides only a part of the memory. So half of it is tried too.
    likely = [value for value in values if value >= least / 2] or values[-1:]
    return [((name, value),) for value in likely]


def combined_changes(context: RunContext) -> Iterator[Settings]:
    """Yield all kinds at their strongest, then ever smaller batches."""
    partitions, devices = context.run.partitioner.num_partitions, context.tpu.device_count
    remat = stronger_remat(context)[-1:]
    parts = more_microbatches(context)[-1:]
    counts = [partitions, *larger_partitions(context)]
    spread = lambda count: [(PARTITIONS, count)] if count != partitions else []
    for count in counts:
        usable = [n for n in parts if context.data.batch_size % (devices // count * n) == 0]
        changes = [*remat, *((MICROBATCHES, n) for n in usable), *spread(count)]
        if changes:
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
    return [(f"network.{type(config).__name__}.remat_policy", policy) for policy in stronger]


def larger_partitions(context: RunContext) -> list[int]:
    """Return multiples of the recipe's number that divide slice and batch, ascending."""
    if context.run.partitioner.submesh:
        return []
    doubled = [context.run.partitioner.num_partitions * 2**n for n in range(1, 8)]
    devices, rows = context.tpu.device_count, context.data.batch_size
    fitting = [n for n in doubled if n <= devices and devices % n == 0]
    return [n for n in fitting if rows % (devices // n * context.trainer.num_microbatches) == 0]
