"""Offline caches: their folders, and tasks that read finished examples.

There are two kinds, by the position of `seqio.CacheDatasetPlaceholder` among the preprocessors:

- After tokenization, as in `corpora.add`. The cache holds the documents' ids; corruption is redrawn
  every epoch. Set USE_CACHED_TASKS = True with the task's own name.
- At the end, as in `add_pregenerated`. The cache holds finished examples of a number of epochs;
  training reads the same bytes everywhere. The lengths are part of the task's name, as in
  `seqio.experimental.add_fully_cached_task`.

      cached.add_pregenerated("ro_mini_span_corruption", {"inputs": 128, "targets": 29})
      # MIXTURE_OR_TASK_NAME = 'ro_mini_span_corruption_i128_t29', USE_CACHED_TASKS = True

seqio keeps a cache of fewer than 10,000 examples per shard in memory, in the order of its first
reading; then only the shuffle buffer varies the epochs.

Both are made by `python -m tasks.cache`, and are found in `tasks.cache.folders.paths` (gin) and
the folders of `seqio.add_global_cache_dirs`.
"""

import copy
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import seqio
import tensorflow as tf
from absl import logging

import gin
from common import arguments
from common.errors import UserError
from common.tables import CheckResult
from tasks import purpose
from tasks.corpus.overview import overview
from tasks.corpus.source import EPOCHS, PARTS, CorpusSource


@gin.configurable(module="tasks.cache")
def folders(paths: str | Sequence[str] = ()) -> list[str]:
    """Return the folders that hold caches, local or gs://; raise UserError for another address."""
    found = [paths] if isinstance(paths, str) else list(paths)
    for path in found:
        arguments.check_address("tasks.cache.folders.paths", path)
    return found


class Task(seqio.Task):
    """A seqio.Task that also looks for its cache in `folders()`."""

    evaluates = False  # whether its examples only measure a model
    # Whether TensorFlow rewrites the preprocessors' Python branches on tensors. Ours have none, and
    # the search for them takes seconds.
    needs_autograph = False

    def for_evaluation(self) -> "Task":
        """Return this task for examples that are not trained on; see `purpose.Purpose`."""
        found = copy.copy(self)
        found.evaluates = True
        return found

    def look(
        self, split: str, lengths: Mapping[str, int] | None = None, pack: bool = True
    ) -> list[CheckResult]:
        """Return what a sample of a split shows as lines of a table; see `tasks.look.table`."""
        from tasks.look import figures, table  # which reads the objectives

        return table.rows(figures.look(self, split, lengths=lengths, pack=pack))

    def understood(self, split: str) -> str:
        """Return what was understood of a split of its corpus, "" if that cannot be said."""
        if not isinstance(self.source, CorpusSource):
            return ""
        found = overview(self.source, split)
        if found.looks_like:
            known = (self.source.name, found.looks_like, found.to_set)
            logging.warning("corpus %s: %s: set %s", *known)
        return str(found)

    @property
    def cache_dir(self) -> str | None:
        """The folder of this task's cache, None if there is none."""
        seqio.add_global_cache_dirs(folders())
        return super().cache_dir

    def get_dataset(self, sequence_length=None, split="train", *args, **kwargs):
        """Return seqio.Task's dataset, whose preprocessors know its `purpose`.

        A source that can repeat itself exactly does so, instead of its dataset being repeated.
        """
        make = functools.partial(super().get_dataset, sequence_length, split, *args)
        if not self.needs_autograph:
            make = tf.autograph.experimental.do_not_convert(make)
        epochs, seed = kwargs.get("num_epochs", 1), kwargs.get("seed")
        shard = kwargs.get("shard_info")
        is_shuffled = kwargs.get("shuffle", not args) and not kwargs.get("use_cached", False)
        order = getattr(self.source, "order", None)
        trained = not self.evaluates and (epochs is None or purpose.current().trained)
        shards = shard.num_shards if shard else 1
        counter = getattr(self.source, "counter", None)
        with purpose.of(split=split, shards=shards, trained=trained, counter=counter):
            if epochs == 1 or seed is None or not is_shuffled or not order:
                return make(**kwargs)
            if (found := order(split)) == PARTS:
                return make(**kwargs)
            # A buffer of 1 mixes nothing.
            kwargs |= {"num_epochs": 1} | ({"shuffle_buffer_size": 1} if found == EPOCHS else {})
            with self.source.repeated(epochs):
                return make(**kwargs)

    def assert_cached(self) -> None:
        """Raise UserError, with the folders searched and how to make it, without a cache."""
        if not self.cache_dir:
            task, lengths = getattr(self, "made_from", (self.name, {}))
            pairs = ",".join(f"{feature}={n}" for feature, n in lengths.items())
            raise UserError(
                f"task {self.name} has no finished cache in "
                f"{seqio.utils.get_global_cache_dirs() or 'any folder'}: make it with `python -m "
                f"tasks.cache --task {task}{' --lengths ' if pairs else ''}{pairs} --out FOLDER` "
                "and set tasks.cache.folders.paths to that folder"
            )


