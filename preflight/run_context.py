"""The run that the checks look at: its settings, its slice, and a sample of its corpus."""

import argparse
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import seqio

from common.tables import NotChecked
from preflight import reachability
from preflight.aot import recipe_step
from preflight.aot.slices import Slice
from t5x.checkpointing import layout
from t5x.checkpointing.config import checkpoint_paths
from t5x.input_pipeline import batches
from t5x.input_pipeline.config import DatasetConfig
from tasks.corpus import files
from tasks.corpus.files import CorpusFile
from tasks.corpus.retry import RetryPolicy
from tasks.corpus.source import CorpusSource
from tasks.look.sampling import normalized, task_over
from tasks.objectives import registry
from tasks.objectives.base import Objective

T = TypeVar("T")
DOCUMENTS, ROWS = 200, 16  # of the sample
_MOST_REQUESTS = 100  # for sizes of remote files
_TIMEOUT_S = 60.0
_RETRY_POLICY = RetryPolicy(limit_s=30.0)


class RunContext:
    """A run, as `recipe.load` returns it, and its slice; `offline` accesses no network."""

    def __init__(self, run: argparse.Namespace, tpu: Slice, offline: bool = False):
        self.run, self.tpu, self.offline = run, tpu, offline
        self._unreachable: dict[str, str] = {}  # reasons, by name of the corpus

    @property
    def data(self) -> DatasetConfig:
        """The training data."""
        return self.run.train_dataset_cfg

    @property
    def datasets(self) -> dict[str, DatasetConfig]:
        """All datasets of the run, by gin scope."""
        scopes = ("train", "train_eval", "infer_eval")
        found = {scope: getattr(self.run, f"{scope}_dataset_cfg") for scope in scopes}
        return {scope: cfg for scope, cfg in found.items() if cfg is not None}

    @functools.cached_property
    def microbatches(self) -> int:
        """See `trainer.Trainer.num_microbatches`."""
        return recipe_step.bare_trainer(self.run).num_microbatches

    @property
    def shards(self) -> int:
        """The number of virtual shards of the training data, see `t5x.input_pipeline.batches`."""
        return math.lcm(math.gcd(self.data.batch_size, batches.SHARDS), self.tpu.hosts)

    @property
    def own_step(self) -> int | None:
        """The step of the run's newest checkpoint, None if this machine has none."""
        if reachability.is_remote(self.run.model_dir):
            return None
        return layout.latest_step(self.run.model_dir)

    @property
    def restored_step(self) -> int | None:
        """The step of the checkpoint that a new run starts from, None if it is unknown here."""
        restore = self.run.checkpoint_cfg.restore
        if not (restore and restore.path):
            return 0
        first = restore.path if isinstance(restore.path, str) else restore.path[0]
        if reachability.is_remote(first):
            return layout.step_of(first)
        try:
            return layout.step_of(checkpoint_paths(restore)[0])
        except ValueError:  # it does not exist, which another check reports
            return layout.step_of(first)

    @property
    def first_step(self) -> int:
        """The step at which the run starts, as far as it is known here."""
        return (self.restored_step or 0) if self.own_step is None else self.own_step

    @property
    def steps_left(self) -> int:
        """Steps from there to the end."""
        return max(self.run.total_steps - self.first_step, 0)

    def tasks(self, cfg: DatasetConfig) -> list[seqio.Task]:
        """Return a dataset's tasks, or raise NotChecked: another check reports missing ones."""
        try:
            return list(seqio.get_subtasks(cfg.provider))
        except ValueError as error:
            raise NotChecked(f"there is no task {cfg.mixture_or_task_name}") from error

    @property
    def task(self) -> seqio.Task:
        """The task trained on; the first one of a mixture."""
        return self.tasks(self.data)[0]

    @property
    def objective(self) -> Objective | None:
        """The task's objective, None if it has none of `tasks.objectives`."""
        return registry.objective_of(self.task)

    def read(self, source: Any, function: Callable[[], T]) -> T:
        """Return `function()`, which reads `source`.

        Raise NotChecked if the source is remote and must not, or cannot, be read. One that has not
        answered is not asked again.
        """
        name = getattr(source, "name", type(source).__name__)
        if self.offline and not is_local(source):
            raise NotChecked(f"the corpus {name} is remote, and --offline is set")
        if name in self._unreachable:
            raise NotChecked(self._unreachable[name])
        try:
            return reachability.answer_within(_TIMEOUT_S, function, f"the corpus {name}")
        except NotChecked as error:
            self._unreachable[name] = str(error)
            raise

    def list_files(self) -> list[CorpusFile]:
        """Return the files of the split trained on, or raise NotChecked."""
        source = self.task.source
        if not isinstance(source, CorpusSource):
            raise NotChecked(f"{type(source).__name__} does not list its files")
        return self.read(source, lambda: source.list_files(self.data.split, _RETRY_POLICY))

    @functools.cached_property
    def file_sizes(self) -> list[int]:
        """The bytes of the files of the split trained on."""
        found = self.list_files()
        if sum(file.remote and file.length is None for file in found) > _MOST_REQUESTS:
            raise NotChecked(f"the sizes of {len(found)} remote files would have to be requested")
        sizes = self.read(self.task.source, lambda: [files.size(file) for file in found])
        known = [size for size in sizes if size is not None]
        if len(known) < len(found):
            raise NotChecked("the server does not report the files' sizes")
        return known

    def require_vocabulary(self) -> seqio.Vocabulary:
        """Return the task's vocabulary, or raise NotChecked; another check reports its file."""
        vocabulary = self.task.output_features["targets"].vocabulary
        path = getattr(vocabulary, "sentencepiece_model_file", None)
        if path:
            reachability.require_reachable(path, self.offline)
            if not reachability.is_remote(path) and not Path(path).is_file():
                raise NotChecked(f"there is no vocabulary {path}")
        return vocabulary

    @functools.cached_property
    def sample_texts(self) -> list[str]:
        """The first documents of the corpus."""
        source = self.task.source
        if not hasattr(source, "peek"):
            raise NotChecked(f"{type(source).__name__} shows no documents")
        return self.read(source, lambda: source.peek(self.data.split, DOCUMENTS))

    @functools.cached_property
    def sample_tokens(self) -> tuple[list[str], list[list[int]]]:
        """The texts of the sample as the task normalizes them, and their ids."""
        vocabulary = self.require_vocabulary()
        texts = [normalized(self.task, text) for text in self.sample_texts]
        return texts, [vocabulary.encode(text) for text in texts]

    @functools.cached_property
    def sample_rows(self) -> list[dict[str, np.ndarray]]:
        """Rows of the model's features, made from `sample_texts` by the task's preprocessors."""
        self.require_vocabulary()
        task, split = self.task, self.data.split
        if hasattr(task.source, "peek"):
            features: dict[str, Any] = {"text": self.sample_texts}
            if peek := getattr(task.source, "peek_features", None):  # a source of several columns
                features = self.read(task.source, lambda: peek(split, DOCUMENTS))
            task = task_over(task, features, split)

        def read_rows() -> list[dict[str, np.ndarray]]:
            dataset = seqio.get_dataset(
                task,
                self.data.task_feature_lengths,
                dataset_split=split,
                feature_converter=self.run.model.FEATURE_CONVERTER_CLS(pack=self.data.pack),
                shuffle=False,
                num_epochs=1,
                seed=0,
                verbose=False,
            )
            return list(dataset.take(ROWS + 1).as_numpy_iterator())

        rows = self.read(self.task.source, read_rows)
        if not rows:
            raise NotChecked("the sample gives no row: its documents are too short")
        # The last row is where the sample ends: it is not as full as the others.
        return rows[: max(len(rows) - 1, 1)]


def is_local(source: Any) -> bool:
    """Return whether a source reads only files of this machine, or no files."""
    if isinstance(source, CorpusSource):
        return source.is_local
    return isinstance(source, seqio.FunctionDataSource)
