"""model.safetensors, written tensor by tensor.

The format is a length (8 bytes), a JSON header and the tensors' bytes, back to back
(https://huggingface.co/docs/safetensors). Above `shard_bytes` the tensors are split over
`model-00001-of-0000N.safetensors`, with `model.safetensors.index.json` beside them.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from convert.atomic_output import write_json
from convert.formats.preallocated_file import ByteRange, PreallocatedFile

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_CODES = {"float32": "F32", "bfloat16": "BF16"}


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * DTYPES[dtype].itemsize


def _split(shapes: Mapping[str, tuple[int, ...]], dtype: str, shard_bytes: int) -> list[list[str]]:
    """Split names, in order, into lists of at most `shard_bytes` (or one tensor, if larger)."""
    files: list[list[str]] = [[]]
    filled = 0
    for name, shape in shapes.items():
        nbytes = _nbytes(shape, dtype)
        if files[-1] and filled + nbytes > shard_bytes:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += nbytes
    return files


def _open(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> PreallocatedFile:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    places, end = [], 0
    for name, shape in shapes.items():
        start, end = end, end + _nbytes(shape, dtype)
        places.append((name, start, end - start))
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    fixed = len(text).to_bytes(8, "little") + text
    ranges = {name: [ByteRange(len(fixed) + start, nbytes)] for name, start, nbytes in places}
    return PreallocatedFile(path, [(0, fixed)], ranges, len(fixed) + end, DTYPES[dtype])


class SafetensorsWriter(contextlib.ExitStack):
    """All files of one model; leaving the `with` block checks that each tensor was written."""

    def __init__(
        self,
        folder: Path,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: str,
        shard_bytes: int = 5 * 10**9,
    ):
        """Create a file of these shapes, by name; `dtype` is "float32" or "bfloat16"."""
        super().__init__()
        self._files: dict[str, PreallocatedFile] = {}
        files = _split(shapes, dtype, shard_bytes)
        weight_map = {}
        for number, names in enumerate(files, start=1):
            file_name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
            if len(files) == 1:
                file_name = "model.safetensors"
            file = _open(folder / file_name, {name: shapes[name] for name in names}, dtype)
            self._files.update(dict.fromkeys(names, self.enter_context(file)))
            weight_map.update(dict.fromkeys(names, file_name))
        if len(files) > 1:
            total = sum(_nbytes(shape, dtype) for shape in shapes.values())
            index = {"metadata": {"total_size": total}, "weight_map": weight_map}
            write_json(folder / "model.safetensors.index.json", index)

    def write(self, name: str, array: np.ndarray, transpose: bool) -> None:
        """Write one tensor, optionally transposed."""
        if name not in self._files:
            raise ValueError(f"model.safetensors has no place for {name}.")
        self._files[name].write(name, array, transpose)
