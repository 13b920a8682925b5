"""A checkpoint's parameters as one flat mapping, layer by layer, however they were saved."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from common.errors import UserError
from convert import weight_map
from convert.sizes import Sizes, T5Sizes
from t5x.checkpointing.lazy_array import Index, LazyArray
from t5x.checkpointing.reader import open_checkpoint

Tree = weight_map.Tree
S = TypeVar("S", bound=Sizes)
_MAY_BE_ZERO = ("/bias", "position_embedder/embedding", "type_embedder/embedding")
_OWN_BIAS = re.compile(r"/layers_\d+/relpos_bias/")


def open_tree(paths: list[str]) -> Tree:
    """Return the parameters of a checkpoint, or the mean of several, layer by layer."""
    return average([parameters(open_checkpoint(path)) for path in paths])


def parameters(checkpoint: Tree) -> dict[str, LazyArray]:
    """Return the parameters, named without `target/`; raise UserError if there are none."""
    arrays = {
        name.removeprefix("target/"): array
        for name, array in checkpoint.items()
        if name.startswith("target/")
    }
    if not arrays:
        raise UserError("the checkpoint", why="has no `target`, so it holds no parameters")
    return arrays


def _mean(arrays: list[LazyArray]) -> LazyArray:
    def fetch(index):
        total = arrays[0].read(index).astype(np.float32)
        for array in arrays[1:]:
            total += array.read(index)
        total /= len(arrays)
        return total

    return LazyArray(tuple(arrays[0].shape), np.dtype(np.float32), fetch)


def average(trees: list[dict[str, LazyArray]]) -> Tree:
    """Return the mean, summed in float32; raise UserError if the trees' tensors differ."""
    first, *rest = trees
    if not rest:
        return first
    for tree in rest:
        differing = set(first) ^ set(tree)
        differing |= {n for n in set(first) & set(tree) if first[n].shape != tree[n].shape}
        if differing:
            raise UserError(
                why="checkpoints of different networks cannot be averaged, and these differ in "
                f"{sorted(differing)[0]}"
            )
    return {name: _mean([tree[name] for tree in trees]) for name in first}


def check_network(tree: Tree, sizes: S) -> S:
    """Return `sizes`, with own_relative_bias as the tree has it (umT5: a table in each layer).

    Raises:
      UserError: the tree is not exactly this network.
    """
    if isinstance(sizes, T5Sizes):
        own_bias = any(_OWN_BIAS.search(name) for name in tree)
        sizes = dataclasses.replace(sizes, own_relative_bias=own_bias)
    weight_map.guard_sources(sizes, {name: array.shape for name, array in tree.items()})
    return sizes


def checked(tree: Tree) -> Tree:
    """Return the tree, whose parameters are checked for NaN and zeros when they are read.

    Names are paths of parameters, or of a state dict (`target/…`, `state/…`).
    """

    def lazy(name: str, array: LazyArray) -> LazyArray:
        def fetch(index: Index) -> np.ndarray:
            values = array.read()
            _check_values(name, values)
            return values[index]

        return array if name.startswith("state/") else LazyArray(array.shape, array.dtype, fetch)

    return {name: lazy(name, array) for name, array in tree.items()}


def _check_values(name: str, array: np.ndarray) -> None:
    """Raise UserError for NaN, infinity, and all zeros, which is how a lost file reads.

    Minimum and maximum propagate NaN and infinity, and need no second array.
    """
    least, most = np.min(array), np.max(array)
    if least == most == 0 and not name.endswith(_MAY_BE_ZERO):
        raise UserError(
            name,
            why="holds nothing but zeros, which training never produces, so its data are missing",
            to_set="take another checkpoint",
        )
    if not (np.isfinite(least) and np.isfinite(most)):
        count = int(array.size - np.isfinite(array).sum())
        raise UserError(
            name,
            why=f"holds {count} values that are NaN or infinite, so the run had failed by then",
            to_set="take an earlier checkpoint",
        )


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"a/b": leaf} as {"a": {"b": leaf}}."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree
