"""One line a corpus: what turns a corpus into a task.

    corpora.add("my_corpus", CorpusSource("user/name"), vocabularies.ro_model)
    corpora.add("my_folder", CorpusSource("/data/ro"), "ro.model", objective="ul2", cedilla=True)

The task is then MIXTURE_OR_TASK_NAME = 'my_corpus' of any recipe. Nothing is read before a run.
"""

import functools
from collections.abc import Callable

import seqio
import tensorflow as tf

from tasks import caches, vocabularies
from tasks.objectives import registry, span_corruption
from tasks.sources import CorpusSource
from tasks.text import normalize, token_chunks, tokenize

# A shard shuffles its own runs of tokens, after its source has permuted files, parts and records.
# What waits in the buffers is saved with every checkpoint, so they are small.
SHUFFLED_RUNS = 128

Vocabulary = str | Callable[[], str] | seqio.Vocabulary


def add(
    name: str,
    source: CorpusSource,
    vocabulary: Vocabulary,
    objective: str | registry.Objective = "span_corruption",
    **normalization,
) -> seqio.Task:
    """Registers a task that hides parts of a corpus.

    Args:
      name: the task's name.
      source: where the documents come from.
      vocabulary: a SentencePiece file, a function that returns one's path, or a vocabulary.
      objective: how text is hidden: a name that `tasks.objectives` lists, or an object such as
        spans.SpanNoise(0.5, 8).
      **normalization: cedilla, nfc, whitespace, spaces, as `tasks.text.normalize.preprocess` has
      them.

    Raises:
      ValueError: there is no objective of that name.
    """
    if not isinstance(vocabulary, seqio.Vocabulary):
        vocabulary = vocabularies.sentencepiece(vocabulary)
    feature = seqio.Feature(vocabulary=vocabulary, add_eos=True, dtype=tf.int32)
    return seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            functools.partial(normalize.preprocess, **normalization),
            tokenize.tokenize,
            seqio.CacheDatasetPlaceholder(),
            functools.partial(registry.find(objective).preprocess, task=name),
            token_chunks.append_eos,
        ],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=[],
        shuffle_buffer_size=SHUFFLED_RUNS,
        task_cls=caches.Task,
    )


def add_span_corruption(
    name: str,
    source: CorpusSource,
    vocabulary: Vocabulary,
    noise: span_corruption.SpanNoise = span_corruption.T5_NOISE,
    **normalization,
) -> seqio.Task:
    """`add` with span corruption; see `tasks.objectives.span_corruption`."""
    return add(name, source, vocabulary, noise, **normalization)


def add_prefix_lm(
    name: str, source: CorpusSource, vocabulary: Vocabulary, **normalization
) -> seqio.Task:
    """`add` with prefix language modelling; see `tasks.objectives.prefix_lm`."""
    return add(name, source, vocabulary, "prefix_lm", **normalization)
