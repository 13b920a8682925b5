"""The class of all tasks here: a seqio task that tells its steps how, and for what, it is read.

    seqio.TaskRegistry.add(name, source=…, preprocessors=[…], task_cls=Task)

`get_dataset` passes a `common.source.Reading` to the source, if that is a `common.source.Source`,
and to each preprocessor that has a parameter `reading`. If the source can repeat itself exactly,
it does so, instead of seqio. A task looks for its cache in `tasks.cache.folders.paths` (gin) and
in the folders of `seqio.add_global_cache_dirs`.
"""

import contextlib
import dataclasses
import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import seqio
import tensorflow as tf

import gin
from common import arguments, small_files
from common.errors import UserError
from common.source import EPOCHS, PARTS, CorpusTask, PlainSource, Reading, Source, source_of
from common.tables import CheckResult
from tasks import vocabularies


@gin.configurable(module="tasks.cache")
def folders(paths: str | Sequence[str] = ()) -> list[str]:
    """Return the folders that hold caches, local or gs://; raise UserError for another address."""
    addresses = [paths] if isinstance(paths, str) else list(paths)
    for path in addresses:
        arguments.check_address("tasks.cache.folders.paths", path)
    return addresses


class View(NamedTuple):
    """The functions behind `Task.look`, `Task.describe_corpus` and `Task.row_tokens`."""

    look: Callable[[seqio.Task, str, Mapping[str, int] | None, bool], list[CheckResult]]
    describe_corpus: Callable[[seqio.Task, str], str]
    row_tokens: Callable[[seqio.Task, Mapping[str, int]], float | None]


class Original(NamedTuple):
    """The task whose finished examples a pregenerated task reads, and their lengths."""

    task: str
    lengths: Mapping[str, int]


class Task(CorpusTask):
    """A seqio.Task that also looks for its cache in `folders()`."""

    # `tasks.corpora` sets it for all tasks, since the modules that show a corpus import this one.
    view = View(lambda *_: [], lambda *_: "", lambda *_: None)

    made_from: Original | None = None  # None unless it is pregenerated
    # Whether TensorFlow rewrites the preprocessors' Python branches on tensors. Ours have none, and
    # the search for them takes seconds.
    needs_autograph = False

    def look(
        self, split: str, lengths: Mapping[str, int] | None = None, pack: bool = True
    ) -> list[CheckResult]:
        """Return what a sample of a split shows as lines of a table; see `tasks.look.lines`."""
        return self.view.look(self, split, lengths, pack)

    def describe_corpus(self, split: str) -> str:
        """Return a sentence on how a split of its corpus is read, "" if there is none."""
        return self.view.describe_corpus(self, split)

    def row_tokens(self, lengths: Mapping[str, int]) -> float | None:
        """Return how many tokens of the corpus fill a row of these lengths, None if it varies."""
        return self.view.row_tokens(self, lengths)

    @property
    def cache_dir(self) -> str | None:
        """The folder of this task's cache, None if there is none."""
        seqio.add_global_cache_dirs(folders())
        return super().cache_dir

    def get_dataset(
        self,
        sequence_length: Mapping[str, int] | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = True,
        shuffle_buffer_size: int | None = None,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        num_epochs: int | None = 1,
        trim_output_features: bool = True,
        try_in_mem_cache: bool = True,
    ) -> tf.data.Dataset:
        """Return seqio.Task's dataset, whose source and preprocessors get its `Reading`.

        A source that can repeat itself exactly does so, instead of its dataset being repeated. It
        numbers its epochs: a dataset that `Dataset.repeat` repeats after `Dataset.map` in parallel
        may lose the number of the next epoch if its position is saved near the end of one.
        """
        if num_epochs is None:
            num_epochs = self.most_epochs
        source_epochs: int | None = 1
        order = None
        if num_epochs != 1 and seed is not None and shuffle and not use_cached:
            order = source_of(self).order(split)
        if order and order != PARTS:
            source_epochs, num_epochs = num_epochs, 1
        if order == EPOCHS:
            shuffle_buffer_size = 1  # mixes nothing
        reading = Reading(
            split=split,
            shards=shard_info.num_shards if shard_info else 1,
            epochs=source_epochs,
            counter=source_of(self).counter,
        )
        if use_cached and self.supports_caching:
            self.assert_cached()
        make: Callable = self._of_reading(reading).get_dataset
        if not self.needs_autograph:
            make = tf.autograph.experimental.do_not_convert(make)
        return make(
            sequence_length,
            split,
            use_cached=use_cached,
            shuffle=shuffle,
            shuffle_buffer_size=shuffle_buffer_size,
            seed=seed,
            shard_info=shard_info,
            num_epochs=num_epochs,
            trim_output_features=trim_output_features,
            try_in_mem_cache=try_in_mem_cache,
        )

    def _of_reading(self, reading: Reading) -> seqio.Task:
        """Return the plain seqio task whose source and preprocessors are bound to a reading."""
        is_placeholder = lambda step: isinstance(step, seqio.CacheDatasetPlaceholder)
        bind = lambda step: seqio.utils.add_kwargs_to_transform(step, reading=reading)
        takes_reading = isinstance(self.source, Source)
        return seqio.Task(
            self.name,
            source=_ReadSource(self.source, reading) if takes_reading else self.source,
            preprocessors=[s if is_placeholder(s) else bind(s) for s in self.preprocessors],
            output_features=self.output_features,
            shuffle_buffer_size=self.shuffle_buffer_size,
        )

    def assert_cached(self) -> None:
        """Raise UserError, with how to make one, without a cache of this task's settings."""
        task, lengths = self.made_from or (self.name, {})
        pairs = ",".join(f"{feature}={n}" for feature, n in lengths.items())
        to_set = (
            f"make it with `python -m tasks.cache --module MODULE --task {task}"
            f"{' --lengths ' if pairs else ''}{pairs} --out FOLDER`, where MODULE registers "
            "the task, and set tasks.cache.folders.paths to that folder"
        )
        if not (folder := self.cache_dir):
            searched = seqio.utils.get_global_cache_dirs() or "any folder"
            raise UserError(
                f"task {self.name}", why=f"has no finished cache in {searched}", to_set=to_set
            )
        job = f"{folder}/job.json"
        if tf.io.gfile.exists(job):  # a cache that seqio has made has none
            with small_files.parsing(job, "remove this cache and make it again"):
                saved = small_files.read_json(job)
                cached, before = saved.get("vocabularies"), dict(saved.get("settings") or {})
            if cached and cached != vocabularies.contents(self):
                why = f"would read ids of another vocabulary from its cache in {folder}"
                to_set = f"set the vocabulary of the cache, or remove the cache and {to_set}"
                raise UserError(f"task {self.name}", why=why, to_set=to_set)
            now = cached_settings(self)
            for name in sorted(before.keys() & now.keys()):
                if before[name] != now[name]:
                    why = f"has {name} {now[name]!r}, and its cache in {folder} was made with "
                    why += f"{before[name]!r}"
                    to_set = f"set {name} to that, or remove the cache and {to_set}"
                    raise UserError(f"task {self.name}", why=why, to_set=to_set)


