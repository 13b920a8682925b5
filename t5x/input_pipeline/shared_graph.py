"""One graph for all virtual shards of a host.

Python traces every function of a pipeline, twenty or more for a shard, which takes a quarter of a
second of a core. The pipelines of shards differ in the shard's number alone. So a pipeline that
reads its number from a tensor is traced once and then made for each number.
"""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import seqio
import tensorflow as tf

Rows = TypeVar("Rows")


@runtime_checkable
class SharedTask(Protocol):
    """A task whose shards may have one graph."""

    def shares_graph(self, split: str) -> bool:
        """Return whether `get_dataset` of a split may be called in a graph with an `AnyShard`."""


@dataclasses.dataclass(frozen=True)
class AnyShard(seqio.ShardInfo):
    """A shard whose `index` is a tensor, int64 [], that takes the values of `indices`."""

    indices: Sequence[int] = ()


def datasets(
    make: Callable[[seqio.ShardInfo], tuple[tf.data.Dataset, Rows]],
    indices: Sequence[int],
    count: int,
) -> list[tuple[tf.data.Dataset, Rows]]:
    """Return what `make` returns for each of some of `count` shards, but call it once, in a graph.

    Its second result, which must not depend on the shard, is copied.
    """
    made = []

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int64)])
    def variant_of(index: tf.Tensor) -> tf.Tensor:
        made.append(make(AnyShard(index, count, indices)))
        return tf.data.experimental.to_variant(made[-1][0])

    variants = [variant_of(tf.constant(index, tf.int64)) for index in indices]
    (dataset, rows), *_ = made
    of_variant = lambda variant: tf.data.experimental.from_variant(variant, dataset.element_spec)
    return [(of_variant(variant), copy.deepcopy(rows)) for variant in variants]
