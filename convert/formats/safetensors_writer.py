"""model.safetensors, written tensor by tensor.

    with SafetensorsWriter(folder, {"shared.weight": (512, 64)}, "float32") as out:
        out.write("shared.weight", array, turn=False)

The format is a length (8 bytes), a JSON header and the tensors' bytes, back to back
(https://huggingface.co/docs/safetensors). Above `shard_bytes` the tensors are spread over
`model-00001-of-0000N.safetensors` with `model.safetensors.index.json` beside them.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from convert.formats.preallocated_file import Piece, PlannedFile

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_CODES = {"float32": "F32", "bfloat16": "BF16"}


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * DTYPES[dtype].itemsize


def shards(shapes: Mapping[str, tuple[int, ...]], dtype: str, shard_bytes: int) -> list[list[str]]:
    """Splits names, in order, into runs of at most `shard_bytes` (or one tensor, if larger)."""
    runs: list[list[str]] = [[]]
    filled = 0
    for name, shape in shapes.items():
        nbytes = _nbytes(shape, dtype)
        if runs[-1] and filled + nbytes > shard_bytes:
            runs.append([])
            filled = 0
        runs[-1].append(name)
        filled += nbytes
    return runs


def _open(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> PlannedFile:
    header: dict = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + _nbytes(shape, dtype)
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    first = 8 + len(text)
    places = {
        name: [Piece(first + header[name]["data_offsets"][0], _nbytes(shape, dtype))]
        for name, shape in shapes.items()
    }
    return PlannedFile(
        path, [(0, len(text).to_bytes(8, "little") + text)], places, first + end, DTYPES[dtype]
    )


class SafetensorsWriter(contextlib.ExitStack):
    """All shards of one model; leaving the `with` block checks that each tensor was written."""

    def __init__(
        self,
        folder: Path,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: str,
        shard_bytes: int = 5 * 10**9,
    ):
        """`shapes` are those of the file, by name; `dtype` is "float32" or "bfloat16"."""
        super().__init__()
        self._owner: dict[str, PlannedFile] = {}
        runs = shards(shapes, dtype, shard_bytes)
        owners = {}
        for number, names in enumerate(runs, start=1):
            file_name = f"model-{number:05d}-of-{len(runs):05d}.safetensors"
            if len(runs) == 1:
                file_name = "model.safetensors"
            file = _open(folder / file_name, {name: shapes[name] for name in names}, dtype)
            self._owner.update(dict.fromkeys(names, self.enter_context(file)))
            owners.update(dict.fromkeys(names, file_name))
        if len(runs) > 1:
            total = sum(_nbytes(shape, dtype) for shape in shapes.values())
            index = {"metadata": {"total_size": total}, "weight_map": owners}
            text = json.dumps(index, indent=2, sort_keys=True) + "\n"
            (folder / "model.safetensors.index.json").write_text(text)

    def write(self, name: str, array: np.ndarray, turn: bool) -> None:
        """Writes one tensor, transposed if `turn`."""
        if name not in self._owner:
            raise ValueError(f"model.safetensors has no place for {name}.")
        self._owner[name].write(name, array, turn)