def note(task: seqio.Task, made_from: seqio.Task) -> None:
    """Give a task what is known of the one whose preprocessors it has: its labels, its prefix."""
    task.needs_autograph = getattr(made_from, "needs_autograph", True)
    for name in vars(made_from).keys() & {"labels", "prefix"}:
        setattr(task, name, getattr(made_from, name))


def pregenerated_name(task: str, lengths: Mapping[str, int]) -> str:
    """Return the name of a task whose finished examples have these lengths, such as task_i64_t14.

    Each feature is shortened to the shortest beginnings by which all differ.
    """
    shared = (n for n in itertools.count() if len({name[:n] for name in lengths}) == len(lengths))
    n = next(shared)
    return f"{task}_{'_'.join(f'{name[:n]}{length}' for name, length in lengths.items())}"


def add_pregenerated(task: str, lengths: Mapping[str, int]) -> seqio.Task:
    """Register a task whose finished examples, of exactly these lengths, are read from a cache."""
    name = pregenerated_name(task, lengths)
    if name in seqio.TaskRegistry.names():
        return seqio.TaskRegistry.get(name)
    made_from = seqio.TaskRegistry.get(task)
    steps = [s for s in made_from.preprocessors if not isinstance(s, seqio.CacheDatasetPlaceholder)]
    added = seqio.TaskRegistry.add(
        name,
        source=made_from.source,
        preprocessors=[
            *(_with_lengths(step, lengths) for step in steps),
            _with_lengths(seqio.utils.trim_dataset, lengths),
            seqio.CacheDatasetPlaceholder(required=True),
            functools.partial(_check_lengths, lengths=lengths, task=name),
        ],
        output_features=made_from.output_features,
        postprocess_fn=made_from.postprocessor,
        metric_fns=made_from.metric_fns,
        shuffle_buffer_size=made_from.shuffle_buffer_size,
        task_cls=Task,
    )
    added.made_from = (task, dict(lengths))
    note(added, made_from)
    return added


def _with_lengths(step: Callable, lengths: Mapping[str, int]) -> Callable:
    """Bind `sequence_length`, which seqio does not pass to preprocessors before a cache."""

    def bound(dataset, output_features):
        given = {"sequence_length": dict(lengths), "output_features": output_features}
        return seqio.utils.add_kwargs_to_transform(step, **given)(dataset)

    return bound


def _check_lengths(dataset, sequence_length, lengths, task):
    if sequence_length is not None and dict(sequence_length) != dict(lengths):
        raise UserError(
            f"task {task} holds examples made for {dict(lengths)}, but TASK_FEATURE_LENGTHS is "
            f"{dict(sequence_length)}: set it to the former, or make another cache"
        )
    return dataset