def cached_settings(task: seqio.Task) -> dict[str, Any]:
    """Return the arguments, as JSON holds them, of the steps whose result a task's cache holds.

    Of finished examples these are all steps, and the fields of the objective. What JSON cannot
    hold, such as a function, is left out, and so is what the steps' own code says.
    """
    steps: Iterable[Callable] = task.preprocessors
    made_from = task.made_from if isinstance(task, Task) else None
    if made_from:
        steps = seqio.TaskRegistry.get(made_from.task).preprocessors
    is_before = lambda step: not isinstance(step, seqio.CacheDatasetPlaceholder)
    steps = filter(is_before, steps) if made_from else itertools.takewhile(is_before, steps)
    settings: dict[str, Any] = {}
    for step in steps:
        with contextlib.suppress(TypeError, ValueError):  # a step without a signature
            parameters = inspect.signature(step).parameters.values()
            settings |= {p.name: p.default for p in parameters if p.default is not p.empty}
        objective = getattr(getattr(step, "func", step), "__self__", None)
        if made_from and dataclasses.is_dataclass(objective) and not isinstance(objective, type):
            settings |= {"objective": type(objective).__name__, **dataclasses.asdict(objective)}
    plain: dict[str, Any] = {}
    for name, value in settings.items():
        with contextlib.suppress(TypeError, ValueError):
            plain[name] = json.loads(json.dumps(value))
    return plain


class _ReadSource(PlainSource):
    """A source for seqio, with a reading that seqio does not pass on."""

    def __init__(self, source: Source, reading: Reading):
        super().__init__(source)
        self._opened, self._reading = source, reading

    def get_dataset(self, split="train", shuffle=True, seed=None, shard_info=None):
        shard = shard_info or seqio.ShardInfo(0, 1)
        asked = {"split": split, "shuffle": shuffle, "seed": seed}
        shares = {"shard": shard.index, "shards": shard.num_shards}
        return self._opened.open(split, dataclasses.replace(self._reading, **asked, **shares))


def copy_attributes(task: Task, original: seqio.Task) -> None:
    """Give a task the labels, prefix and open rows of the task whose preprocessors it has."""
    task.needs_autograph = True
    if isinstance(original, Task):
        task.needs_autograph = original.needs_autograph
        task.labels, task.prefix = original.labels, original.prefix
        task.open_rows = original.open_rows
