"""The task of all tasks: a `seqio.Task` that finds its cache and repeats its source exactly.

seqio.TaskRegistry.add(name, source=…, preprocessors=[…], task_cls=Task)

A cache is found in `tasks.cache.folders.paths` (gin) and the folders of
`seqio.add_global_cache_dirs`.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import seqio
import tensorflow as tf

import gin
from common import arguments
from common.errors import UserError
from common.tables import CheckResult
from tasks import purpose
from tasks.corpus.source import EPOCHS, PARTS


@gin.configurable(module="tasks.cache")
def folders(paths: str | Sequence[str] = ()) -> list[str]:
    """Return the folders that hold caches, local or gs://; raise UserError for another address."""
    found = [paths] if isinstance(paths, str) else list(paths)
    for path in found:
        arguments.check_address("tasks.cache.folders.paths", path)
    return found


class View(NamedTuple):
    """The functions behind `Task.look` and `Task.understood`."""

    look: Callable[[seqio.Task, str, Mapping[str, int] | None, bool], list[CheckResult]]
    understood: Callable[[seqio.Task, str], str]


class Task(seqio.Task):
    """A seqio.Task that also looks for its cache in `folders()`."""

    # `tasks.corpora` sets it for all tasks: what shows a corpus knows tasks, and not the reverse.
    view = View(look=lambda *_: [], understood=lambda *_: "")

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
        """Return what a sample of a split shows as lines of a table; see `tasks.look.lines`."""
        return self.view.look(self, split, lengths, pack)

    def understood(self, split: str) -> str:
        """Return what was understood of a split of its corpus, "" if that cannot be said."""
        return self.view.understood(self, split)

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
