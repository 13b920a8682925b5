"""A file in which every tensor's byte range is known before the first tensor is read.

Tensors come in any order, are cast and transposed block by block, and are written at their offsets,
so that there is never a second copy of a tensor in memory.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_BLOCK = 1 << 23  # bytes written at once
_TILE = 128  # rows and columns transposed at once; both sides of the copy fit in the CPU's cache


class ByteRange(NamedTuple):
    """Consecutive bytes of a file."""

    offset: int
    nbytes: int


def _transposed(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return `array.T` in C order; twice as fast as numpy, which reads complete columns."""
    result = np.empty(array.shape[::-1], dtype)
    for i in range(0, array.shape[0], _TILE):
        for j in range(0, array.shape[1], _TILE):
            result[j : j + _TILE, i : i + _TILE] = array[i : i + _TILE, j : j + _TILE].T
    return result


def blocks(array: np.ndarray, transpose: bool, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Yield the array, optionally transposed, cast to `dtype`, as consecutive blocks in C order."""
    view = array.T if transpose else array
    rows = max(1, _BLOCK // (view[0].size * dtype.itemsize))
    for start in range(0, len(view), rows):
        if transpose:
            yield _transposed(array[:, start : start + rows], dtype)
        else:
            yield np.ascontiguousarray(view[start : start + rows], dtype=dtype)


class PreallocatedFile:
    """Writes tensors to their byte ranges, each exactly once."""

    def __init__(
        self,
        path: Path,
        fixed: Sequence[tuple[int, bytes]],
        ranges: Mapping[str, Sequence[ByteRange]],
        size: int,
        dtype: np.dtype,
    ):
        """Open a new file; `fixed` is the offset and content of all bytes that are no tensor."""
        self._path = path
        self._dtype = dtype
        self._ranges = ranges
        self._missing = set(ranges)
        self._file = path.open("xb")
        try:
            os.truncate(self._file.fileno(), size)
            for offset, data in fixed:
                self._put(offset, memoryview(data))
        except OSError:
            self._file.close()
            raise

    def __enter__(self) -> "PreallocatedFile":
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self._finish()
        finally:
            self._file.close()

    def _put(self, offset: int, data: memoryview) -> None:
        while data:
            written = os.pwrite(self._file.fileno(), data, offset)
            offset, data = offset + written, data[written:]

    def write(self, name: str, array: np.ndarray, transpose: bool) -> None:
        """Write one tensor, optionally transposed, or raise ValueError or OSError."""
        if name not in self._ranges:
            raise ValueError(f"{self._path.name} has no place for {name}.")
        if name not in self._missing:
            raise ValueError(f"{name} is set twice in {self._path.name}.")
        ranges = list(self._ranges[name])
        if sum(part.nbytes for part in ranges) != array.size * self._dtype.itemsize:
            raise ValueError(f"{name} has {array.size} values, which is not its planned size.")
        for block in blocks(array, transpose, self._dtype):
            data = block.reshape(-1).view(np.uint8).data
            while data:
                offset, free = ranges[0]
                taken = min(free, len(data))
                self._put(offset, data[:taken])
                data = data[taken:]
                ranges[0] = ByteRange(offset + taken, free - taken)
                if taken == free:
                    del ranges[0]
        self._missing.discard(name)

    def _finish(self) -> None:
        if self._missing:
            raise ValueError(f"{self._path.name} still lacks {min(self._missing)}.")
        os.fsync(self._file.fileno())
