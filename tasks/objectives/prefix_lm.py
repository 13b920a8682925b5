"""Prefix language modelling: read the first part of a text, write the rest.

A chunk of text is cut in two at a random position (Raffel et al. 2020, arXiv:1910.10683, section
3.2.3; Liu et al. 2018, arXiv:1801.10198). No sentinel is needed. Cut at 4, EOS 1:

    text      Ana  are  mere  și  |  pere  ,   dar  nu   are  nuci
    tokens     11   12    13  14     15   16    17  18   12   19
    inputs     11   12    13  14   1
    targets    15   16    17  18  12   19    1

    PrefixLM().lengths(512)                      -> Lengths(tokens=512, targets=512)
"""

import dataclasses
from collections.abc import Mapping

import seqio
import tensorflow as tf

from common.errors import UserError
from tasks.objectives.base import Corrupt, Lengths, Objective, by_chunks


@dataclasses.dataclass(frozen=True)
class PrefixLM(Objective):
    """Cut chunks of min(inputs, targets) tokens anywhere; both parts have at least one token."""

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Return the chunk length and targets' length with which chunks fill the inputs."""
        return Lengths(inputs_length, inputs_length)

    def corruption(
        self, sequence_length: Mapping[str, int], vocabulary: seqio.Vocabulary, task: str
    ) -> tuple[int, Corrupt]:
        """Return a function that cuts each chunk in two."""
        length = min(sequence_length["inputs"], sequence_length["targets"])
        if length < 2:
            raise UserError(
                "TASK_FEATURE_LENGTHS",
                dict(sequence_length),
                "but inputs and targets must hold a token and EOS each",
                "set both to at least 2",
            ).at(f"task {task}")

        def cut_chunks(chunks, seed):
            n, size = tf.shape(chunks)[0], tf.shape(chunks)[1]
            at = tf.random.stateless_uniform([n], seed, 1, size, tf.int32)
            is_target = tf.range(size) >= at[:, tf.newaxis]
            inputs = tf.RaggedTensor.from_tensor(chunks, at)
            return inputs, tf.ragged.boolean_mask(chunks, is_target)

        return by_chunks(length, cut_chunks)
