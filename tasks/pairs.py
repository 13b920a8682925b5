"""Text-to-text tasks: prefix, tokens, and truncation of long texts.

    add("summaries", Rows("user/name", columns={"inputs": "article", "targets": "highlights"}),
        vocabularies.t5_model, prefix="summarize: ", metric_fns=[text_metrics.rouge])

Texts longer than TASK_FEATURE_LENGTHS are truncated, and counted as `cut_inputs` and `cut_targets`.
A truncated target has no EOS, which would teach to end there. Metrics compare with the full text.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from common.errors import UserError
from common.source import DEFAULT_READING, Reading, Source
from tasks import corpora, vocabularies
from tasks.corpus import slices, tf_callbacks
from tasks.corpus.records.counts import MADE, NOTES, RecordCounter
from tasks.corpus.records.documents import Columns
from tasks.corpus.source import CorpusSource
from tasks.task import Task
from tasks.text import normalize, tokenize

LENGTHS = {"inputs": 512, "targets": 128}  # used if a run sets none, as in evaluation
SHUFFLED = 1024  # examples
Truncate = Callable[[tf.Tensor, int, seqio.Vocabulary], tf.Tensor]


def add(
    name: str,
    source: seqio.DataSource,
    vocabulary: corpora.Vocabulary,
    prefix: str = "",
    metric_fns: Sequence[Callable] = (),
    lengths: Mapping[str, int] = LENGTHS,
    cut: Truncate | None = None,
    labels: Callable[[], Mapping[str, str]] | None = None,
    **normalization,
) -> seqio.Task:
    """Register a task whose source gives {"inputs", "targets"}, such as `tasks.rows.Rows`.

    `vocabulary` is as for `tasks.corpora.token_feature`; `prefix` precedes every input; `lengths`,
    in tokens with EOS, apply if a run sets none. `cut` truncates inputs, from (ids, number to keep,
    vocabulary), without Python branches on tensors; by default it keeps the beginning. `labels`
    returns the text that the model writes for each target, so that only people see the target; it
    is called before anything is read. `normalization` are arguments of
    `tasks.text.normalize.preprocess`.

    Raises:
      UserError: the rows of the source have no inputs or no targets.
    """
    if isinstance(source, CorpusSource) and not {"inputs", "targets"} <= {*source.column.features}:
        raise UserError(
            "columns",
            why=f"name {', '.join(source.column.features)}, but pairs have inputs and targets",
            to_set='give tasks.rows.Rows columns={"inputs": …, "targets": …}',
        ).at(f"task {name}")
    feature = corpora.token_feature(vocabulary)
    counter = (source.counter if isinstance(source, Source) else None) or RecordCounter(name)
    task = seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            functools.partial(_texts, prefix=prefix, labels=labels, normalization=normalization),
            tokenize.tokenize_examples,
            seqio.CacheDatasetPlaceholder(),
            functools.partial(
                truncate,
                lengths=dict(lengths),
                cut=cut,
                counter=counter,
                prefix=prefix,
                names=() if labels else _label_names(source),
            ),
        ],
        output_features={"inputs": feature, "targets": feature},
        postprocess_fn=functools.partial(_label_of, labels=labels) if labels else None,
        metric_fns=list(metric_fns),
        shuffle_buffer_size=SHUFFLED,
        task_cls=Task,
    )
    task.prefix = prefix
    if labels:
        task.labels = labels
    return task


def _label_of(text: str, labels, is_target: bool = False, **_) -> str:
    """Return the label of what the model wrote, for metrics; a target is a label already."""
    label_of = {piece: label for label, piece in labels().items()}
    return text if is_target else label_of.get(text.strip(), text)


def _to_pieces(labels: Mapping[str, str]):
    def fn(example):
        place = tf.argmax(tf.equal([*labels], example["targets"]))
        pieces = tf.gather([*labels.values()], place)
        return {**example, "targets": pieces, "targets_pretokenized": example["targets"]}

    return fn


def _texts(
    dataset, output_features, prefix: str, labels, normalization, reading: Reading = DEFAULT_READING
):
    if labels:
        dataset = dataset.map(_to_pieces(labels()))
    for side in ("inputs",) if labels else ("inputs", "targets"):
        dataset = normalize.preprocess(dataset, side, **normalization, reading=reading)
    return dataset.map(lambda x: {**x, "inputs": tf.strings.join([prefix, x["inputs"]])})


def _label_names(source: seqio.DataSource) -> Sequence[str]:
    column = source.column if isinstance(source, CorpusSource) else None
    return column.names_of("targets") if isinstance(column, Columns) else ()


def truncate(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    lengths: Mapping[str, int],
    cut: Truncate | None,
    counter: RecordCounter,
    prefix: str = "",
    names: Sequence[str] = (),
    sequence_length: Mapping[str, int] | None = None,
    reading: Reading = DEFAULT_READING,
) -> tf.data.Dataset:
    """Truncate {"inputs", "targets"}, int32 [n], to `sequence_length` or `lengths`; append EOS.

    Raises:
      UserError: a length has no room for `prefix` and a token, or for all `names` of labels.
    """
    most = sequence_length or lengths
    vocabulary = {side: output_features[side].vocabulary for side in ("inputs", "targets")}
    size = lambda side, text: len(vocabulary[side].encode(text)) if text else 0
    longest = max(names, key=lambda name: size("targets", name), default="")
    held = f"the label {longest!r}" if longest else "a token"
    _check_length("inputs", most, size("inputs", prefix) + 2, f"the prefix {prefix!r}, a token")
    _check_length("targets", most, max(size("targets", longest), 1) + 1, held)
    split = slices.full(reading.split)

    def count(*are_cut):
        names = [MADE, *(note for note, is_cut in zip(NOTES, are_cut, strict=True) if is_cut)]
        counter.add(dict.fromkeys(names, 1), split=split)
        return np.int64(0)

    guarded_count = tf_callbacks.guard(count, np.int64(0))

    def fit(side, ids, shorten):
        """Return the ids with EOS, or `shorten()` if these are too many, and whether they are."""
        complete = tf.concat([ids, [vocabulary[side].eos_id]], 0)
        is_cut = tf.size(complete) > most[side]
        return tf.cond(is_cut, shorten, lambda: complete), is_cut

    def fn(example):
        source, target = example["inputs"], example["targets"]
        n, words = most["inputs"] - 1, vocabulary["inputs"]
        shorter = lambda: cut(source, n, words) if cut else source[:n]
        shorten = lambda: tf.concat([shorter(), [words.eos_id]], 0)
        inputs, is_cut_source = fit("inputs", source, shorten)
        targets, is_cut_target = fit("targets", target, lambda: target[: most["targets"]])
        counted = tf.numpy_function(guarded_count, [is_cut_source, is_cut_target], tf.int64)
        with tf.control_dependencies([counted]):
            return example | {"inputs": tf.identity(inputs), "targets": tf.identity(targets)}

    return dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)


def _check_length(side: str, lengths: Mapping[str, int], least: int, held: str) -> None:
    if lengths[side] < least:
        raise UserError(
            f"TASK_FEATURE_LENGTHS[{side!r}]",
            lengths[side],
            f"but {held} and EOS take {least}",
            f"set it to at least {least}",
        )


def keep_both_ends(ids: tf.Tensor, most: int, vocabulary: seqio.Vocabulary) -> tf.Tensor:
    """Return the beginning, a separator and the end of ids, `most` in total.

    Of 512 with EOS these are the first 255, the separator, and the last 256 including EOS. The
    separator is the first sentinel, which means in pretraining too that something is missing.
    """
    separator = (vocabularies.sentinels_if_any(vocabulary) or (vocabulary.unk_id,))[0]
    first = most // 2
    return tf.concat([ids[:first], [separator], ids[tf.size(ids) - (most - 1 - first) :]], 0)
