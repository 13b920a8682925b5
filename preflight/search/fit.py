"""What makes a step fit that does not: tried on the compiler, the cheapest named.

  cheapest, tried = find(recipe, subject, trial, say=print)

Tried are, each alone: more microbatches, more rematerialization, more partitions. If none of them
is enough, all together; and only then a smaller batch, since that changes what is learned. Where
the state alone is too large, only partitions can help, and nothing else is tried.
"""

from collections.abc import Callable, Iterator

from preflight.aot.compiler import OutOfMemory
from preflight.aot.recipe import Recipe
from preflight.run_context import Subject
from preflight.search.trial import BATCH, MICROBATCHES, PARTITIONS, REMAT, Trial, attempt

Settings = tuple[tuple[str, object], ...]
# The most that one kind of cure is tried at.
_ATTEMPTS = 2


def find(
    recipe: Recipe, s: Subject, failed: Trial, say: Callable[[str], None] = print
) -> tuple[Trial | None, list[Trial]]:
    """The cheapest settings that fit (None if there are none), and all that was tried.

    Args:
      recipe: whose step does not fit.
      s: its run and slice.
      failed: what came of it, with an OutOfMemory.
      say: is told what is tried.
    """
    tried: list[Trial] = []

    def fits(settings: Settings) -> bool:
        trial = attempt(recipe, s.tpu, settings, s.steps_left)
        say(f"  {trial.flags}: {trial.outcome}")
        tried.append(trial)
        return trial.fits

    for kind in singles(s, failed.error):
        for settings in kind[:_ATTEMPTS]:
            if fits(settings):
                break
    if not any(trial.fits for trial in tried):
        for settings in together(s):
            if fits(settings):
                break
    fitting = [trial for trial in tried if trial.fits]
    return min(fitting, key=lambda t: t.seconds_a_row, default=None), tried


def singles(s: Subject, error: OutOfMemory) -> list[list[Settings]]:
    """For each kind of cure its settings, the weakest that may be enough first."""
    state_fits = error.arguments < 0.97 * error.limit
    room = max(error.limit - error.arguments, 1e-3)
    wanted = (error.used - error.arguments) / room
    found = [_enough([((PARTITIONS, n),) for n in larger_partitions(s)], wanted, s)]
    if state_fits:
        parts = [((MICROBATCHES, n),) for n in more_microbatches(s)]
        found = [_enough(parts, wanted, s), [((REMAT, p),) for p in stronger_remat(s)], *found]
    return [kind for kind in found if kind]


def _enough(settings: list[Settings], wanted: float, s: Subject) -> list[Settings]:
    """Leaves out, of ascending settings, those that cut what is too large by too little."""
    now = {MICROBATCHES: s.microbatches, PARTITIONS: s.run.partitioner.num_partitions}
    # Not everything is cut by them, nor is cutting everything needed: half of it is tried too.
    likely = [x for x in settings if x[0][1] / now[x[0][0]] >= wanted / 2]
    return likely or settings[-1:]


def together(s: Subject) -> Iterator[Settings]:
    """Everything at once at its strongest, then with ever smaller batches."""
    remat = [(REMAT, policy) for policy in stronger_remat(s)[-1:]]
    parts = [(MICROBATCHES, n) for n in more_microbatches(s)[-1:]]
    for count in [s.run.partitioner.num_partitions, *larger_partitions(s)]:
        spread = [(PARTITIONS, count)] if count != s.run.partitioner.num_partitions else []
        copies = s.tpu.device_count // count
        usable = [(n, v) for n, v in parts if s.data.batch_size % (copies * v) == 0]
        if len(remat + usable + spread) > 1:
            yield tuple(remat + usable + spread)
    widest = ([s.run.partitioner.num_partitions, *larger_partitions(s)])[-1]
    copies = s.tpu.device_count // widest
    spread = [(PARTITIONS, widest)] if widest != s.run.partitioner.num_partitions else []
    rows = s.data.batch_size // 2
    while rows and rows % copies == 0:
        yield (*remat, *spread, (MICROBATCHES, 1), (BATCH, rows))
        rows //= 2


def more_microbatches(s: Subject) -> list[int]:
    """Multiples of what is set that divide each copy's rows, ascending."""
    copies = max(s.tpu.device_count // s.run.partitioner.num_partitions, 1)
    rows = s.data.batch_size // copies
    doubled = [s.microbatches * 2**n for n in range(1, 8)]
    return [n for n in doubled if n <= rows and rows % n == 0]


def stronger_remat(s: Subject) -> list[str]:
    """Policies that keep less than the one set, weakest first."""
    config = getattr(s.run.model.module, "config", None)
    order = ["none", "minimal", "full"]
    policy = getattr(config, "remat_policy", None)
    if policy is None:
        return []
    return order[order.index("minimal" if policy == "auto" else policy) + 1 :]


def larger_partitions(s: Subject) -> list[int]:
    """Multiples of what is set that divide the slice and leave the batch whole, ascending."""
    if s.run.partitioner.submesh:
        return []
    devices, rows = s.tpu.device_count, s.data.batch_size
    doubled = [s.run.partitioner.num_partitions * 2**n for n in range(1, 8)]
    fitting = [n for n in doubled if n <= devices and devices % n == 0]
    return [n for n in fitting if rows % (devices // n * s.microbatches) == 0]
