"""Tasks of labels, for encoders with a head: classes of texts or of pairs of them, tags of words.

    text("spam", Rows("user/name", columns={"inputs": "text", "targets": "label"},
         labels={"targets": {"0": "no", "1": "yes"}}), "my_vocabulary", labels=("no", "yes"))
    text("xnli", Rows(…, columns={"first": "premise", "second": "hypothesis", "targets": "label"}),
         "my_vocabulary", labels=("entailment", "neutral", "contradiction"))
    words("names", Rows("user/name", columns={"inputs": "tokens", "targets": "tags"},
          lists={"tokens": joined, "tags": joined}), "my_vocabulary", labels=("O", "B-PER", …))

An example over BERT's ids, [CLS] 2 and [SEP] 3; labels are counted from 1:

    text          ana   are  mere            first and second text
    inputs         2    11    12    13    3    2  11  3  12  13  3
    targets        2     0     0     0    0    2   0  0   0   0  0
    loss_weights   1     0     0     0    0    1   0  0   0   0  0
    type_ids                                   0   0  0   1   1  1

Of words each has its label at its first piece, and no other piece has one; words and labels are
separated by blanks. Long texts keep their beginning; of a pair the longer text is cut.

A label that the task does not have, or another number of labels than of words, is refused among the
first records, which are read before a run starts. Later such records are skipped and counted, and
so are all texts with a value that the `labels` of Rows leave out.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

import gin
from tasks import caches, classification, vocabularies
from tasks.documents import Columns
from tasks.pairs import SHUFFLED
from tasks.record_counts import MADE, RecordCounter
from tasks.rows import Rows
from tasks.streaming.tf_callbacks import vectors
from tasks.text import entity_metrics
from tasks.text.normalize import normalize
from tasks.tokenizer_vocabulary import TokenizerVocabulary

LENGTH = 256  # tokens, if a run sets none, as in evaluation
CHECKED = 1000  # records of a split whose labels are compared before a run
PAIR = ("first", "second")
FEATURES = ("inputs", "targets", "loss_weights", "type_ids")  # the last one of pairs
MARK = seqio.Feature(seqio.PassThroughVocabulary(2), add_eos=False, dtype=tf.int32)


class LabelVocabulary(seqio.Vocabulary):
    """Names of labels as ids from 1; 0 is no label."""

    def __init__(self, labels: Sequence[str], of_words: bool = False):
        super().__init__()
        if isinstance(labels, str) or len(labels) < 2 or len({*labels}) < len(labels):
            raise ValueError(
                f"labels is {labels!r}, but must list two names or more, all different"
            )
        if padded := [name for name in labels if name != name.strip() or not name]:
            raise ValueError(
                f"label {padded[0]!r} is empty or begins or ends with a blank: give its name alone"
            )
        if spaced := [name for name in labels if of_words and len(name.split()) > 1]:
            raise ValueError(
                f"label {spaced[0]!r} contains a blank, and blanks separate the labels of words: "
                "give it a name without one"
            )
        self.labels, self.of_words = tuple(labels), of_words

    eos_id = unk_id = bos_id = None
    pad_id = 0

    @property
    def _base_vocab_size(self) -> int:
        return len(self.labels) + 1

    def _encode(self, s: str) -> list[int]:
        names = s.split() if self.of_words else [s] if s else []
        if unknown := [name for name in names if name not in self.labels]:
            known = ", ".join(map(repr, self.labels))
            raise ValueError(f"{unknown[0]!r} is not one of the labels {known}")
        return [self.labels.index(name) + 1 for name in names]

    def _decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.labels[i - 1] for i in ids if 0 < i <= len(self.labels))

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError("labels are encoded beside their texts")

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError("labels are decoded one example at a time")

    def __eq__(self, other) -> bool:
        same = isinstance(other, LabelVocabulary)
        return same and (self.labels, self.of_words) == (other.labels, other.of_words)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"labels {', '.join(self.labels)}"


class LabelTask(caches.Task):
    """A task of labels, which compares those of the first records with its own before a run."""

    compares = True  # not where the source lists the labels to use
    reads_lines = True  # its preprocessors take {"inputs"} and perhaps {"targets"} of a file

    def check_split(self, split: str) -> None:
        """Raise ValueError for a label that the task does not have among the first records."""
        unknown = self.compares and self.source.unknown_labels(split, CHECKED)
        if unknown:
            known = ", ".join(map(repr, self.source.column.known_labels))
            raise ValueError(
                f"task {self.name}: a record of split {split!r} is labelled {unknown[0]!r}, and "
                f"the task's labels are {known}: name it among them"
            )


def text(
    name: str,
    source: Rows,
    vocabulary: str | Callable[[], str] | seqio.Vocabulary,
    labels: Sequence[str],
    metric_fns: Sequence[Callable] | None = None,
    length: int = LENGTH,
    **normalization,
) -> LabelTask:
    """Register a task that gives each text, or pair of texts, one of `labels`.

    `source` has columns "inputs" and "targets", or "first", "second" and "targets"; `vocabulary`
    is as for `tasks.vocabularies.tokenizer`; `length`, in tokens, applies if a run sets none;
    `normalization` are arguments of `tasks.text.normalize.normalize`. The metrics are those of
    `tasks.classification` by default.

    Raises:
      ValueError: labels are not distinct, or the source's columns or labels do not fit.
    """
    metric_fns = [classification.metric(labels)] if metric_fns is None else metric_fns
    return _add(
        name, source, vocabulary, LabelVocabulary(labels), metric_fns, length, normalization
    )


def words(
    name: str,
    source: Rows,
    vocabulary: str | Callable[[], str] | seqio.Vocabulary,
    labels: Sequence[str],
    metric_fns: Sequence[Callable] = (entity_metrics.scores,),
    length: int = LENGTH,
    **normalization,
) -> LabelTask:
    """Register a task that gives each word of a text one of `labels`, such as O, B-PER and I-PER.

    `source` has columns "inputs", words, and "targets", as many labels, with blanks between them;
    `joined` makes them of lists. The other arguments are those of `text`. The metrics are those of
    `tasks.text.entity_metrics` by default.

    Raises:
      ValueError: labels are not distinct, or the source's columns or labels do not fit.
    """
    names = LabelVocabulary(labels, of_words=True)
    return _add(name, source, vocabulary, names, metric_fns, length, normalization)


def joined(items: Sequence[str]) -> str:
    """Return the words or labels of a list with blanks between them, and none inside."""
    return " ".join("_".join(item.split()) or "_" for item in items)


def _add(
    name: str,
    source: Rows,
    vocabulary: str | Callable[[], str] | seqio.Vocabulary,
    labels: LabelVocabulary,
    metric_fns: Sequence[Callable],
    length: int,
    normalization: Mapping[str, bool],
) -> LabelTask:
    if not isinstance(vocabulary, seqio.Vocabulary):
        vocabulary = vocabularies.tokenizer(vocabulary)
    columns = getattr(source, "column", None)
    pairs = () if labels.of_words else ({*PAIR, "targets"},)
    if not isinstance(columns, Columns) or {*source.names} not in ({"inputs", "targets"}, *pairs):
        instead = ", or 'first', 'second' and 'targets'" if pairs else ""
        raise ValueError(
            f"task {name} labels rows: give its source the columns 'inputs' and 'targets'{instead}"
        )
    kept = copy.copy(source)  # other tasks may use it unchanged
    kept.column = columns.only("targets", labels.labels, labels.of_words)
    kept.reset_counter()
    is_pair = "first" in source.names
    tokens = seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)
    names = seqio.Feature(labels, add_eos=False, dtype=tf.int32)
    features = {"inputs": tokens, "targets": names, "loss_weights": MARK}
    task = seqio.TaskRegistry.add(
        name,
        source=kept,
        preprocessors=[
            functools.partial(
                examples, length=length, counter=kept.counter, normalization=normalization
            )
        ],
        output_features=features | ({"type_ids": MARK} if is_pair else {}),
        metric_fns=list(metric_fns),
        shuffle_buffer_size=SHUFFLED,
        task_cls=LabelTask,
    )
    task.compares = labels.of_words or not columns.known_labels
    return task


@gin.configurable
def vocabulary(task: str) -> LabelVocabulary:
    """Return the labels of a registered task, for `t5x.examples.encoder.label_model`.

        LABELS = @tasks.labels.vocabulary()
        tasks.labels.vocabulary.task = %MIXTURE_OR_TASK_NAME

    Raises:
      ValueError: it is not a task of labels.
    """
    found = task in seqio.TaskRegistry.names() and seqio.TaskRegistry.get(task)
    if not isinstance(found, LabelTask):
        raise ValueError(
            f"tasks.labels.vocabulary.task is {task!r}, which is not a task made by "
            "tasks.labels.text: set it to the name of one, and import the module that makes it"
        )
    return found.output_features["targets"].vocabulary


def examples(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    length: int = LENGTH,
    counter: RecordCounter | None = None,
    normalization: Mapping[str, bool] | None = None,
    sequence_length: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Turn texts into examples; see the top of this file. Without "targets" labels are 0.

    "inputs" may hold two texts with a TAB between them instead of "first" and "second".
    """
    tokens = vocabularies.masking(output_features["inputs"].vocabulary)
    labels, is_pair = output_features["targets"].vocabulary, "type_ids" in output_features
    split = counter.split if counter else None
    most = (sequence_length or {}).get("inputs") or length
    spelling = normalization or {}

    def make(*given):
        *texts, target = (value.decode("utf-8", "replace") for value in given)
        if is_pair and len(texts) == 1:
            texts = [*texts[0].split("\t", 1), ""][:2]
        texts = [normalize(one, **spelling) for one in texts]
        places = np.zeros([1], int)
        if labels.of_words:
            ids, places, is_cut = _of_words(tokens, texts[0].split(), most)
            types = np.zeros_like(ids)
        else:
            ids, types, is_cut = _of_text(tokens, texts, most)
        targets, weights = np.zeros([2, len(ids)], np.int32)
        weights[places] = 1
        if target:
            targets[places] = labels.encode(target)[: len(places)]
        if counter:
            counter.add({MADE: 1, "cut_inputs": int(is_cut)}, split=split)
        return (ids, targets, weights, types)[: len(output_features)]

    return map_texts(dataset, make, FEATURES[: len(output_features)])


