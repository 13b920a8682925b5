"""A T5X checkpoint, written tensor by tensor.

    write(run / "checkpoint_0", {"target/token_embedder/embedding": array, "state/step": step})

The format is T5X's own (`t5x.checkpointing.legacy` reads it, and so does T5X of every year), since
it needs no more than one array in memory: a zarr array in a folder each, and at last the msgpack
`checkpoint` that names them all, without which the folder is no checkpoint.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import tensorstore as ts

from convert.t5x_params import Array

_VERSION = 3  # arrays carry their own dtype, bfloat16 included
_BLOCK = 32 << 20  # bytes of a chunk
# Random float32 hardly shrinks; what came from bfloat16 does by half, at the speed of a disk.
_COMPRESSOR = {"id": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 1}


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": leaf} as {"a": {"b": leaf}}."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def write(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Writes a checkpoint's folder, which must not be there; one array is in memory at a time.

    Args:
      folder: `…/checkpoint_<step>`.
      arrays: by state dict path, `target/…` and `state/…`.

    Raises:
      OSError: the disk is full, or the folder cannot be made.
    """
    folder.mkdir(parents=True)
    leaves = {name: _leaf(folder, name, array) for name, array in arrays.items()}
    index = {"version": _VERSION, "optimizer": nested(leaves)}
    (folder / "checkpoint").write_bytes(msgpack.packb(index))


def _leaf(folder: Path, name: str, array: Array) -> Any:
    """What the index says of an array: where it is stored, or itself where it is one number."""
    values = array.read()
    if values.ndim == 0:
        return values.item()
    if values.size == 1:
        packed = msgpack.packb((values.shape, values.dtype.name, values.tobytes()))
        return msgpack.ExtType(1, packed)
    return _stored(folder, name.replace("/", "."), values)


def _rows(values: np.ndarray) -> int:
    """Rows of a chunk."""
    return max(1, min(len(values), _BLOCK // max(1, values[0].nbytes)))


def blocks(values: np.ndarray) -> Iterator[slice]:
    """Runs of rows that make the array, a chunk each."""
    rows, end = _rows(values), len(values)
    return (slice(start, min(start + rows, end)) for start in range(0, end, rows))


def _stored(folder: Path, key: str, values: np.ndarray) -> dict[str, Any]:
    metadata = {
        "shape": list(values.shape),
        "chunks": [_rows(values), *values.shape[1:]],
        "compressor": _COMPRESSOR,
    }
    leaf = {"driver": "zarr", "dtype": values.dtype.name, "metadata": metadata}
    place = {"driver": "file", "path": f"{folder.resolve() / key}/"}
    try:
        store = ts.open(leaf | {"kvstore": place}, create=True).result()
        for block in blocks(values):
            store[block].write(values[block]).result()
    except ValueError as error:  # tensorstore tells by its text alone that the disk is full
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise
    return leaf | {"kvstore": {"driver": "file", "path": f"{key}/"}}
