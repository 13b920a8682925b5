"""model.safetensors, as transformers' `save_pretrained` writes it.

Above `shard_bytes` the tensors are split over `model-00001-of-0000N.safetensors`, with
`model.safetensors.index.json` next to them. One of these files is in memory at a time.
"""

import errno
import math
import os
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from convert.atomic_output import write_json
from t5x.checkpointing.lazy_array import LazyArray

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def write(
    folder: Path, tensors: Mapping[str, LazyArray], dtype: str, shard_bytes: int = 5 * 10**9
) -> None:
    """Write tensors, by name, into `folder`; `dtype` is "float32" or "bfloat16"."""
    files = _split(tensors, dtype, shard_bytes)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(files, start=1):
        file_name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        if len(files) == 1:
            file_name = "model.safetensors"
        values = {n: np.ascontiguousarray(tensors[n].read(), DTYPES[dtype]) for n in names}
        _save(folder / file_name, values)
        weight_map |= dict.fromkeys(names, file_name)
    if len(files) > 1:
        total = sum(_nbytes(tensor, dtype) for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_json(folder / "model.safetensors.index.json", index)


def _save(path: Path, values: dict[str, np.ndarray]) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(values, path, metadata={"format": "pt"})
    except SafetensorError as error:  # only its text says that the disk is full
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


def _nbytes(tensor: LazyArray, dtype: str) -> int:
    return math.prod(tensor.shape) * DTYPES[dtype].itemsize


def _split(tensors: Mapping[str, LazyArray], dtype: str, shard_bytes: int) -> list[list[str]]:
    """Split names, in order, into lists of at most `shard_bytes` (or one tensor, if larger)."""
    files: list[list[str]] = [[]]
    filled = 0
    for name, tensor in tensors.items():
        nbytes = _nbytes(tensor, dtype)
        if files[-1] and filled + nbytes > shard_bytes:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += nbytes
    return files
