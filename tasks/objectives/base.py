"""The common part of all objectives: documents to chunks of tokens, chunks to examples.

class Copy(Objective):
    def lengths(self, inputs_length, vocabulary=None):
        return Lengths(tokens=inputs_length - 1, targets=inputs_length)

    def corruption(self, sequence_length, vocabulary, task):
        length = self.lengths(sequence_length["inputs"]).tokens
        ragged = tf.RaggedTensor.from_tensor
        return by_chunks(length, lambda chunks, seed: (ragged(chunks), ragged(chunks)))

seqio.Task(preprocessors=[..., Copy().preprocess, seqio.preprocessors.append_eos])
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import seqio
import tensorflow as tf

from common.errors import UserError
from common.source import DEFAULT_READING, Reading
from tasks import vocabularies
from tasks.text import tokenize
from tasks.text.token_chunks import CHUNKS_A_CALL, split_tokens, unbatch


class Lengths(NamedTuple):
    """How much text fills an example."""

    tokens: int  # tokens of text before corruption
    targets: int  # tokens of the targets, EOS included


# (tokens int32 [n], seed [2]) -> ragged inputs and targets before EOS.
Corrupt = Callable[[tf.Tensor, tf.Tensor], tuple[tf.RaggedTensor, tf.RaggedTensor]]


class Objective:
    """Turns documents into examples; subclasses define `lengths` and `corruption`.

    `open_rows` is the number of rows that packing fills at once.
    """

    open_rows = 1

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Return the longest text for these inputs and its targets' length, or raise UserError."""
        raise NotImplementedError

    def corruption(
        self, sequence_length: Mapping[str, int], vocabulary: seqio.Vocabulary, task: str
    ) -> tuple[int, Corrupt]:
        """Return how many tokens a call corrupts, and the function for it, or raise UserError."""
        raise NotImplementedError

    def vocabulary(self, vocabulary: str | Callable[[], str]) -> seqio.Vocabulary:
        """Return the vocabulary of a SentencePiece file, or of a function that returns its path."""
        return vocabularies.sentencepiece(vocabulary)

    def features(self, vocabulary: seqio.Vocabulary) -> dict[str, seqio.Feature]:
        """Return the features of an example."""
        feature = seqio.Feature(vocabulary=vocabulary, add_eos=True, dtype=tf.int32)
        return {"inputs": feature, "targets": feature}

    def tokenize(
        self,
        dataset: tf.data.Dataset,
        output_features: Mapping[str, seqio.Feature],
        reading: Reading = DEFAULT_READING,
    ) -> tf.data.Dataset:
        """Turn documents {"text"} into what `preprocess` reads, {"targets": int32 [n]}."""
        return tokenize.tokenize(dataset, dict(output_features), reading=reading)

    def preprocess(
        self,
        dataset: tf.data.Dataset,
        sequence_length: Mapping[str, int],
        output_features: Mapping[str, seqio.Feature],
        task: str = "(unnamed)",
    ) -> tf.data.Dataset:
        """Turn what `tokenize` returns into `features`; raise UserError for unfit lengths.

        A seqio preprocessor; `task` is named in errors. The ids of T5's objectives are those before
        EOS. At the end of the dataset a single token, which cannot be split, is dropped.
        """
        vocabulary = output_features["targets"].vocabulary
        vocabularies.check_text_to_text(vocabulary, task)
        n_tokens, corrupt = _traced(
            _Same(self), tuple(sequence_length.items()), _Same(vocabulary), task
        )

        @seqio.map_over_dataset(num_seeds=1)
        def make_examples(example, seed):
            tokens = example["targets"]
            # The shards of a run draw the same seeds in the same order. Folding in the tokens makes
            # them differ; otherwise the rows of a batch would all be corrupted at the same places.
            seed = tf.random.experimental.stateless_fold_in(tf.stack(seed), tf.reduce_sum(tokens))
            inputs, targets = corrupt(tokens, seed)
            return {"inputs": inputs, "targets": targets}

        return unbatch(make_examples(split_tokens(dataset, n_tokens)))


class _Same:
    """An object as a key of a cache, equal only to itself; seqio's vocabularies have no hash."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@functools.lru_cache(maxsize=32)
def _traced(
    objective: _Same, lengths: tuple[tuple[str, int], ...], vocabulary: _Same, task: str
) -> tuple[int, Corrupt]:
    """Return `corruption` as a graph that all shards of a process share.

    Tracing it takes half a second of a core, which a host with many shards would spend for each,
    and AutoGraph, which rewrites Python branches on tensors, would take two more.
    """
    with tf.init_scope():  # its constants must not belong to the graph that needs them first
        n_tokens, corrupt = objective.value.corruption(dict(lengths), vocabulary.value, task)
        return n_tokens, tf.function(corrupt, autograph=False)


def by_chunks(length: int, corrupt_chunks: Corrupt) -> tuple[int, Corrupt]:
    """Return a `corruption` of chunks, int32 [n, length], many in one call.

    The last chunk of a dataset is shorter; one of a single token is dropped.
    """

    def corrupt(tokens, seed):
        end = tf.size(tokens) // length * length
        inputs, targets = corrupt_chunks(tf.reshape(tokens[:end], [-1, length]), seed)
        rest = tokens[end:]

        def with_rest():
            last = corrupt_chunks(rest[tf.newaxis], seed)
            return tf.concat([inputs, last[0]], 0), tf.concat([targets, last[1]], 0)

        return tf.cond(tf.size(rest) > 1, with_rest, lambda: (inputs, targets))

    return length * CHUNKS_A_CALL, corrupt


def check_targets(
    sequence_length: Mapping[str, int], needed: Lengths, objective: str, task: str
) -> None:
    """Raise UserError with the length to set if targets would not hold what is hidden."""
    if sequence_length["targets"] < needed.targets:
        raise UserError(
            "TASK_FEATURE_LENGTHS['targets']",
            sequence_length["targets"],
            f"but inputs of {sequence_length['inputs']} with {objective} give {needed.targets} "
            "target tokens",
            f"set it to {needed.targets}",
        ).at(f"task {task}")
