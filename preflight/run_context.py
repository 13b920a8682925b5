"""What the checks look at: a run, the slice it is to run on, and a sample of its corpus.

subject = Subject(recipe.load(Recipe(("gin/ro_t5x_tiny.gin",))), slices.find("v4-8"))
subject.texts()       # documents of the corpus, read once
subject.rows()        # the same as the model would get them, packed
"""

import argparse
import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import seqio
import tensorflow as tf

from preflight import reachability
from preflight.aot import recipe_step
from preflight.aot.tpu_slices import Slice
from preflight.results import NotChecked
from t5x import batches
from t5x.checkpointing import layout
from t5x.checkpointing.config import checkpoint_paths
from t5x.input_pipeline.config import DatasetConfig
from tasks.objectives import registry
from tasks.sources import CorpusSource

T = TypeVar("T")
DOCUMENTS, ROWS = 200, 16  # of the sample
_LIMIT_S = 60.0


def _once(method: Callable) -> Callable:
    """A method whose answer, also where that is an exception, is kept."""

    @functools.wraps(method)
    def asked(self):
        if method.__name__ not in self._answers:
            try:
                self._answers[method.__name__] = (method(self), None)
            except Exception as error:
                self._answers[method.__name__] = (None, error)
        value, error = self._answers[method.__name__]
        if error is not None:
            raise error
        return value

    return asked


