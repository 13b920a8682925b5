"""Tasks from pairs of texts, a source and its target: prefix, tokens, and what is too long.

    add("summaries", Rows("user/name", columns={"inputs": "article", "targets": "highlights"}),
        vocabularies.t5_model, prefix="summarize: ", metric_fns=[summarization.rouge])

What is longer than TASK_FEATURE_LENGTHS is cut, and counted as `cut_inputs` and `cut_targets`. A
target that has lost its end has no EOS, which would teach to end there. Metrics compare with the
whole text.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from tasks import caches, corpora, vocabularies
from tasks.record_counts import MADE, NOTES, RecordCounter
from tasks.sources import CorpusSource
from tasks.streaming import tf_callbacks
from tasks.text import normalize

LENGTHS = {"inputs": 512, "targets": 128}  # where a run sets none, as evaluation does
SHUFFLED = 1024  # examples
Cut = Callable[[tf.Tensor, int, seqio.Vocabulary], tf.Tensor]


def add(
    name: str,
    source: CorpusSource,
    vocabulary: corpora.Vocabulary,
    prefix: str = "",
    metric_fns: Sequence[Callable] = (),
    lengths: Mapping[str, int] = LENGTHS,
    cut: Cut | None = None,
    checks: Callable[[seqio.Vocabulary], object] | None = None,
    **normalization,
) -> seqio.Task:
    """Registers a task whose source gives {"inputs", "targets"}, such as `tasks.rows.Rows` does.

    Args:
      name: the task's name.
      source: of pairs of texts.
      vocabulary: as `tasks.corpora.add` has it.
      prefix: stands before every input.
      metric_fns: seqio's metric functions.
      lengths: tokens, EOS counted, where a run sets none.
      cut: shortens inputs, (ids, how many may stay, vocabulary); by default their end is cut off.
      checks: is called with the vocabulary before anything is read, and may refuse it.
      **normalization: cedilla, nfc, whitespace, as `tasks.text.normalize.preprocess` has them.
    """
    if not isinstance(vocabulary, seqio.Vocabulary):
        vocabulary = vocabularies.sentencepiece(vocabulary)
    feature = seqio.Feature(vocabulary=vocabulary, add_eos=True, dtype=tf.int32)
    counter = getattr(source, "counter", None) or RecordCounter(name)
    task = seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            functools.partial(_texts, prefix=prefix, checks=checks, normalization=normalization),
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            functools.partial(
                fit, lengths=dict(lengths), cut=cut or keep_beginning, counter=counter
            ),
        ],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=list(metric_fns),
        shuffle_buffer_size=SHUFFLED,
        task_cls=caches.Task,
    )
    task.prefix = prefix  # for whoever has texts of their own for the same model
    return task


def _texts(dataset, output_features, prefix: str, checks, normalization):
    if checks:
        checks(output_features["targets"].vocabulary)
    for side in ("inputs", "targets"):
        dataset = normalize.preprocess(dataset, side, **normalization)
    return dataset.map(lambda x: {**x, "inputs": tf.strings.join([prefix, x["inputs"]])})


def fit(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    lengths: Mapping[str, int],
    cut: Cut,
    counter: RecordCounter,
    sequence_length: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Makes {"inputs", "targets"}, int32 [n], fit their lengths and puts EOS behind them.

    `lengths` holds where there is no `sequence_length`; see the top of this file.
    """
    inputs, targets = (
        ((sequence_length or lengths)[side], output_features[side].vocabulary)
        for side in ("inputs", "targets")
    )
    split = counter.split  # which this dataset is of

    def count(*cut):
        names = [MADE, *(note for note, is_cut in zip(NOTES, cut, strict=True) if is_cut)]
        counter.add(dict.fromkeys(names, 1), split=split)
        return np.int64(0)

    guarded = tf_callbacks.guard(count, np.int64(0))

    def fitted(ids, most, vocabulary, shorter):
        """The ids with EOS, or what `shorter` gives in their place, and whether it does."""
        whole = tf.concat([ids, [vocabulary.eos_id]], 0)
        is_cut = tf.size(whole) > most
        return tf.cond(is_cut, shorter, lambda: whole), is_cut

    def fn(example):
        source, target = example["inputs"], example["targets"]
        most, vocabulary = inputs
        shorter = lambda: tf.concat([cut(source, most - 1, vocabulary), [vocabulary.eos_id]], 0)
        fitting_source, source_is_cut = fitted(source, *inputs, shorter)
        fitting_target, target_is_cut = fitted(target, *targets, lambda: target[: targets[0]])
        noted = tf.numpy_function(guarded, [source_is_cut, target_is_cut], tf.int64)
        with tf.control_dependencies([noted]):
            fitting = {"inputs": fitting_source, "targets": fitting_target}
            return example | {side: tf.identity(ids) for side, ids in fitting.items()}

    return dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)


def keep_beginning(ids: tf.Tensor, most: int, vocabulary: seqio.Vocabulary) -> tf.Tensor:
    """Returns the first `most` ids."""
    del vocabulary
    return ids[:most]


def keep_both_ends(ids: tf.Tensor, most: int, vocabulary: seqio.Vocabulary) -> tf.Tensor:
    """Returns the beginning, a separator and the end of ids, `most` in all.

    Of 512 with EOS those are the first 255, the separator, and the last 256, EOS among them. The
    separator is the first sentinel, which says in pretraining too that something is missing.
    """
    separator = (vocabularies.sentinels_if_any(vocabulary) or (vocabulary.unk_id,))[0]
    first = most // 2
    return tf.concat([ids[:first], [separator], ids[tf.size(ids) - (most - 1 - first) :]], 0)
