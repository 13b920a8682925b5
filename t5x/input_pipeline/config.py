"""DatasetConfig: the examples that a run reads, as set in a gin file."""

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from typing import TypeAlias

import seqio
import tensorflow as tf

import gin
from common.errors import UserError, nearest
from common.source import CorpusTask


@dataclasses.dataclass
class DatasetConfig:
    """Which examples to read, and how (upstream's names)."""

    mixture_or_task_name: str | seqio.Task | seqio.Mixture
    task_feature_lengths: Mapping[str, int] | None  # tokens of each; None: the longest example's
    split: str
    batch_size: int  # rows of a global batch
    shuffle: bool  # a new order each epoch
    seed: int | None  # seed of order and noise; None: drawn at the start, kept in checkpoints
    use_cached: bool = False  # read the task's offline cache
    pack: bool = False  # put several examples into a row
    use_custom_packing_ops: bool = False  # only False: rows are packed quickly without them
    module: str | None = None  # imported first, because it registers the task
    use_memory_cache: bool = True  # keep evaluation examples in memory
    # Cut features to their lengths; if False, longer ones are an error.
    trim_output_features: bool = True

    def __post_init__(self):
        if self.use_custom_packing_ops:
            raise UserError(
                "DatasetConfig.use_custom_packing_ops",
                True,
                "which needs operations that tensor2tensor compiles",
                "set it to False: rows are packed quickly without them",
            )
        if self.module:
            _import(self.module)

    @property
    def provider(self) -> seqio.Task | seqio.Mixture:
        """The task or mixture; raises a UserError if none of that name is registered."""
        name = self.mixture_or_task_name
        if not isinstance(name, str):
            return name
        registered = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
        if name not in registered:
            raise UserError(
                "MIXTURE_OR_TASK_NAME",
                name,
                f"which is not registered{nearest(name, registered)}",
                "import its module in the gin file",
            )
        return seqio.get_mixture_or_task(name)

    @property
    def splits(self) -> set[str]:
        """The splits of all tasks."""
        tasks = seqio.get_subtasks(self.provider)
        return {split for task in tasks for split in task.splits or ()}

    @property
    def tasks_with_split(self) -> list[seqio.Task]:
        """The tasks that have the split, which may be a slice of one."""
        return [task for task in seqio.get_subtasks(self.provider) if self.has_split(task)]

    @property
    def open_rows(self) -> int:
        """The number of rows that are filled at once, the most that any task needs."""
        tasks = seqio.get_subtasks(self.provider)
        return max(task.open_rows if isinstance(task, CorpusTask) else 1 for task in tasks)

    def has_split(self, task: seqio.Task) -> bool:
        """Return whether a task has the split, or, if caches are read, its cache."""
        if self.use_cached and task.supports_caching and task.cache_dir:
            # Its corpus may be out of reach, so it is not read.
            return tf.io.gfile.exists(seqio.utils.get_cached_stats_path(task.cache_dir, self.split))
        return self.split in (task.splits or ())


# {gin scope: dataset} for train, train_eval, infer_eval; None for one that the run does without.
Datasets: TypeAlias = Mapping[str, DatasetConfig | None]


def _import(module: str) -> None:
    is_name = all(part.isidentifier() for part in module.split("."))
    if not is_name or module.partition(".")[0] in sys.stdlib_module_names:
        raise UserError(
            "DatasetConfig.module",
            module,
            "which is no module that registers tasks",
            "set MIXTURE_OR_TASK_MODULE to one such as 'tasks.romanian'",
        )
    try:
        with gin.unlock_config():  # its configurables are registered after gin files were parsed
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise UserError(
                "DatasetConfig.module",
                module,
                f"which needs the module {error.name!r}",
                "install it",
            ) from error
        raise UserError(
            "DatasetConfig.module",
            module,
            f"but there is no module {error.name!r}",
            "set MIXTURE_OR_TASK_MODULE to the one that registers the task, such as "
            "'tasks.romanian'",
        ) from error
