"""Slices side by side, each at the batch and partitions that suit it best.

  print(table([best(recipe, Subject(run, slices.find(name))) for name in ("v4-8", "v5e-16")]))

On each slice the recipe's batch is tried with the partitions next to the recipe's own, then larger
batches with the best of them, as long as they save at least a fiftieth. Prices are to as many
sequences as the recipe reads, so that a doubled batch takes half the steps.
"""

import dataclasses
from collections.abc import Callable, Sequence

from preflight.aot.compiler import OutOfMemory
from preflight.aot.recipe import Recipe
from preflight.aot.tpu_slices import Slice
from preflight.run_context import Subject
from preflight.search import fit
from preflight.search.trial import BATCH, PARTITIONS, Trial, attempt

_WORTH = 0.98
_LARGER = 2


@dataclasses.dataclass(frozen=True)
class Best:
    """What a slice does best, and whether the recipe fits it as it is.

    Attributes:
      tpu: the slice.
      fits: at the recipe's batch, with some number of partitions.
      trial: the best that fits, None if nothing does.
      batch, partitions: of it.
      hours: to as many sequences as the recipe reads.
    """

    tpu: Slice
    fits: bool
    trial: Trial | None
    batch: int = 0
    partitions: int = 0
    hours: float = 0.0


def best(recipe: Recipe, s: Subject, say: Callable[[str], None] = print) -> Best:
    """Finds the cheapest settings for the slice of `s`; takes some minutes."""
    tried: list[Trial] = []

    def attempted(settings) -> Trial:
        trial = attempt(recipe, s.tpu, settings, s.steps_left)
        say(f"  {s.tpu.name} {trial.flags}: {trial.outcome}")
        tried.append(trial)
        return trial

    for count in partitions(s):
        attempted(((PARTITIONS, count),))
    fitting = [trial for trial in tried if trial.fits]
    if not fitting:
        error = next((t for t in tried if isinstance(t.error, OutOfMemory)), None)
        cheapest = fit.find(recipe, s, error, say)[0] if error else None
        return _best(s, False, cheapest)
    found = min(fitting, key=lambda trial: trial.seconds_a_row)
    rows = s.data.batch_size
    for _ in range(_LARGER):
        rows *= 2
        trial = attempted((*found.settings[:1], (BATCH, rows)))
        if not trial.fits or trial.seconds_a_row > _WORTH * found.seconds_a_row:
            break
        found = trial
    return _best(s, True, found)


def partitions(s: Subject) -> list[int]:
    """The recipe's number of partitions and its neighbors, as far as slice and batch allow them."""
    own, devices = s.run.partitioner.num_partitions, s.tpu.device_count
    rows = s.data.batch_size
    fitting = [
        n
        for n in range(1, devices + 1)
        if devices % n == 0 and rows % (devices // n * s.microbatches) == 0
    ]
    near = sorted(fitting, key=lambda n: (abs(n.bit_length() - own.bit_length()), n))
    return sorted(near[:3])


def _best(s: Subject, fits: bool, trial: Trial | None) -> Best:
    if trial is None:
        return Best(s.tpu, fits, None)
    set_to = dict(trial.settings)
    rows = trial.figures.rows
    hours = s.steps_left * s.data.batch_size * trial.seconds_a_row / 3600
    count = set_to.get(PARTITIONS, s.run.partitioner.num_partitions)
    return Best(s.tpu, fits, trial, rows, int(count), hours)


def table(found: Sequence[Best]) -> str:
    """One line a slice."""
    lines = [
        f"{'slice':<8} {'chips':>5}  {'fits':<4}  {'batch':>6} {'partitions':>10}  {'steps/s':>8} "
        f"{'MFU':>4}  {'hours':>9} {'chip-hours':>11}  settings"
    ]
    for b in found:
        head = f"{b.tpu.name:<8} {b.tpu.chips:>5}  {'yes' if b.fits else 'no':<4}"
        if b.trial is None:
            lines.append(f"{head}  nothing that was tried fits")
            continue
        cost = b.trial.price
        lines.append(
            f"{head}  {b.batch:>6} {b.partitions:>10}  {cost.steps_per_second:>8.3g} "
            f"{cost.mfu:>4.0%}  {b.hours:>9,.1f} {b.hours * b.tpu.chips:>11,.0f}  {b.trial.flags}"
        )
    return "\n".join(lines)


def as_json(found: Sequence[Best]) -> list[dict]:
    """The same for programs."""
    return [
        {
            "slice": b.tpu.name,
            "chips": b.tpu.chips,
            "fits": b.fits,
            "batch": b.batch,
            "partitions": b.partitions,
            "hours": b.hours,
            "chip_hours": b.hours * b.tpu.chips,
            "settings": dict(b.trial.settings) if b.trial else None,
            "steps_per_second": b.trial.price.steps_per_second if b.trial else None,
            "mfu": b.trial.price.mfu if b.trial else None,
        }
        for b in found
    ]
