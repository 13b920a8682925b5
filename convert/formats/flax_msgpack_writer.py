"""flax_model.msgpack, written tensor by tensor, as `flax.serialization.to_bytes` would.

    with open_flax(path, {"shared/embedding": (512, 64)}, "float32") as out:
        out.write("shared/embedding", array, turn=False)

A tree is nested msgpack maps. An array is extension 1 around (shape, dtype's name, bytes); one of
more than 2**30 bytes is a map of flat chunks, since msgpack's lengths end at 2**32.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import msgpack
import numpy as np

from convert.formats.preallocated_file import Piece, PlannedFile
from convert.formats.safetensors_writer import DTYPES

_CHUNK = 2**30
_EXTENSION = 1  # flax.serialization's code of an array


class _Plan:
    """Walks the tree once, noting what stands where."""

    def __init__(self, dtype: str, chunk: int):
        self._dtype = dtype
        self._chunk = chunk
        self._packer = msgpack.Packer(use_bin_type=True)
        self.skeleton: list[tuple[int, bytes]] = []
        self.places: dict[str, list[Piece]] = {}
        self.end = 0

    def _put(self, data: bytes) -> None:
        self.skeleton.append((self.end, data))
        self.end += len(data)

    def _map(self, length: int) -> None:
        self._put(self._packer.pack_map_header(length))

    def _key(self, key) -> None:
        self._put(self._packer.pack(key))

    def _array(self, shape: tuple[int, ...], name: str) -> None:
        nbytes = int(np.prod(shape, dtype=np.int64)) * DTYPES[self._dtype].itemsize
        inner = (
            self._packer.pack_array_header(3)
            + self._packer.pack(shape)
            + self._packer.pack(self._dtype)
            + b"\xc6"  # bin 32
            + struct.pack(">I", nbytes)
        )
        self._put(struct.pack(">BIb", 0xC9, len(inner) + nbytes, _EXTENSION) + inner)  # ext 32
        self.places.setdefault(name, []).append(Piece(self.end, nbytes))
        self.end += nbytes

    def leaf(self, shape: tuple[int, ...], name: str) -> None:
        """One tensor, in chunks if it is large."""
        size = int(np.prod(shape, dtype=np.int64))
        values = self._chunk // DTYPES[self._dtype].itemsize
        if size <= values:
            self._array(shape, name)
            return
        self._map(3)
        self._key("__msgpack_chunked_array__")
        self._key(True)
        self._key("shape")
        self._map(len(shape))
        for i, length in enumerate(shape):
            self._key(str(i))
            self._key(length)
        self._key("chunks")
        starts = range(0, size, values)
        self._map(len(starts))
        for i, start in enumerate(starts):
            self._key(str(i))
            self._array((min(values, size - start),), name)

    def tree(self, node: Mapping) -> None:
        """A map and all below it; a leaf is (shape, name)."""
        self._map(len(node))
        for key, value in node.items():
            self._key(key)
            if isinstance(value, dict):
                self.tree(value)
            else:
                self.leaf(*value)


def open_flax(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: str,
    chunk: int = _CHUNK,
) -> PlannedFile:
    """Plans a msgpack file; `shapes` by path in the tree, arrays above `chunk` bytes split."""
    tree: dict = {}
    for name, shape in shapes.items():
        *parents, leaf = name.split("/")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[leaf] = (tuple(shape), name)
    plan = _Plan(dtype, chunk)
    plan.tree(tree)
    return PlannedFile(path, plan.skeleton, plan.places, plan.end, DTYPES[dtype])
