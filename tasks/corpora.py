"""Pretraining tasks: one line turns a corpus into a task.

    source = CorpusSource("user/name", held_out={"validation": 0.01})
    corpora.add("my_corpus", source, vocabularies.ro_model)
    corpora.add("my_folder", CorpusSource("/data/ro"), "ro.model", objective="ul2", cedilla=True)
    corpora.add("my_bert", CorpusSource("/data/ro"), "my_bert_vocabulary", "masked_lm")

The task is then MIXTURE_OR_TASK_NAME = 'my_corpus' of any recipe. Nothing is read before a run.
"""

import functools
from collections.abc import Callable
from typing import TypeAlias

import seqio
import tensorflow as tf

from tasks import vocabularies
from tasks.corpus import overview
from tasks.corpus.source import CorpusSource
from tasks.look import lines, sample
from tasks.objectives import registry
from tasks.objectives.base import Objective
from tasks.task import Task, View
from tasks.text import normalize, token_chunks

# Each shard shuffles its chunks of tokens, after its source has permuted files, parts and records.
# The buffers are saved with every checkpoint, so they are small.
SHUFFLED_CHUNKS = 128

Task.view = View(lines.look, overview.describe_corpus, sample.span_tokens)
Vocabulary: TypeAlias = str | Callable[[], str] | seqio.Vocabulary


def token_feature(vocabulary: Vocabulary) -> seqio.Feature:
    """Return a feature of ids and EOS of a SentencePiece file (or function), or a vocabulary."""
    if not isinstance(vocabulary, seqio.Vocabulary):
        vocabulary = vocabularies.sentencepiece(vocabulary)
    return seqio.Feature(vocabulary=vocabulary, add_eos=True, dtype=tf.int32)


def add(
    name: str,
    source: CorpusSource,
    vocabulary: Vocabulary,
    objective: str | Objective = "span_corruption",
    **normalization,
) -> seqio.Task:
    """Register a pretraining task.

    `vocabulary` is the file that the objective reads (SentencePiece's, for masked_lm a folder with
    a tokenizer.json), a function that returns its path, or a vocabulary; `objective` is a name in
    `tasks.objectives.registry`, or an object such as `span_corruption.SpanNoise(0.5, 8)`;
    `normalization` are arguments of `tasks.text.normalize.preprocess`. Raise UserError if no
    objective has that name.
    """
    chosen = registry.get_objective(objective)
    if isinstance(vocabulary, str):
        vocabulary = vocabularies.of_recipe(vocabulary)
    if not isinstance(vocabulary, seqio.Vocabulary):
        vocabulary = chosen.vocabulary(vocabulary)
    task = seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            functools.partial(normalize.preprocess, **normalization),
            chosen.tokenize,
            seqio.CacheDatasetPlaceholder(),
            functools.partial(chosen.preprocess, task=name),
            token_chunks.append_eos,
        ],
        output_features=chosen.features(vocabulary),
        metric_fns=[],
        shuffle_buffer_size=SHUFFLED_CHUNKS,
        task_cls=Task,
    )
    task.open_rows = chosen.open_rows
    return task
