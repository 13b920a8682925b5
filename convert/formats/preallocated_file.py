"""A file whose every byte has its place before the first tensor is read.

    with PlannedFile(path, skeleton, places, size, np.dtype("float32")) as file:
        file.write("shared.weight", array, turn=False)

Tensors come in any order, are cast and turned block by block, and go straight to their place, so
that no second copy of a tensor ever stands in memory.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

_BLOCK = 1 << 23  # bytes written at once
_TILE = 128  # rows and columns turned at once, which both sides of a copy hold in the cache


class Piece(NamedTuple):
    """Bytes of a file, or of a tensor, at a place."""

    offset: int
    nbytes: int


def _turned(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`array.T` in C order; twice as fast as numpy, which reads whole columns."""
    turned = np.empty(array.shape[::-1], dtype)
    for i in range(0, array.shape[0], _TILE):
        for j in range(0, array.shape[1], _TILE):
            turned[j : j + _TILE, i : i + _TILE] = array[i : i + _TILE, j : j + _TILE].T
    return turned


def blocks(array: np.ndarray, turn: bool, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Yields the array, transposed if `turn`, cast to `dtype`, as contiguous runs in C order."""
    view = array.T if turn else array
    if view.ndim == 0:
        view = view.reshape(1)
    row_bytes = max(1, view[0].size * dtype.itemsize) if len(view) else 1
    rows = max(1, _BLOCK // row_bytes)
    for start in range(0, len(view), rows):
        if turn:
            yield _turned(array[:, start : start + rows], dtype)
        else:
            yield np.ascontiguousarray(view[start : start + rows], dtype=dtype)


class PlannedFile:
    """Writes tensors to their places; each exactly once."""

    def __init__(
        self,
        path: Path,
        skeleton: list[tuple[int, bytes]],
        places: dict[str, list[Piece]],
        size: int,
        dtype: np.dtype,
    ):
        """Opens a new file; `skeleton`: (offset, bytes) of everything that is no tensor."""
        self._path = path
        self._dtype = dtype
        self._places = dict(places)
        self._left = set(places)
        self._file = path.open("xb")
        try:
            os.truncate(self._file.fileno(), size)
            for offset, data in skeleton:
                self._put(offset, memoryview(data))
        except OSError:
            self._file.close()
            raise

    def __enter__(self) -> "PlannedFile":
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.finish()
        finally:
            self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def _put(self, offset: int, data: memoryview) -> None:
        while data:
            written = os.pwrite(self._file.fileno(), data, offset)
            offset, data = offset + written, data[written:]

    def write(self, name: str, array: np.ndarray, turn: bool) -> None:
        """Writes one tensor, transposed if `turn`; its size must be the planned one.

        Raises:
          ValueError: for a name that is not planned, or written before.
          OSError: where the disk is full.
        """
        if name not in self._places:
            raise ValueError(f"{self._path.name} has no place for {name}.")
        if name not in self._left:
            raise ValueError(f"{name} is set twice in {self._path.name}.")
        pieces = list(self._places[name])
        if sum(piece.nbytes for piece in pieces) != array.size * self._dtype.itemsize:
            raise ValueError(f"{name} has {array.size} values, which is not its planned size.")
        for block in blocks(array, turn, self._dtype):
            data = memoryview(block.reshape(-1).view(np.uint8))
            while data:
                offset, room = pieces[0]
                self._put(offset, data[:room])
                taken = min(room, len(data))
                pieces[0] = Piece(offset + taken, room - taken)
                data = data[taken:]
                if not pieces[0].nbytes:
                    del pieces[0]
        self._left.discard(name)

    def finish(self) -> None:
        """Checks that nothing is left unset and puts the file on the disk.

        Raises:
          ValueError: naming a tensor that was never written.
        """
        if self._left:
            raise ValueError(f"{self._path.name} still lacks {sorted(self._left)[0]}.")
        os.fsync(self._file.fileno())
