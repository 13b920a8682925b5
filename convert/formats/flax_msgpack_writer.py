"""flax_model.msgpack, written tensor by tensor, as `flax.serialization.to_bytes` would write it.

A tree is nested msgpack maps. An array is extension 1 around (shape, dtype name, bytes); one of
more than 2**30 bytes is a map of flat chunks, since msgpack's lengths end at 2**32.
"""

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack

from convert.formats.preallocated_file import ByteRange, PreallocatedFile
from convert.formats.safetensors_writer import DTYPES
from convert.t5x_params import nested

_CHUNK = 2**30
_EXTENSION = 1  # flax.serialization's code of an array


class _MsgpackLayout:
    """The bytes of a tree that are not tensors, and the byte ranges of its tensors."""

    def __init__(self, dtype: str, chunk: int):
        self._dtype = dtype
        self._itemsize = DTYPES[dtype].itemsize
        self._chunk_size = chunk // self._itemsize
        self._packer = msgpack.Packer(use_bin_type=True)
        self.fixed: list[tuple[int, bytes]] = []
        self.ranges: dict[str, list[ByteRange]] = {}
        self.end = 0

    def _put(self, data: bytes) -> None:
        self.fixed.append((self.end, data))
        self.end += len(data)

    def add(self, node: Any) -> None:
        """Append a map, a number, or an array given as (shape, tensor's name)."""
        if isinstance(node, dict):
            self._put(self._packer.pack_map_header(len(node)))
            for key, value in node.items():
                self._put(self._packer.pack(key))
                self.add(value)
        elif not isinstance(node, tuple):
            self._put(self._packer.pack(node))
        elif math.prod(node[0]) > self._chunk_size:
            self.add(self._chunked(*node))
        else:
            self._array(*node)

    def _chunked(self, shape: tuple[int, ...], name: str) -> dict[str, Any]:
        size, most = math.prod(shape), self._chunk_size
        chunks = [((min(most, size - start),), name) for start in range(0, size, most)]
        by_number = lambda values: {str(i): value for i, value in enumerate(values)}
        return {
            "__msgpack_chunked_array__": True,
            "shape": by_number(shape),
            "chunks": by_number(chunks),
        }

    def _array(self, shape: tuple[int, ...], name: str) -> None:
        nbytes = math.prod(shape) * self._itemsize
        inner = (
            self._packer.pack_array_header(3)
            + self._packer.pack(shape)
            + self._packer.pack(self._dtype)
            + b"\xc6"  # bin 32
            + struct.pack(">I", nbytes)
        )
        self._put(struct.pack(">BIb", 0xC9, len(inner) + nbytes, _EXTENSION) + inner)  # ext 32
        self.ranges.setdefault(name, []).append(ByteRange(self.end, nbytes))
        self.end += nbytes


def open_flax(
    path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str, chunk: int = _CHUNK
) -> PreallocatedFile:
    """Open a msgpack file for tensors of `shapes`, by path; split those of over `chunk` bytes."""
    layout = _MsgpackLayout(dtype, chunk)
    layout.add(nested({name: (tuple(shape), name) for name, shape in shapes.items()}))
    return PreallocatedFile(path, layout.fixed, layout.ranges, layout.end, DTYPES[dtype])
