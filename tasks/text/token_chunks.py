"""Runs: the documents' tokens joined end to end and cut, and how many are worked on at a time.

runs = split_runs(dataset, 568)                # {"targets": int32 [568]}
examples = each_run(dataset, 568, hide_rows)   # {"inputs", "targets"}: int32 [any]
"""

from collections.abc import Callable, Mapping

import seqio
import tensorflow as tf

from tasks.text import inline_map

RUNS_A_CALL = 32


def split_runs(dataset: tf.data.Dataset, length: int, key: str = "targets") -> tf.data.Dataset:
    """Joins the documents' tokens end to end and cuts them into runs of exactly `length`.

    Documents follow each other without a mark between them, as in T5; what is left of one run's
    last document begins the next. Nothing is dropped, so only the last run of a bounded dataset
    is shorter. Where the cuts fall differs in each epoch, as the order of documents does.

    Args:
      dataset: elements {key: int32 [any]}; other features are dropped.
      length: tokens a run.
      key: the feature.
    """
    return inline_map.map_each(dataset, lambda x: {key: x[key]}).rebatch(length)


def each_run(dataset: tf.data.Dataset, length: int, hide_rows: Callable) -> tf.data.Dataset:
    """Joins documents, cuts runs of `length` and turns each into an example.

    Args:
      dataset: elements {"targets": int32 [any]}.
      length: tokens a run; the last of a bounded dataset is shorter, and left out if of one token.
      hide_rows: from runs [n, any] and a seed [2] to (inputs, targets), ragged, before EOS.
    """

    @seqio.map_over_dataset(num_seeds=1)
    def hide(example, seed):
        tokens = example["targets"]
        seed = seed_of(tokens, seed)
        whole = tf.size(tokens) // length * length
        inputs, targets = hide_rows(tf.reshape(tokens[:whole], [-1, length]), seed)
        rest = tokens[whole:]
        if tf.size(rest) > 1:  # the end of a bounded dataset
            ends = hide_rows(rest[tf.newaxis], seed)
            inputs, targets = tf.concat([inputs, ends[0]], 0), tf.concat([targets, ends[1]], 0)
        return {"inputs": inputs, "targets": targets}

    # Many runs a call, since the operations on one run cost more to start than to do.
    return unbatch(hide(split_runs(dataset, length * RUNS_A_CALL)))


def unbatch(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """From ragged rows to one example an element, int32 [None] each."""

    def fn(row):
        for value in row.values():
            value.set_shape([None])
        return row

    return inline_map.map_each(dataset.unbatch(), fn)


def append_eos(
    dataset: tf.data.Dataset, output_features: Mapping[str, seqio.Feature]
) -> tf.data.Dataset:
    """Puts EOS behind every feature that is to have it, as seqio's preprocessor of this name."""
    ends = {k: [f.vocabulary.eos_id] for k, f in output_features.items() if f.add_eos}

    def fn(example):
        return {k: tf.concat([v, ends[k]], 0) if k in ends else v for k, v in example.items()}

    return inline_map.map_each(dataset, fn)


def seed_of(tokens: tf.Tensor, seed) -> tf.Tensor:
    """A seed [2] of these tokens' own: all shards of a run draw the same seeds one after the other.

    Without it the rows of a batch, which come from different shards, would be hidden alike.
    """
    return tf.random.experimental.stateless_fold_in(tf.stack(seed), tf.reduce_sum(tokens))
