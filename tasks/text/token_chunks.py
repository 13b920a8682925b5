"""Chunks of tokens, the documents' ids concatenated and cut, and steps from them to examples."""

from collections.abc import Mapping

import seqio
import tensorflow as tf

# Many chunks in one call, since the operations on one chunk cost more to start than to do.
CHUNKS_A_CALL = 32


def split_tokens(dataset: tf.data.Dataset, length: int) -> tf.data.Dataset:
    """Concatenate the documents' tokens and cut them into chunks of exactly `length`.

    The tokens are `targets`, int32 [n]; other features are dropped. As in T5, documents follow each
    other without a separator, and no token is dropped, so only the last chunk of a bounded dataset
    is shorter.
    """
    if set(dataset.element_spec) != {"targets"}:  # a step for each document costs time
        dataset = dataset.map(lambda x: {"targets": x["targets"]}, synchronous=True)
    return dataset.rebatch(length)


def unbatch(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Turn ragged rows into one example an element, vectors [None]; scalars stay scalars."""

    def fn(row):
        for value in row.values():
            if value.shape.rank != 0:
                value.set_shape([None])
        return row

    return dataset.unbatch().map(fn, synchronous=True)


def append_eos(
    dataset: tf.data.Dataset, output_features: Mapping[str, seqio.Feature]
) -> tf.data.Dataset:
    """Append EOS to every feature with `add_eos`, as seqio's preprocessor of this name does."""
    ends = {
        name: [feature.vocabulary.eos_id]
        for name, feature in output_features.items()
        if feature.add_eos
    }

    def fn(example):
        return {k: tf.concat([v, ends[k]], 0) if k in ends else v for k, v in example.items()}

    return dataset.map(fn, synchronous=True)
