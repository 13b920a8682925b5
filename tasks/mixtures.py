"""Mixtures: several corpora as one stream, with rates and a maximum of epochs.

    add("ro_mix", {"ro_web": 120e9, "ro_books": 4e9, "ro_wiki": 0.5e9}, temperature=3.0,
        epochs={"ro_wiki": 4})

The mixture is then MIXTURE_OR_TASK_NAME = 'ro_mix'. The corpus of each example is drawn from the
run's seed; the data position includes that draw and the position in each corpus.
"""

import functools
from collections.abc import Mapping

import seqio
import tensorflow as tf

from common.errors import UserError
from tasks import purpose
from tasks.cache import cached


class BoundedTask(cached.Task):
    """A task whose training split ends after `epochs` epochs, also where it is repeated."""

    def __init__(self, *args, epochs: int, **kwargs):
        super().__init__(*args, **kwargs)
        self._epochs = epochs

    def get_dataset(
        self, sequence_length=None, split="train", *args, num_epochs: int | None = 1, **kwargs
    ):
        """Return cached.Task's dataset, but with `epochs` epochs instead of infinitely many."""
        trained = num_epochs is None
        if split == "train" and trained:
            num_epochs = self._epochs
        with purpose.of(trained=trained):
            return super().get_dataset(
                sequence_length, split, *args, num_epochs=num_epochs, **kwargs
            )


class RatedMixture(seqio.Mixture):
    """A mixture whose tasks know their rates; see `purpose.Purpose`."""

    def get_task_dataset(self, task: seqio.Task, *args, **kwargs) -> tf.data.Dataset:
        """Return seqio.Mixture's dataset of one task."""
        with purpose.of(rate=self.get_rate(task) / self.total_rate):
            return super().get_task_dataset(task, *args, **kwargs)


def rates_of(sizes: Mapping[str, float], temperature: float = 1.0) -> dict[str, float]:
    """Return the share of each corpus, in proportion to size ** (1 / temperature).

    At temperature 1 shares are proportional to sizes, at high temperatures equal; see Raffel et al.
    2020, section 3.5.2, arXiv:1910.10683.
    """
    if not temperature > 0:
        raise UserError(f"temperature is {temperature}, but must be above 0")
    if not sizes:
        raise UserError("a mixture needs at least one task: name it with its size or rate")
    for name, size in sizes.items():
        if not size > 0:
            raise UserError(f"task {name!r} has rate {size}, but must have one above 0")
    raised = {name: float(size) ** (1 / temperature) for name, size in sizes.items()}
    return {name: rate / sum(raised.values()) for name, rate in raised.items()}


def add(
    name: str,
    sizes: Mapping[str, float],
    temperature: float = 1.0,
    epochs: Mapping[str, int] | None = None,
) -> seqio.Mixture:
    """Register a mixture of registered tasks.

    `sizes` are documents, tokens or bytes of each task, all in one unit, or rates; `temperature`
    evens out the shares, see `rates_of`. `epochs` is how many times at most a task's corpus is
    read; the others then take over its share. When all have ended, so does the stream. Raise
    UserError for an unknown task, or an impossible size, temperature or number of epochs.
    """
    epochs, entries = epochs or {}, []
    for unknown in epochs.keys() - sizes.keys():
        raise UserError(f"mixture {name!r} bounds the epochs of {unknown!r}, which it lacks")
    for task, rate in rates_of(sizes, temperature).items():
        if task in epochs:
            task = _bounded(task, epochs[task])
        entries.append((task, rate))
    sample = functools.partial(
        tf.data.Dataset.sample_from_datasets, stop_on_empty_dataset=not epochs
    )
    return seqio.MixtureRegistry.add(name, entries, mixture_cls=RatedMixture, sample_fn=sample)


def _bounded(name: str, epochs: int) -> str:
    if not (isinstance(epochs, int) and epochs >= 1):
        raise UserError(f"epochs of task {name!r} is {epochs!r}, but must be an integer above 0")
    bounded = f"{name}_{epochs}_epochs"
    if bounded not in seqio.TaskRegistry.names():
        task = seqio.TaskRegistry.get(name)
        provider = BoundedTask(
            bounded,
            epochs=epochs,
            source=task.source,
            output_features=task.output_features,
            preprocessors=list(task.preprocessors),
            postprocess_fn=task.postprocessor,
            metric_fns=task.metric_fns,
            shuffle_buffer_size=task.shuffle_buffer_size,
        )
        provider.needs_autograph = cached.needs_autograph(task)
        seqio.TaskRegistry.add_provider(bounded, provider)
    return bounded
