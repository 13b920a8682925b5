"""A T5X checkpoint, written tensor by tensor.

    write(run / "checkpoint_0", {"target/token_embedder/embedding": array, "state/step": step})

The format is T5X's own of 2022 (`t5x.checkpointing.reader` reads it, and so does every T5X), since
it needs only one array in memory at a time: one folder with a zarr array for each, and at the end
the msgpack file `checkpoint` that lists them, without which the folder is not a checkpoint.
"""

from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import tensorstore as ts

from convert.atomic_output import check_full_disk
from convert.t5x_params import Tree, nested
from t5x.checkpointing.lazy_array import LazyArray

_VERSION = 3  # arrays carry their own dtype, bfloat16 included
# Random float32 hardly shrinks; float32 that came from bfloat16 halves, at the speed of a disk.
_COMPRESSOR = {"id": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 1}
_CHUNK = 32 << 20  # bytes at most, or one row


def write(folder: Path, arrays: Tree) -> None:
    """Write `arrays`, by state dict path, into a new folder, with one in memory at a time."""
    folder.mkdir(parents=True)
    leaves = {name: _leaf(folder, name, array) for name, array in arrays.items()}
    index = {"version": _VERSION, "optimizer": nested(leaves)}
    (folder / "checkpoint").write_bytes(msgpack.packb(index))


def _leaf(folder: Path, name: str, array: LazyArray) -> Any:
    """Return the array's entry in the index: where it is stored, or its value if it has one."""
    values = array.read()
    # T5X keeps what it does not partition in the index, and reads it from nowhere else.
    if values.size == 1 or name.endswith(("/v_row", "/v_col")):
        packed = msgpack.packb((values.shape, values.dtype.name, values.tobytes()))
        return msgpack.ExtType(1, packed)
    return _stored(folder, name.replace("/", "."), values)


def _stored(folder: Path, key: str, values: np.ndarray) -> dict[str, Any]:
    rows = max(1, min(len(values), _CHUNK // max(1, values[0].nbytes)))
    metadata = {
        "shape": list(values.shape),
        "chunks": [rows, *values.shape[1:]],
        "compressor": _COMPRESSOR,
    }
    leaf = {"driver": "zarr", "dtype": values.dtype.name, "metadata": metadata}
    kvstore = {"driver": "file", "path": f"{folder.resolve() / key}/"}
    try:
        store = ts.open(leaf | {"kvstore": kvstore}, create=True).result()
        for i in range(0, len(values), rows):  # in one piece, the store would hold all of it again
            block = slice(i, min(i + rows, len(values)))
            store[block].write(values[block]).result()
    except ValueError as error:
        check_full_disk(error, folder)
        raise
    return leaf | {"kvstore": {"driver": "file", "path": f"{key}/"}}
