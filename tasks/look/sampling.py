"""Make a task's examples of some documents of its corpus.

texts = list(itertools.islice(excerpt.documents(source, "train"), 1000))
rows = examples(task, texts, "train", {"inputs": 512, "targets": 114})
spans(vocabulary, ids, {})                  # [(False, "Ana are"), (True, "<0>"), …]
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from common.source import CorpusTask
from tasks import vocabularies
from tasks.corpus import excerpt
from tasks.corpus.source import CorpusSource
from tasks.objectives import registry
from tasks.rows import Rows
from tasks.task import Task
from tasks.text import normalize

INPUTS = 512  # tokens, of the pretraining recipes
_MOST_EXAMPLES = 5_000


def first_documents(source: seqio.DataSource, split: str, n: int) -> list[dict[str, str]]:
    """Return the first `n` usable documents of a split; a `CorpusSource` reads little for them.

    Raises:
      UserError: the corpus cannot be read.
    """
    if isinstance(source, Rows):
        columns = source.peek_features(split, n)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(source, CorpusSource):
        return [{"text": text} for text in source.peek(split, n)]
    return list(itertools.islice(excerpt.documents(source, split, shuffle=False), n))


def task_over(task: seqio.Task, features: Mapping[str, Sequence[str]], split: str) -> seqio.Task:
    """Return the task over these documents, texts by feature, instead of its corpus."""
    make = lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices(
        dict(features)
    )
    sampled = CorpusTask(
        task.name,
        source=seqio.FunctionDataSource(make, [split]),
        preprocessors=task.preprocessors,
        output_features=task.output_features,
    )
    sampled.open_rows = task.open_rows if isinstance(task, CorpusTask) else 1
    return sampled


def default_lengths(task: seqio.Task, inputs: int = INPUTS) -> dict[str, int] | None:
    """Return these inputs and the targets that the objective makes of them, None without one."""
    if (objective := registry.objective_of(task)) is None:
        return None
    vocabulary = task.output_features["targets"].vocabulary
    return {"inputs": inputs, "targets": objective.lengths(inputs, vocabulary).targets}


def examples(
    task: seqio.Task,
    texts: Iterable[Mapping[str, str]],
    split: str,
    lengths: Mapping[str, int] | None,
) -> list[dict[str, np.ndarray]]:
    """Return what the task's preprocessors make of documents, int32 [n] by feature.

    Raises:
      UserError: `lengths` do not fit the task, or its vocabulary does not exist.
    """
    rows = list(texts)
    features = {name: [row[name] for row in rows] for name in rows[0]}
    make = task_over(task, features, split).get_dataset
    if isinstance(task, Task) and not task.needs_autograph:
        make = tf.autograph.experimental.do_not_convert(make)
    dataset = make(dict(lengths) if lengths else None, split, shuffle=False, num_epochs=1, seed=0)
    examples = dataset.take(_MOST_EXAMPLES).as_numpy_iterator()
    return [{name: row[name] for name in task.output_features if name in row} for row in examples]


def original(task: seqio.Task) -> tuple[seqio.Task, dict[str, int] | None]:
    """Return the task that reads the corpus, and the lengths that a pregenerated task fixes."""
    if isinstance(task, Task) and task.made_from:
        return seqio.TaskRegistry.get(task.made_from.task), dict(task.made_from.lengths)
    return task, None


def spans(
    vocabulary: seqio.Vocabulary, ids: Iterable[int], names: Mapping[str, str]
) -> list[tuple[bool, str]]:
    """Return the text of ids as (whether it is a sentinel, text), sentinels as <0>, <1>.

    A text that is a key of `names`, such as the piece of a label, is shown by its name.
    """
    marks = {token: f"<{n}>" for n, token in enumerate(vocabularies.sentinels_if_any(vocabulary))}
    parts: list[tuple[bool, str]] = []
    for is_mark, group in itertools.groupby(map(int, ids), marks.__contains__):
        tokens = list(group)
        if is_mark:
            parts += [(True, marks[token]) for token in tokens]
        else:
            text = " ".join(vocabulary.decode(tokens).split())
            parts.append((False, names.get(text, text)))
    return [(is_mark, text) for is_mark, text in parts if text]


def normalized(task: seqio.Task, text: str) -> str:
    """Return a text as the task normalizes it."""
    for step in task.preprocessors:
        settings = dict(getattr(step, "keywords", {}))
        if getattr(step, "func", step) is not normalize.preprocess:
            if "normalization" not in settings:  # the step of tasks.pairs has it
                continue
            settings = dict(settings["normalization"])
        spaces = settings.pop("spaces", True)
        text = normalize.normalize(text, **settings)
        return text if spaces else normalize.remove_spaces(text)
    return text


def uncovered(vocabulary: seqio.Vocabulary, characters: Iterable[str]) -> set[str]:
    """Return the characters that become the unknown id."""
    return {c for c in set(characters) if vocabulary.unk_id in vocabulary.encode(c)}
