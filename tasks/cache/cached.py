"""Tasks that read finished examples from an offline cache.

There are two kinds, by the position of `seqio.CacheDatasetPlaceholder` among the preprocessors:

- After tokenization, as in `corpora.add`. The cache holds the token ids of the documents; the
  preprocessors after it corrupt them anew every epoch. Set USE_CACHED_TASKS = True with the task's
  own name.
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

import functools
import itertools
from collections.abc import Callable, Mapping

import seqio

from common.errors import UserError
from common.source import DEFAULT_READING
from tasks.task import Original, Task, copy_attributes


def pregenerated_name(task: str, lengths: Mapping[str, int]) -> str:
    """Return the name of a task whose finished examples have these lengths, such as task_i64_t14.

    Each feature is shortened to the shortest beginnings by which all differ.
    """
    n = next(n for n in itertools.count() if len({name[:n] for name in lengths}) == len(lengths))
    return f"{task}_{'_'.join(f'{name[:n]}{length}' for name, length in lengths.items())}"


def add_pregenerated(task: str, lengths: Mapping[str, int]) -> seqio.Task:
    """Register a task whose finished examples, of exactly these lengths, are read from a cache."""
    name = pregenerated_name(task, lengths)
    if name in seqio.TaskRegistry.names():
        return seqio.TaskRegistry.get(name)
    made_from = seqio.TaskRegistry.get(task)
    steps = [
        step
        for step in made_from.preprocessors
        if not isinstance(step, seqio.CacheDatasetPlaceholder)
    ]
    added = seqio.TaskRegistry.add(
        name,
        source=made_from.source,
        preprocessors=[
            *(_bind_lengths(step, lengths) for step in steps),
            _bind_lengths(seqio.utils.trim_dataset, lengths),
            seqio.CacheDatasetPlaceholder(required=True),
            functools.partial(_check_lengths, lengths=lengths, task=name),
        ],
        output_features=made_from.output_features,
        postprocess_fn=made_from.postprocessor,
        metric_fns=made_from.metric_fns,
        shuffle_buffer_size=made_from.shuffle_buffer_size,
        task_cls=Task,
    )
    added.made_from = Original(task, dict(lengths))
    copy_attributes(added, made_from)
    return added


def _bind_lengths(step: Callable, lengths: Mapping[str, int]) -> Callable:
    """Bind `sequence_length`, which seqio does not pass to preprocessors before a cache."""

    def bound(dataset, output_features, reading=DEFAULT_READING):
        transform = seqio.utils.add_kwargs_to_transform(
            step,
            sequence_length=dict(lengths),
            output_features=output_features,
            reading=reading,
        )
        return transform(dataset)

    return bound


def _check_lengths(dataset, sequence_length, lengths, task):
    if sequence_length is not None and dict(sequence_length) != dict(lengths):
        raise UserError(
            "TASK_FEATURE_LENGTHS",
            dict(sequence_length),
            f"but task {task} holds examples made for {dict(lengths)}",
            "set it to these, or make another cache",
        )
    return dataset
