"""Tasks of similar texts, for encoders that give texts vectors.

    pairs("questions", Rows("user/name", columns={"first": "question", "second": "answer"}),
          "my_vocabulary")                        # trained on: the texts of a row are similar
    pairs("sts", Rows("user/name", columns={"first": "a", "second": "b", "targets": "score"}),
          "my_vocabulary")                        # measured: Spearman's correlation with the scores

An example over BERT's ids, [CLS] 2 and [SEP] 3, is both texts end to end:

    inputs        2  11  12  3  2  13  14  3
    targets       1   1   1  1  2   2   2  2
    loss_weights  0   0   0  0  1   0   0  0

Each text keeps its beginning, up to half of the length.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

import gin
from tasks import caches, vocabularies
from tasks.labels import FEATURES, LENGTH, MARK, PAIR, map_texts
from tasks.pairs import SHUFFLED
from tasks.record_counts import MADE
from tasks.rows import Rows
from tasks.text.normalize import normalize


class VectorVocabulary(seqio.PassThroughVocabulary):
    """What an encoder of texts returns: numbers, which stay as they are."""

    def __init__(self):
        super().__init__(3)

    def decode(self, ids):
        """Return the numbers as a list."""
        return np.asarray(ids).tolist()

    def __eq__(self, other) -> bool:
        return isinstance(other, VectorVocabulary)

    __hash__ = object.__hash__


@gin.configurable
def vocabulary() -> VectorVocabulary:
    """Return the targets' vocabulary of every task of this module."""
    return VectorVocabulary()


class SimilarityTask(caches.Task):
    """A task of similar texts, which can read lines of a file."""

    reads_lines = True


def pairs(
    name: str,
    source: Rows,
    vocabulary: str | Callable[[], str] | seqio.Vocabulary,
    length: int = LENGTH,
    **normalization,
) -> SimilarityTask:
    """Register a task of two texts a row, with scores of their similarity or without.

    `source` has columns "first" and "second", and perhaps "targets", a number; the other arguments
    are those of `tasks.labels.text`. Raise ValueError for other columns.
    """
    if {*source.names} not in ({*PAIR}, {*PAIR, "targets"}):
        raise ValueError(
            f"task {name} compares texts: give its source the columns 'first' and 'second', and "
            "'targets' if their similarity is known"
        )
    if not isinstance(vocabulary, seqio.Vocabulary):
        vocabulary = vocabularies.tokenizer(vocabulary)
    tokens = seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)
    which = seqio.Feature(VectorVocabulary(), add_eos=False, dtype=tf.int32)
    make = functools.partial(
        examples, length=length, counter=source.counter, normalization=normalization
    )
    return seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[make],
        output_features={"inputs": tokens, "targets": which, "loss_weights": MARK},
        metric_fns=[spearman if "targets" in source.names else similarity],
        shuffle_buffer_size=SHUFFLED,
        task_cls=SimilarityTask,
    )


def examples(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    length: int = LENGTH,
    counter=None,
    normalization: Mapping[str, bool] | None = None,
    sequence_length: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Turn texts into examples; "inputs" may hold one text, or two with a TAB between them."""
    tokens = vocabularies.masking(output_features["inputs"].vocabulary)
    cls, sep = tokens.roles["cls"], tokens.roles["sep"]
    split = counter.split if counter else None
    most = (sequence_length or {}).get("inputs") or length
    spelling = normalization or {}

    def make(*given):
        texts = [value.decode("utf-8", "replace") for value in given[:-1]]
        texts = [part for text in texts for part in text.split("\t", 1)]
        texts = [normalize(part, **spelling) for part in texts]
        ids, lengths = tokens.encode_texts(texts)
        room = max(most // len(texts) - 2, 0)
        parts = np.split(ids, np.cumsum(lengths)[:-1])
        sides = [np.array([cls, *part[:room], sep], np.int32) for part in parts]
        which = np.repeat(np.arange(1, len(sides) + 1), [len(side) for side in sides])
        asked = np.diff(which, prepend=1)
        if counter:
            counter.add({MADE: 1, "cut_inputs": int(lengths.max() > room)}, split=split)
        return np.concatenate(sides), which.astype(np.int32), asked.astype(np.int32)

    return map_texts(dataset, make, FEATURES[:3])


def similarity(targets: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return the mean cosine of the pairs, -1..1."""
    return {"similarity": float(np.mean(scores)) if len(scores) else 0.0}


def spearman(targets: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return Spearman's correlation of cosines with the known similarities, -1..1.

    Raises:
      ValueError: a known similarity is not a number.
    """
    ranked = [_ranks(np.array(values, float)) for values in (targets, scores)]
    apart = len(targets) > 1 and all(np.ptp(ranks) > 0 for ranks in ranked)
    return {"spearman": float(np.corrcoef(ranked[0], ranked[1])[0, 1]) if apart else 0.0}


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values; equal ones share their mean."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]
