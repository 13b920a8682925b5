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

from collections.abc import Callable, Mapping
from typing import NamedTuple

import seqio
import tensorflow as tf

from tasks.text.token_chunks import CHUNKS_A_CALL, split_tokens, unbatch


class Lengths(NamedTuple):
    """How much text fills an example."""

    tokens: int  # of the text before corruption
    targets: int  # of the targets, EOS included


# (tokens int32 [n], seed [2]) -> ragged inputs and targets before EOS.
Corrupt = Callable[[tf.Tensor, tf.Tensor], tuple[tf.RaggedTensor, tf.RaggedTensor]]


class Objective:
    """Turns documents into examples; subclasses define `lengths` and `corruption`."""

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Return the longest text for these inputs and its targets' length, or raise ValueError."""
        raise NotImplementedError

    def corruption(
        self, sequence_length: Mapping[str, int], vocabulary: seqio.Vocabulary, task: str
    ) -> tuple[int, Corrupt]:
        """Return how many tokens a call corrupts, and the function for it, or raise ValueError."""
        raise NotImplementedError

    def preprocess(
        self,
        dataset: tf.data.Dataset,
        sequence_length: Mapping[str, int],
        output_features: Mapping[str, seqio.Feature],
        task: str = "(unnamed)",
    ) -> tf.data.Dataset:
        """Turn documents {"targets": int32 [n]} into {"inputs", "targets"}, both before EOS.

        A seqio preprocessor; `task` is named in errors. At the end of the dataset a single token,
        which cannot be split, is dropped.
        """
        vocabulary = output_features["targets"].vocabulary
        n_tokens, corrupt = self.corruption(sequence_length, vocabulary, task)

        @seqio.map_over_dataset(num_seeds=1)
        def make_examples(example, seed):
            tokens = example["targets"]
            # The shards of a run draw the same seeds in the same order. Folding in the tokens makes
            # them differ; otherwise the rows of a batch would all be corrupted at the same places.
            seed = tf.random.experimental.stateless_fold_in(tf.stack(seed), tf.reduce_sum(tokens))
            inputs, targets = corrupt(tokens, seed)
            return {"inputs": inputs, "targets": targets}

        return unbatch(make_examples(split_tokens(dataset, n_tokens)))


def by_chunks(length: int, corrupt_chunks: Corrupt) -> tuple[int, Corrupt]:
    """Return a `corruption` of chunks, int32 [n, length], many in one call.

    The last chunk of a dataset is shorter; one of a single token is dropped.
    """

    def corrupt(tokens, seed):
        end = tf.size(tokens) // length * length
        inputs, targets = corrupt_chunks(tf.reshape(tokens[:end], [-1, length]), seed)
        rest = tokens[end:]
        if tf.size(rest) > 1:
            last = corrupt_chunks(rest[tf.newaxis], seed)
            inputs, targets = tf.concat([inputs, last[0]], 0), tf.concat([targets, last[1]], 0)
        return inputs, targets

    return length * CHUNKS_A_CALL, corrupt


def check_targets(
    sequence_length: Mapping[str, int], needed: Lengths, objective: str, task: str
) -> str:
    """Return the beginning of an error message, or raise ValueError with the length to set."""
    setting = f"task {task}: inputs {sequence_length['inputs']} with {objective} give"
    if sequence_length["targets"] < needed.targets:
        raise ValueError(
            f"{setting} {needed.targets} target tokens, but TASK_FEATURE_LENGTHS['targets'] is "
            f"{sequence_length['targets']}: set it to {needed.targets}"
        )
    return setting
