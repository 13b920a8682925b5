"""One line a corpus: what turns a corpus into a task.

    corpora.add_span_corruption("my_corpus", CorpusSource("user/name"), vocabularies.ro_model)
    corpora.add_span_corruption("my_folder", CorpusSource("/data/ro"), "ro.model", cedilla=True)

The task is then MIXTURE_OR_TASK_NAME = 'my_corpus' of any recipe. Nothing is read before a run.
"""

import functools
from collections.abc import Callable

import seqio
import tensorflow as tf

from tasks import normalize, spans, tokens, vocabularies
from tasks.sources import CorpusSource

# A shard shuffles its own runs of tokens, after its source has permuted files, parts and records.
# What waits in the buffers is saved with every checkpoint, so they are small.
SHUFFLED_RUNS = 128

Vocabulary = str | Callable[[], str] | seqio.Vocabulary


def add_span_corruption(
    name: str,
    source: CorpusSource,
    vocabulary: Vocabulary,
    noise: spans.SpanNoise = spans.T5_NOISE,
    **normalization,
) -> seqio.Task:
    """Registers a task that hides spans of a corpus; see `tasks.spans`.

    Args:
      name: the task's name.
      source: where the documents come from.
      vocabulary: a SentencePiece file, a function that returns one's path, or a vocabulary.
      noise: density and mean length of spans.
      **normalization: cedilla, nfc, whitespace, spaces, as `tasks.normalize.preprocess` has them.
    """
    objective = functools.partial(spans.span_corruption, noise=noise, task=name)
    return _add(name, source, vocabulary, objective, normalization)


def add_prefix_lm(
    name: str, source: CorpusSource, vocabulary: Vocabulary, **normalization
) -> seqio.Task:
    """Registers a task that continues a text from a random place; see `spans.prefix_lm`."""
    return _add(name, source, vocabulary, spans.prefix_lm, normalization)


def _add(name, source, vocabulary, objective, normalization) -> seqio.Task:
    if not isinstance(vocabulary, seqio.Vocabulary):
        vocabulary = vocabularies.sentencepiece(vocabulary)
    feature = seqio.Feature(vocabulary=vocabulary, add_eos=True, dtype=tf.int32)
    return seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            functools.partial(normalize.preprocess, **normalization),
            tokens.tokenize,
            seqio.CacheDatasetPlaceholder(),
            objective,
            seqio.preprocessors.append_eos,
        ],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=[],
        shuffle_buffer_size=SHUFFLED_RUNS,
    )
