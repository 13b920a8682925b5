"""Mixtures: several corpora as one stream, with rates and a maximum of epochs.

    add("ro_mix", {"ro_web": 120e9, "ro_books": 4e9, "ro_wiki": 0.5e9}, temperature=3.0,
        epochs={"ro_wiki": 4})

The mixture is then MIXTURE_OR_TASK_NAME = 'ro_mix'. The corpus of each example is drawn from the
run's seed; the data position includes that draw and the position in each corpus. Rates may change
with the step, as in the phases of mmBERT (Marone et al. 2025, arXiv:2509.06888):

    add("ka_added", {"others": [(0, 1.0), (8000, 0.5)], "georgian": [(0, 0.0), (8000, 0.5)]})
    add("all", {"eng": 900e9, "ron": 40e9}, temperature=[(0, 1 / 0.7), (600_000, 1 / 0.5)])
"""

import functools
import math
import numbers
from collections.abc import Mapping, Sequence

import seqio
import tensorflow as tf

from common.errors import UserError
from common.source import CorpusMixture
from common.tables import CheckResult
from tasks.look import overlap
from tasks.task import Task, copy_attributes


class RatedMixture(CorpusMixture):
    """A mixture with a table of shares by phase, see `t5x.input_pipeline.mixed`."""

    def __init__(self, *args, phases: Mapping[int, Mapping[str, float]], **kwargs):
        super().__init__(*args, **kwargs)
        self.phases = phases

    def look(self, split: str) -> list[CheckResult]:
        """Return what its corpora have in common, see `tasks.look.overlap`."""
        tasks = [task for task in self.tasks if split in task.splits]
        return [overlap.look(tasks, split)] if len(tasks) > 1 else []

    def get_dataset(self, *args, **kwargs) -> tf.data.Dataset:
        """Return seqio.Mixture's dataset; raise UserError if its rates change with the step."""
        if len(self.phases) > 1:
            raise UserError(
                f"mixture {self.name!r}",
                why="has rates that change with the step, which only the trainer here reads",
                to_set="name a mixture of constant rates, or one of its tasks",
            )
        return super().get_dataset(*args, **kwargs)

    def part_dataset(self, part: str, **settings) -> tf.data.Dataset:
        """Return the dataset of a task or mixture of `phases`; `settings` are of `get_dataset`."""
        return seqio.get_mixture_or_task(part).get_dataset(**settings)


def rates_of(sizes: Mapping[str, float], temperature: float = 1.0) -> dict[str, float]:
    """Return the share of each corpus, in proportion to size ** (1 / temperature).

    At temperature 1 shares are proportional to sizes, at high temperatures equal; see Raffel et al.
    2020, section 3.5.2, arXiv:1910.10683.
    """
    if not temperature > 0:
        raise UserError("temperature", temperature, "but must be above 0")
    raised = {name: float(size) ** (1 / temperature) for name, size in sizes.items()}
    return {name: rate / sum(raised.values()) for name, rate in raised.items()}


Schedule = float | Sequence[tuple[int, float]]  # a number, or one from each step on


def phases_of(
    sizes: Mapping[str, Schedule], temperature: Schedule = 1.0
) -> dict[int, dict[str, float]]:
    """Return the share of each corpus by the first step of each phase, see `rates_of`.

        phases_of({"a": [(0, 1), (8000, 3)], "b": 1})    # {0: {"a": .5, …}, 8000: {"a": .75, …}}

    Raise UserError for sizes that are no rates, and for a phase that reads nothing or has no
    temperature.
    """
    if not sizes:
        raise UserError(
            "a mixture", why="needs at least one task", to_set="name it with its size or rate"
        )
    schedules = {name: _schedule(f"rate of task {name!r}", size) for name, size in sizes.items()}
    temperatures = _schedule("temperature", temperature)
    phases = {}
    for step in sorted({*temperatures, *(step for s in schedules.values() for step in s)}):
        latest = lambda schedule, step=step: schedule[max(s for s in schedule if s <= step)]
        now = {name: latest(schedule) for name, schedule in schedules.items()}
        if not any(now.values()):
            raise UserError(
                why=f"all tasks have rate 0 from step {step} on, so that nothing is read",
                to_set="give one a rate above 0",
            )
        phases[step] = rates_of(now, latest(temperatures))
    return phases


