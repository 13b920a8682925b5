"""Batch × rematerialization × partitions on one slice, and which of them are worth having.

  found = sweep(recipe, subject)
  print(table(found, subject.tpu))

The frontier: settings such that no other ones that fit give more tokens a second with no more
memory. Where a batch does not fit, a larger one with the same rest is not tried.
"""

import itertools
from collections.abc import Callable, Sequence

from preflight.aot.compiler import OutOfMemory
from preflight.aot.recipe import Recipe
from preflight.aot.tpu_slices import Slice
from preflight.run_context import Subject
from preflight.search.trial import BATCH, PARTITIONS, REMAT, Trial, attempt

POLICIES = ("none", "minimal", "full")


def grid(s: Subject) -> list[list[tuple[tuple[str, object], ...]]]:
    """Settings in columns: remat and partitions alike, batches ascending."""
    devices, own = s.tpu.device_count, s.run.partitioner.num_partitions
    counts = sorted({n for n in (own // 2, own, own * 2) if n and devices % n == 0})
    batches = [n for n in (s.data.batch_size // 2, s.data.batch_size, s.data.batch_size * 2) if n]
    columns = []
    for policy, count in itertools.product(POLICIES, counts):
        whole = [n for n in batches if n % (devices // count * s.microbatches) == 0]
        columns.append([((REMAT, policy), (PARTITIONS, count), (BATCH, n)) for n in whole])
    return columns


def sweep(recipe: Recipe, s: Subject, say: Callable[[str], None] = print) -> list[Trial]:
    """Tries the grid; up to 27 programs, each of which takes a minute or so."""
    found = []
    for column in grid(s):
        for settings in column:
            trial = attempt(recipe, s.tpu, settings, s.steps_left)
            say(f"  {trial.flags}: {trial.outcome}")
            found.append(trial)
            if isinstance(trial.error, OutOfMemory):
                break
    return found


def frontier(found: Sequence[Trial]) -> list[Trial]:
    """Those that fit and that no other beats, least memory first."""
    fitting = [trial for trial in found if trial.fits]
    fitting.sort(key=lambda t: (t.figures.used_gib, -t.price.tokens_per_second))
    best, kept = 0.0, []
    for trial in fitting:
        if trial.price.tokens_per_second > best:
            best = trial.price.tokens_per_second
            kept.append(trial)
    return kept


def table(found: Sequence[Trial], tpu: Slice) -> str:
    """All that was tried, the frontier marked."""
    chosen = frontier(found)
    lines = [
        f"{tpu.name}, {tpu.chip.hbm:.2f} GiB: * is on the frontier of memory and speed",
        f"  {'batch':>6}  {'remat':<8} {'partitions':>10}  {'GiB':>6}  {'steps/s':>8} "
        f"{'tokens/s':>11}  {'MFU':>4}",
    ]
    for trial in found:
        set_to = dict(trial.settings)
        mark = "*" if trial in chosen else " "
        head = f"{mark} {set_to[BATCH]:>6}  {set_to[REMAT]:<8} {set_to[PARTITIONS]:>10}"
        if not trial.fits:
            lines.append(f"{head}  {trial.outcome}")
            continue
        cost = trial.price
        lines.append(
            f"{head}  {trial.figures.used_gib:>6.2f}  {cost.steps_per_second:>8.3g} "
            f"{cost.tokens_per_second:>11,.0f}  {cost.mfu:>4.0%}"
        )
    return "\n".join(lines)


def as_json(found: Sequence[Trial]) -> list[dict]:
    """The same for programs."""
    chosen = frontier(found)
    return [
        {
            **dict(trial.settings),
            "fits": trial.fits,
            "frontier": trial in chosen,
            "used_gib": trial.figures.used_gib
            if trial.fits
            else getattr(trial.error, "used", None),
            "steps_per_second": trial.price.steps_per_second if trial.fits else None,
            "tokens_per_second": trial.price.tokens_per_second if trial.fits else None,
            "mfu": trial.price.mfu if trial.fits else None,
        }
        for trial in found
    ]
