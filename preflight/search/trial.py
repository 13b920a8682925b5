"""Settings tried on the compiler: what a user could set, and what comes of it.

trial = attempt(recipe, tpu, batch(64), steps=1000)
trial.fits, trial.price.steps_per_second, trial.flags
"""

import dataclasses
from collections.abc import Sequence

from preflight.aot.compiler import CompileError, Figures, OutOfMemory, RunRequest, compile_step
from preflight.aot.cost_model import Price, price
from preflight.aot.recipe import Recipe
from preflight.aot.tpu_slices import Slice

BATCH = "BATCH_SIZE"
MICROBATCHES = "trainer.Trainer.num_microbatches"
PARTITIONS = "partitioning.PjitPartitioner.num_partitions"
REMAT = "network.T5Config.remat_policy"


@dataclasses.dataclass(frozen=True)
class Trial:
    """What came of some settings.

    Attributes:
      settings: (gin name, value) pairs, the recipe's own if there are none.
      figures: of the compiler, None where it refused.
      price: of them, to the end of training.
      error: why it refused.
    """

    settings: tuple[tuple[str, object], ...]
    figures: Figures | None = None
    price: Price | None = None
    error: Exception | None = None

    @property
    def fits(self) -> bool:
        """It compiles, and its memory is there."""
        return self.figures is not None

    @property
    def used_gib(self) -> float | None:
        """What it needs of a device's memory, as far as that is known."""
        return self.figures.used_gib if self.fits else getattr(self.error, "used", None)

    @property
    def seconds_a_row(self) -> float:
        """What a sequence costs, however many a step has."""
        return 1 / self.price.steps_per_second / self.figures.rows

    @property
    def flags(self) -> str:
        """The settings as they are given on the command line."""
        quoted = lambda v: f"\"'{v}'\"" if isinstance(v, str) else str(v)
        return " ".join(f"--gin.{name}={quoted(value)}" for name, value in self.settings)

    @property
    def outcome(self) -> str:
        """What came of it, in a few words."""
        if self.fits:
            used, speed = self.figures.used_gib, self.price.steps_per_second
            return f"fits in {used:.1f} GiB, {speed:.3g} steps/s"
        if isinstance(self.error, OutOfMemory):
            return f"needs {self.error.used:.1f} GiB of {self.error.limit:.2f}"
        return f"is refused: {self.error}"


def attempt(
    recipe: Recipe,
    tpu: Slice,
    settings: Sequence[tuple[str, object]] = (),
    steps: float = 1,
    cache: str | None = None,
) -> Trial:
    """Compiles the train step of `recipe` with `settings` for `tpu`; takes about a minute.

    Args:
      recipe: gin files and bindings.
      tpu: the slice.
      settings: (gin name, value) pairs, which win.
      steps: left to train, for the price.
      cache: see `compiler.compile_step`.
    """
    settings = tuple(settings)
    changed = recipe.with_bindings(*(f"{name} = {value!r}" for name, value in settings))
    try:
        figures = compile_step(RunRequest(tpu.name, changed), cache)
    except (ValueError, CompileError) as error:
        return Trial(settings, error=error)
    return Trial(settings, figures, price(figures, tpu, steps))