def _schedule(what: str, values: Schedule) -> dict[int, float]:
    """Return the number from each step on; messages call it `what`."""
    if not isinstance(values, Sequence):
        if not (isinstance(values, numbers.Real) and 0 < values < math.inf):
            raise UserError(what, values, "but must be a finite number above 0")
        return {0: float(values)}
    pairs = [tuple(pair) if isinstance(pair, list | tuple) else (pair,) for pair in values]
    steps = [pair[0] for pair in pairs]
    is_step = lambda step: isinstance(step, numbers.Integral) and not isinstance(step, bool)
    is_number = lambda number: isinstance(number, numbers.Real) and 0 <= float(number) < math.inf
    if not all(len(pair) == 2 and is_step(pair[0]) and is_number(pair[1]) for pair in pairs):
        raise UserError(
            what,
            values,
            "but each of several must be (step, number), such as [(0, 0.0), (8000, 0.5)], with a "
            "number from 0",
        )
    if steps != sorted(set(steps)) or steps[:1] != [0]:
        raise UserError(
            what,
            values,
            f"whose steps {steps} must begin at 0 and increase",
            "give a task rate 0 until it is to be read",
        )
    if not any(number for _, number in pairs):
        raise UserError(what, values, "which is 0 at every step", "leave the task out")
    return {int(step): float(number) for step, number in pairs}


def add(
    name: str,
    sizes: Mapping[str, Schedule],
    temperature: Schedule = 1.0,
    epochs: Mapping[str, int] | None = None,
) -> seqio.Mixture:
    """Register a mixture of registered tasks.

    `sizes` are documents, tokens or bytes of each task, all in one unit, or rates; `temperature`
    evens out the shares, see `rates_of`. `epochs` is how many times at most a task's corpus is
    read; the others then take over its share. When all that have a rate in a phase have ended, so
    does the stream, also if a later phase gives a rate to another.

    A size, or the temperature, may be a list of (step, number), each valid until the next step; in
    every phase the shares follow from the sizes and the temperature of its steps. mmBERT's τ is 1 /
    temperature. Steps are those of the run since it began to read this mixture:
    from 0 in a run from scratch, from converted weights or from another run's checkpoint, also a
    cooldown branch; a run that resumes, or branches off with the same mixture, counts on. Each task
    keeps its position through all phases, and its corpus is not read while its rate is 0, but for
    a sample at the start of a run; so the first step of a phase waits until it is opened.

    A name may be a mixture, of constant rates, which a cooldown branch reads on from where a run on
    it was: add("decay", {"ro_mix": 0.7, "ro_best": 0.3}).

    Raise UserError for an unknown task, or an impossible size, temperature or number of epochs.
    """
    epochs = epochs or {}
    for unknown in epochs.keys() - sizes.keys():
        raise UserError(
            f"mixture {name!r}", why=f"bounds the epochs of {unknown!r}, which it lacks"
        )
    phases = phases_of(sizes, temperature)
    tasks, mixtures = seqio.TaskRegistry.names(), seqio.MixtureRegistry.names()
    for part in sizes:
        if part not in tasks and (part in epochs or part not in mixtures):
            raise UserError(
                f"mixture {name!r}",
                why=f"has the part {part!r}, and no task has that name",
                to_set="import the module that adds it first, and bound the epochs of tasks alone",
            )
    names = {task: _bounded(task, epochs[task]) if task in epochs else task for task in sizes}
    phases = {step: {names[t]: rate for t, rate in rates.items()} for step, rates in phases.items()}
    _check_parts(name, list(names.values()), phased=len(phases) > 1)
    sample = functools.partial(
        tf.data.Dataset.sample_from_datasets, stop_on_empty_dataset=not epochs
    )
    return seqio.MixtureRegistry.add(
        name, list(phases[0].items()), mixture_cls=RatedMixture, sample_fn=sample, phases=phases
    )


def _check_parts(name: str, parts: Sequence[str], phased: bool) -> None:
    """Raise UserError for a part whose own rates change, or for a task of two parts if `phased`."""
    seen: dict[str, str] = {}
    for part in parts:
        provider = seqio.get_mixture_or_task(part)
        if isinstance(provider, RatedMixture) and len(provider.phases) > 1:
            raise UserError(
                f"mixture {name!r}",
                why=f"has the part {part!r}, whose own rates change with the step",
                to_set="name its tasks instead",
            )
        for task in seqio.get_subtasks(provider):
            if phased and task.name in seen:
                raise UserError(
                    f"mixture {name!r}",
                    why=f"has task {task.name!r} in {seen[task.name]!r} and in {part!r}, which "
                    "would read the same documents",
                    to_set="leave it out of one",
                )
            seen[task.name] = part


def _bounded(name: str, epochs: int) -> str:
    if isinstance(epochs, bool) or not (isinstance(epochs, int) and epochs >= 1):
        raise UserError(f"epochs of task {name!r}", epochs, "but must be an integer above 0")
    bounded = f"{name}_{epochs}_epochs"
    if bounded not in seqio.TaskRegistry.names():
        task = seqio.TaskRegistry.get(name)
        provider = Task(
            bounded,
            source=task.source,
            output_features=task.output_features,
            preprocessors=list(task.preprocessors),
            postprocess_fn=task.postprocessor,
            metric_fns=task.metric_fns,
            shuffle_buffer_size=task.shuffle_buffer_size,
        )
        provider.most_epochs = epochs
        copy_attributes(provider, task)
        seqio.TaskRegistry.add_provider(bounded, provider)
    return bounded
