"""A checkpoint's parameters as one flat mapping, layer by layer, whatever way they were saved.

    tree = open_tree([path])
    tree["encoder/layers_0/attention/query/kernel"].read()        # numpy [D, H*K]
    tree = average([tree_a, tree_b])

Two kinds of tree exist: `encoder/layers_0/…`, one array a layer, and the scanned
`encoder/encoder/…` or `encoder/layers/…` (T5X's scalable_t5), where axis 1 of each array counts
layers and attention kernels keep heads and head_dim apart ([D, L, H, K] and [H, L, K, D]).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from t5x.checkpointing.lazy_array import Index
from t5x.checkpointing.reader import open_checkpoint


class Array(Protocol):
    """An array that is still on the disk; `t5x.checkpointing.reader.LazyArray` is one."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, index: Index = ()) -> np.ndarray:
        """Reads it whole, or the part under `index`."""


Tree = Mapping[str, Array]
_BLOCK = 32 << 20  # bytes of rows read at once: half of what T5X and the trainer write as a chunk
_SCANNED = re.compile(r"^(encoder|decoder)/(?:\1|layers)/(.+)$")


def parameters(checkpoint: Tree) -> dict[str, Array]:
    """The parameters of a checkpoint, named without `target/`; optimizer state stays behind.

    Raises:
      ValueError: where there are none.
    """
    found = {
        name.removeprefix("target/"): array
        for name, array in checkpoint.items()
        if name.startswith("target/")
    }
    if not found:
        raise ValueError("The checkpoint has no `target`: it holds no parameters.")
    return found


class _Kept:
    """Remembers the array read last, since a scanned one is wanted once for every layer."""

    def __init__(self):
        self._array, self._values = None, None

    def read(self, array: Array) -> np.ndarray:
        if self._array is not array:
            self._values = None  # freed before the next one is read
            self._values = array.read()
            self._array = array
        return self._values


class _Layer:
    """One layer of a scanned array."""

    def __init__(self, stacked: Array, layer: int, shape: tuple[int, ...], kept: _Kept):
        self._stacked, self._layer, self._kept = stacked, layer, kept
        self.shape, self.dtype = shape, stacked.dtype

    def read(self, index: Index = ()) -> np.ndarray:
        if index == ():  # whole, as for every layer in turn
            return self._kept.read(self._stacked)[:, self._layer].reshape(self.shape)
        layer = self._stacked.read((slice(None), self._layer))
        return layer.reshape(self.shape)[index]


def _layer_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    shape = (shape[0], *shape[2:])
    if len(shape) == 3:  # heads and head_dim join
        return (
            (shape[0] * shape[1], shape[2]) if "/out/" in name else (shape[0], shape[1] * shape[2])
        )
    return shape


def per_layer(tree: Tree) -> dict[str, Array]:
    """Names each layer's arrays `layers_<i>`; those that stand so already are passed on.

    The layers of one scanned array follow each other, and reading them in that order reads it once.
    """
    kept = _Kept()
    found: dict[str, Array] = {}
    for name, array in tree.items():
        scanned = _SCANNED.match(name)
        if not scanned or len(array.shape) < 2:
            found[name] = array
            continue
        stack, rest = scanned.groups()
        for layer in range(array.shape[1]):
            shape = _layer_shape(name, tuple(array.shape))
            found[f"{stack}/layers_{layer}/{rest}"] = _Layer(array, layer, shape, kept)
    return found


class _Mean:
    """The mean of one array over several checkpoints, summed in float32."""

    def __init__(self, arrays: list[Array]):
        self._arrays = arrays
        self.shape, self.dtype = tuple(arrays[0].shape), np.dtype(np.float32)

    def read(self, index: Index = ()) -> np.ndarray:
        total = self._arrays[0].read(index).astype(np.float32)
        for array in self._arrays[1:]:
            total += array.read(index)
        total /= len(self._arrays)
        return total


def average(trees: list[Tree]) -> dict[str, Array]:
    """The mean of several checkpoints of one run.

    Raises:
      ValueError: where they hold different tensors.
    """
    if len(trees) == 1:
        return dict(trees[0])
    for tree in trees[1:]:
        differing = set(trees[0]) ^ set(tree)
        differing |= {
            name for name in set(trees[0]) & set(tree) if trees[0][name].shape != tree[name].shape
        }
        if differing:
            raise ValueError(
                f"Checkpoints of different networks cannot be averaged: they differ in "
                f"{sorted(differing)[0]}."
            )
    return {name: _Mean([tree[name] for tree in trees]) for name in trees[0]}


def open_tree(paths: list[str]) -> Tree:
    """The parameters of a checkpoint, or the mean of several, layer by layer."""
    opened = [parameters(open_checkpoint(path)) for path in paths]
    return average([per_layer(tree) for tree in opened])


def row_blocks(array: Array) -> Iterator[slice]:
    """Runs of rows that make a matrix, each some 32 MB in float32."""
    length, width = array.shape
    rows = max(1, _BLOCK // (4 * width))
    return (slice(start, min(start + rows, length)) for start in range(0, length, rows))


def read_rows(array: Array, block: slice) -> np.ndarray:
    """Rows of a matrix, float32."""
    return np.asarray(array.read((block,)), np.float32)


def own_bias(tree: Tree) -> bool:
    """Whether each layer has its own relative position table (umT5)."""
    return any(re.search(r"/layers_\d+/relpos_bias/", name) for name in tree)
