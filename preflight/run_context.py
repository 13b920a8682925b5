"""The run that the checks look at: its settings, its slice, and its files.

    context = RunContext(recipe.load(recipe), slices.find("v4-8"), offline=False)
    context.start.step, context.steps_left, context.look["pieces"].figure

A remote file is read only if the network is allowed and answers; else `NotChecked` is raised.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import functools
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlparse

import seqio

from common.source import Source
from common.tables import CheckResult, NotChecked
from common.threads import in_thread
from preflight.aot import recipe, recipe_step
from preflight.aot.slices import Slice
from t5x.checkpointing import layout
from t5x.checkpointing.config import checkpoint_paths
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.packing import Arrays
from t5x.input_pipeline.stream import examples_and_rows, shard_count
from t5x.partitioning import PjitPartitioner
from t5x.start.checkpoint import Start
from t5x.trainer import Trainer
from tasks import vocabularies
from tasks.corpus.catalog import Unreachable
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.hub import Offline
from tasks.corpus.storage.retry import RetryPolicy
from tasks.look import lines, sampling
from tasks.objectives import registry
from tasks.objectives.base import Objective

T = TypeVar("T")
DOCUMENTS, ROWS = 200, 16  # documents and rows of the sample
TIMEOUT_S = 60.0
_RETRY_POLICY = RetryPolicy(limit_s=30.0)
_HOSTS = {"gs": "storage.googleapis.com"}
_CONNECT_S = 5.0


def is_remote(path: str) -> bool:
    """Return whether `path` is not a path of this machine."""
    return "://" in path


def is_local(source: Any) -> bool:
    """Return whether a source reads only files of this machine, or no files."""
    if isinstance(source, CorpusSource):
        return source.is_local
    return isinstance(source, seqio.FunctionDataSource)


class RunContext:
    """A run, as `recipe.load` returns it, and its slice; `offline` accesses no network."""

    def __init__(self, run: argparse.Namespace, tpu: Slice, offline: bool = False):
        self.run, self.tpu, self.offline = run, tpu, offline
        self._unreachable: dict[str, str] = {}  # reasons, by name of the corpus

    # --- settings

    @property
    def data(self) -> DatasetConfig:
        """The training data."""
        return self.run.train_dataset_cfg

    @property
    def datasets(self) -> dict[str, DatasetConfig]:
        """All datasets of the run, by gin scope."""
        return recipe.datasets(self.run)

    @functools.cached_property
    def trainer(self) -> Trainer:
        """The trainer on one device of this machine, for its settings and its state's shapes."""
        return recipe_step.trainer_of(self.run)

    @functools.cached_property
    def partitioner(self) -> PjitPartitioner:
        """The run's partitioner over the devices of the slice; its `mesh` raises UserError."""
        return self.run.partitioner.over(self.tpu.devices())

    @property
    def shards(self) -> int:
        """The number of virtual shards of the training data."""
        return shard_count(self.data.batch_size, self.tpu.hosts)

    @property
    def start(self) -> Start:
        """The checkpoint that the run starts from, as far as it is known without the network."""
        folder, restore = self.run.model_dir, self.run.checkpoint_cfg.restore
        if not is_remote(folder) and (newest := layout.latest_checkpoint(folder)):
            return Start(newest, None)
        if not (restore and restore.paths):
            return Start(None, None)
        path = restore.paths[0]
        if not is_remote(path):
            with contextlib.suppress(ValueError):  # it does not exist, which another check reports
                path = checkpoint_paths(restore)[0]
        return Start(path, restore)

    @property
    def steps_left(self) -> int:
        """Steps from the start to the end."""
        return max(self.run.total_steps - self.start.step, 0)

    def tasks(self, cfg: DatasetConfig) -> list[seqio.Task]:
        """Return a dataset's tasks; raise NotChecked if one is missing, which `task` reports."""
        try:
            return list(seqio.get_subtasks(cfg.provider))
        except ValueError as error:
            raise NotChecked(f"there is no task {cfg.mixture_or_task_name}") from error

    @property
    def task(self) -> seqio.Task:
        """The task trained on; the first one of a mixture."""
        return self.tasks(self.data)[0]

    @property
    def corpora(self) -> list[CorpusSource]:
        """The corpora that are trained on, of all tasks; raise the NotChecked of `splits`."""
        tasks = [task for task in self.tasks(self.data) if self.data.split in self.splits(task)]
        return [task.source for task in tasks if isinstance(task.source, CorpusSource)]

    @property
    def objective(self) -> Objective | None:
        """The task's objective, None unless it is one of `tasks.objectives`."""
        return registry.objective_of(self.task)

    # --- files, which may be remote

    def require_reachable(self, path: str) -> None:
        """Raise NotChecked if `path` is remote and cannot, or must not, be accessed."""
        if not is_remote(path):
            return
        if self.offline:
            raise NotChecked(f"{path} is remote, and --offline is set")
        address = urlparse(path)
        host = _HOSTS.get(address.scheme, address.hostname or "")
        try:
            socket.create_connection((host, 443), _CONNECT_S).close()
        except OSError as error:
            raise NotChecked(f"{path}: {host} cannot be reached from here ({error})") from error

    def require_vocabulary(self) -> seqio.Vocabulary:
        """Return the task's vocabulary; raise NotChecked if its file is missing or remote."""
        vocabulary = self.task.output_features["targets"].vocabulary
        if path := vocabularies.file_of(vocabulary):
            self.require_reachable(path)
            if not is_remote(path) and not Path(path).is_file():
                raise NotChecked(f"there is no vocabulary {path}")
        return vocabulary

    def read(self, source: Any, function: Callable[[], T]) -> T:
        """Return `function()`, which reads `source`.

        Raise NotChecked if the source is remote and must not, or cannot, be read. A source that has
        not answered is not asked again.
        """
        name = source.name if isinstance(source, Source) else type(source).__name__
        if self.offline and not is_local(source):
            raise NotChecked(f"the corpus {name} is remote, and --offline is set")
        if name in self._unreachable:
            raise NotChecked(self._unreachable[name])
        try:
            return answer_within(TIMEOUT_S, function, f"the corpus {name}")
        except NotChecked as error:
            self._unreachable[name] = str(error)
            raise

    def splits(self, task: seqio.Task) -> Sequence[str]:
        """Return the names of a task's splits; `in` also finds a slice of one.

        Raise NotChecked if only a remote corpus knows the names, and it cannot be asked.
        """
        source = task.source
        if isinstance(source, CorpusSource) and not source.catalog.knows_splits:
            return self.read(source, lambda: source.splits)
        return task.splits or ()

    def list_files(self) -> list[CorpusFile]:
        """Return the files of the split trained on, or raise NotChecked."""
        source = self.task.source
        if not isinstance(source, CorpusSource):
            raise NotChecked(f"{type(source).__name__} does not list its files")
        return self.read(source, lambda: source.list_files(self.data.split, _RETRY_POLICY))

    @functools.cached_property
    def look(self) -> dict[str, CheckResult]:
        """What a sample of the split trained on shows, by `tasks.look.lines.NAMES`.

        Raise UserError for a task that makes no examples.
        """
        self.require_vocabulary()
        task, split = self.task, self.data.split
        lengths, pack = self.data.task_feature_lengths, self.data.pack
        rows = self.read(task.source, lambda: lines.look(task, split, lengths, pack))
        return {row.check: row for row in rows}

    @functools.cached_property
    def rows(self) -> Arrays:
        """Rows of the model's features, made from the first documents as in training."""
        self.require_vocabulary()
        task, split = self.task, self.data.split

        def read_rows() -> Arrays:
            documents = sampling.first_documents(task.source, split, DOCUMENTS)
            columns = {name: [row[name] for row in documents] for name in documents[0]}
            sampled = sampling.task_over(task, columns, split)
            cfg = dataclasses.replace(
                self.data, mixture_or_task_name=sampled, shuffle=False, use_cached=False
            )
            converter, shard = self.run.model.FEATURE_CONVERTER_CLS, seqio.ShardInfo(0, 1)
            examples, rows = examples_and_rows(cfg, converter, shard, 0, [sampled.name], 1)
            while rows.complete < ROWS and (some := examples.take(0, ROWS)) is not None:
                rows.add(some)
            # Those at the end of the sample are not as full as the others.
            if not rows.complete:
                rows.end()
            return rows.first(rows.complete)

        rows = self.read(task.source, read_rows)
        if not len(next(iter(rows.values()))):
            raise NotChecked("the sample gives no row: its documents are too short")
        return rows


def answer_within(seconds: float, function: Callable[[], T], what: str) -> T:
    """Return `function()`, or raise NotChecked if it takes longer or the network is unreachable."""
    answer = in_thread(function, what)
    concurrent.futures.wait([answer], seconds)
    if not answer.done():
        raise NotChecked(f"{what} has not answered within {seconds:.0f} s")
    try:
        return answer.result()
    except (Unreachable, Offline) as error:  # the run is not at fault
        raise NotChecked(error.fault) from error