class Subject:
    """A run and where it is to run.

    Args:
      run: arguments of `t5x.train.train`, see `recipe.load`.
      tpu: the slice.
      offline: nothing is asked for over the network.
    """

    def __init__(self, run: argparse.Namespace, tpu: Slice, offline: bool = False):
        self.run, self.tpu, self.offline = run, tpu, offline
        self._silent: dict[str, str] = {}
        self._answers: dict[str, tuple[Any, Exception | None]] = {}

    @property
    def data(self) -> DatasetConfig:
        """What is trained on."""
        return self.run.train_dataset_cfg

    @property
    def datasets(self) -> dict[str, DatasetConfig]:
        """All that the run reads, by gin scope."""
        scopes = ("train", "train_eval", "infer_eval")
        found = {scope: getattr(self.run, f"{scope}_dataset_cfg") for scope in scopes}
        return {scope: cfg for scope, cfg in found.items() if cfg is not None}

    @functools.cached_property
    def microbatches(self) -> int:
        """See `trainer.Trainer.num_microbatches`."""
        return recipe_step.settings(self.run).num_microbatches

    @property
    def shards(self) -> int:
        """Virtual shards that the training data is cut into, see `t5x.batches`."""
        return math.lcm(math.gcd(self.data.batch_size, batches.SHARDS), self.tpu.hosts)

    @property
    def own_step(self) -> int | None:
        """The step of the run's own newest checkpoint, None where this machine has none."""
        if reachability.is_remote(self.run.model_dir):
            return None
        return layout.latest_step(self.run.model_dir)

    @property
    def first_step(self) -> int:
        """The step at which the run starts, as far as paths of this machine and names tell."""
        return (self.other_step or 0) if self.own_step is None else self.own_step

    @property
    def other_step(self) -> int | None:
        """The step of the checkpoint that a new run starts from, None where nothing here tells."""
        restore = self.run.checkpoint_cfg.restore
        if not (restore and restore.path):
            return 0
        first = restore.path if isinstance(restore.path, str) else restore.path[0]
        if reachability.is_remote(first):
            return layout.step_of(first)
        try:
            return layout.step_of(checkpoint_paths(restore)[0])
        except ValueError:  # none is there, as another check says
            return layout.step_of(first)

    @property
    def steps_left(self) -> int:
        """Steps from there to the end."""
        return max(self.run.total_steps - self.first_step, 0)

    def tasks(self, cfg: DatasetConfig) -> list[seqio.Task]:
        """The tasks of a dataset.

        Raises:
          NotChecked: they are not registered, which is another check's matter.
        """
        try:
            return list(seqio.get_subtasks(cfg.provider))
        except ValueError as error:
            raise NotChecked(f"there is no task {cfg.mixture_or_task_name}") from error

    @property
    def task(self) -> seqio.Task:
        """The task trained on; of a mixture the first."""
        return self.tasks(self.data)[0]

    @property
    def objective(self) -> registry.Objective | None:
        """How the task hides text, None where it has no objective of `tasks.objectives`."""
        return registry.of_task(self.task)

    def require_corpus(self, source: Any) -> None:
        """Raises NotChecked where `source` lies elsewhere and must not or cannot be read."""
        name = getattr(source, "name", type(source).__name__)
        if self.offline and not is_local(source):
            raise NotChecked(f"the corpus {name} lies elsewhere, and --offline is set")
        if name in self._silent:
            raise NotChecked(self._silent[name])

    def ask(self, source: Any, question: Callable[[], T]) -> T:
        """`question()` about `source`, unless it lies elsewhere and must not or cannot be read.

        One that has not answered once is not asked again.

        Raises:
          NotChecked: as `require_corpus`, or now is the first time that it does not answer.
        """
        self.require_corpus(source)
        name = getattr(source, "name", type(source).__name__)
        try:
            with reachability.answers():
                return reachability.within(_LIMIT_S, question, f"the corpus {name}")
        except NotChecked as error:
            self._silent[name] = str(error)
            raise

    def require_vocabulary(self) -> seqio.Vocabulary:
        """The task's vocabulary.

        Raises:
          NotChecked: its file is not here, which is another check's matter.
        """
        vocabulary = self.task.output_features["targets"].vocabulary
        path = getattr(vocabulary, "sentencepiece_model_file", None)
        if path:
            reachability.require(path, self.offline)
            if not reachability.is_remote(path) and not Path(path).is_file():
                raise NotChecked(f"there is no vocabulary {path}")
        return vocabulary

    @_once
    def texts(self) -> list[str]:
        """The first documents of the corpus."""
        source = self.task.source
        if not hasattr(source, "peek"):
            raise NotChecked(f"{type(source).__name__} shows no documents")
        return self.ask(source, lambda: source.peek(self.data.split, DOCUMENTS))

    @_once
    def rows(self) -> list[dict[str, np.ndarray]]:
        """Rows of the model's features, made of `texts` by the task's own preprocessors."""
        self.require_vocabulary()
        cfg, task = self.data, self.task
        if hasattr(task.source, "peek"):
            features = {"text": self.texts()}
            if peek := getattr(task.source, "peek_features", None):  # of several columns
                features = self.ask(task.source, lambda: peek(cfg.split, DOCUMENTS))
            slices = tf.data.Dataset.from_tensor_slices
            make = lambda split, shuffle_files=False, seed=None: slices(features)
            source = seqio.FunctionDataSource(make, [cfg.split])
            task = seqio.Task(
                task.name,
                source=source,
                preprocessors=task.preprocessors,
                output_features=task.output_features,
            )
        else:
            self.require_corpus(task.source)
        cfg = dataclasses.replace(cfg, mixture_or_task_name=task, shuffle=False, module=None)

        def read():
            dataset = seqio.get_dataset(
                cfg.provider,
                cfg.task_feature_lengths,
                dataset_split=cfg.split,
                feature_converter=self.run.model.FEATURE_CONVERTER_CLS(pack=cfg.pack),
                shuffle=False,
                num_epochs=1,
                seed=0,
                verbose=False,
            )
            return list(dataset.take(ROWS + 1).as_numpy_iterator())

        rows = reachability.within(_LIMIT_S, read, f"the task {task.name}")
        if not rows:
            raise NotChecked("the sample gives no row: its documents are too short")
        # The sample's end is no measure of how full rows are.
        return rows[: max(len(rows) - 1, 1)]


def is_local(source: Any) -> bool:
    """True where a source reads files of this machine, or no files."""
    if isinstance(source, CorpusSource):
        return source.is_local
    return isinstance(source, seqio.FunctionDataSource)
