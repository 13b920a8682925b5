"""flax_model.msgpack, written tensor by tensor, as `flax.serialization.to_bytes` would write it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import numpy as np

from convert.formats.safetensors_writer import DTYPES
from convert.t5x_params import nested
from t5x.checkpointing.lazy_array import LazyArray


def write(path: Path, arrays: Mapping[str, LazyArray], dtype: str) -> None:
    """Write arrays, by path ("encoder/…/kernel"); `dtype` is "float32" or "bfloat16"."""
    with path.open("xb") as file:
        _write(file, nested(arrays), dtype)


def _write(file: BinaryIO, node: Any, dtype: str) -> None:
    from flax import serialization

    if isinstance(node, LazyArray):
        values = np.ascontiguousarray(node.read(), DTYPES[dtype])
        file.write(serialization.msgpack_serialize(values))
        return
    file.write(msgpack.Packer().pack_map_header(len(node)))
    for key, child in node.items():
        file.write(msgpack.packb(key))
        _write(file, child, dtype)