def map_texts(dataset: tf.data.Dataset, make: Callable, names: Sequence[str]) -> tf.data.Dataset:
    """Return the examples that `make` makes of one or two texts and a target, in UTF-8.

    It returns vectors of int32, in the order of `names`. Without "targets" the target is "".
    """

    def fn(example):
        sides = [example[side] for side in (PAIR if "first" in example else ("inputs",))]
        target = example.get("targets", tf.constant(""))
        made = vectors(make, [*sides, target], "i" * len(names))
        shown = {"inputs_pretokenized": tf.strings.join(sides, "\t")}
        return dict(zip(names, made, strict=True)) | shown | {"targets_pretokenized": target}

    return dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)


def _of_text(
    vocabulary: TokenizerVocabulary, texts: Sequence[str], most: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return ids and types, int32 [n], of one or two texts, and whether they had to be cut."""
    ids, lengths = vocabulary.encode_texts(texts)
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    # RoBERTa has two separators between texts.
    between = max(1, vocabulary.tokenizer.num_special_tokens_to_add(is_pair=True) - 2)
    room = most - (2 if len(texts) == 1 else 2 + between)
    kept = [len(part) for part in parts]
    while sum(kept) > max(room, 0):
        kept[int(np.argmax(kept))] -= 1
    cls, sep = vocabulary.roles["cls"], vocabulary.roles["sep"]
    sides = [[cls, *parts[0][: kept[0]], sep]]
    if len(texts) == 2:
        sides[0] += [sep] * (between - 1)
        sides.append([*parts[1][: kept[1]], sep])
    types = np.repeat(np.arange(len(sides), dtype=np.int32), [len(side) for side in sides])
    return np.concatenate(sides).astype(np.int32), types, sum(kept) < len(ids)


def _of_words(
    vocabulary: TokenizerVocabulary, words: Sequence[str], most: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return ids, int32 [n], the places of first pieces, and whether words had to be cut."""
    # Without the blank, byte-level BPE would not know that a word begins.
    ids, lengths = vocabulary.encode_texts(
        [f" {word}" if i else word for i, word in enumerate(words)]
    )
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    unknown = vocabulary.unk_id if vocabulary.unk_id is not None else vocabulary.roles["pad"]
    parts = [part if len(part) else np.array([unknown]) for part in parts]  # each word has a place
    places = 1 + np.cumsum([0, *map(len, parts)])
    room = max(most - 2, 0)
    flat = np.concatenate(parts)[:room]
    inside = np.concatenate([[vocabulary.roles["cls"]], flat, [vocabulary.roles["sep"]]])
    return inside.astype(np.int32), places[:-1][places[:-1] <= room], places[-1] - 1 > room


text(
    "quality_labels",
    classification.quality(classification.NAMES),
    vocabularies.ro_mini_wordpiece,
    tuple(classification.NAMES.values()),
)
