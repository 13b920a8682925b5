"""Prefix language modelling: read the first part of a text, write the rest.

A run of text is cut in two at a random place (Raffel et al. 2020, arXiv:1910.10683, section 3.2.3;
Liu et al. 2018, arXiv:1801.10198). No sentinel is needed. Cut at 4, EOS 1:

    text      Ana  are  mere  și  |  pere  ,   dar  nu   are  nuci
    tokens     11   12    13  14     15   16    17  18   12   19
    inputs     11   12    13  14   1
    targets    15   16    17  18  12   19    1

    PrefixLM().lengths(512)                      -> Lengths(tokens=512, targets=512)
    seqio.Task(preprocessors=[..., PrefixLM().preprocess, seqio.preprocessors.append_eos])
"""

import dataclasses
from collections.abc import Mapping

import seqio
import tensorflow as tf

from tasks.objectives import span_corruption
from tasks.text.token_chunks import each_run


@dataclasses.dataclass(frozen=True)
class PrefixLM:
    """Cuts runs of min(inputs, targets) tokens anywhere; either part has at least one."""

    def lengths(
        self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None
    ) -> span_corruption.Lengths:
        """Returns the run, and the targets' length, with which runs fill the inputs."""
        del vocabulary
        return span_corruption.Lengths(inputs_length, inputs_length)

    def preprocess(
        self,
        dataset: tf.data.Dataset,
        sequence_length: Mapping[str, int],
        output_features: Mapping[str, seqio.Feature],
        task: str = "prefix LM",
    ) -> tf.data.Dataset:
        """Turns {"targets": int32 [any]} a document into {"inputs", "targets"}, both before EOS.

        A last run of one token, which cannot be cut, is left out.

        Raises:
          ValueError: inputs or targets are too short for one token and EOS.
        """
        del output_features
        length = min(sequence_length["inputs"], sequence_length["targets"])
        if length < 2:
            raise ValueError(
                f"task {task}: TASK_FEATURE_LENGTHS is {dict(sequence_length)}, but inputs and "
                "targets must hold a token and EOS each: set both to at least 2"
            )

        def cut_rows(rows, seed):
            n, size = tf.shape(rows)[0], tf.shape(rows)[1]
            at = tf.random.stateless_uniform([n], seed, 1, size, tf.int32)
            written = tf.range(size) >= at[:, tf.newaxis]
            return tf.RaggedTensor.from_tensor(rows, at), tf.ragged.boolean_mask(rows, written)

        return each_run(dataset, length, cut_rows)
