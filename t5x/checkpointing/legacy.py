"""T5X's own checkpoint format of 2021-2023, in which its public models are published.

A folder `checkpoint_<step>/` holds `checkpoint`, a msgpack of the whole state in which each large
array is replaced by a description of the zarr array that stands beside it:

  {"version": 3, "optimizer": {"target": {…}, "state": {"step": …, "param_states": {…}}}}

  arrays = read_legacy("gs://t5-data/pretrained_models/t5x/mt5_base/checkpoint_1000000")
  arrays["target/token_embedder/embedding"].shape        # (250112, 768), not yet read

The format was read off checkpoints; needs no jax.
"""

import functools
import os
from typing import Any

import msgpack
import numpy as np
import tensorstore as ts
from etils import epath

from t5x.checkpointing import lazy_array
from t5x.checkpointing.lazy_array import DamagedCheckpoint, LazyArray

_ARRAY, _SCALAR = 1, 3  # msgpack extension types as flax.serialization assigns them


def read_legacy(folder: str) -> dict[str, LazyArray]:
    """The arrays of a checkpoint by name (`target/…`, `state/…`); only the index is read.

    Raises:
      DamagedCheckpoint: the index is cut off or of another format.
      ValueError: it was written before June 2021 and holds bfloat16 as integers.
    """
    state = read_index(os.path.join(folder, "checkpoint"))
    if "optimizer" not in state:
        raise DamagedCheckpoint(f"{folder}/checkpoint is no T5X checkpoint: it has no `optimizer`.")
    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})
    arrays = {}
    for name, leaf in flatten(state["optimizer"], is_leaf=_is_stored).items():
        if not _is_stored(leaf):
            arrays[name] = lazy_array.from_numpy(leaf)
        elif leaf.get("dtype") == "uint16":
            raise ValueError(
                f"{folder} was written before June 2021 (version {state.get('version')}) and "
                f"holds {name} as uint16; save it anew with T5X."
            )
        else:
            arrays[name] = _stored_array(f"{folder}: {name}", folder, leaf, context)
    return arrays


def read_index(path: str) -> dict[str, Any]:
    """A msgpack as flax writes it, its arrays as numpy.

    Raises:
      DamagedCheckpoint: it is cut off.
    """
    try:
        return msgpack.unpackb(
            epath.Path(path).read_bytes(), ext_hook=_unpack, raw=False, strict_map_key=False
        )
    except (ValueError, msgpack.UnpackException, TypeError) as error:
        raise DamagedCheckpoint(
            f"{path} is cut off or no msgpack ({error}); restore another checkpoint."
        ) from error


def flatten(tree: dict[str, Any], prefix: str = "", is_leaf=lambda _: False) -> dict[str, Any]:
    """Nested dicts to {"a/b/c": leaf}; empty ones vanish."""
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict) and not is_leaf(value):
            flat |= flatten(value, f"{prefix}{key}/", is_leaf)
        elif value is not None:
            flat[f"{prefix}{key}"] = value
    return flat


def _is_stored(leaf: Any) -> bool:
    return isinstance(leaf, dict) and {"driver", "kvstore", "metadata"} <= leaf.keys()


def _stored_array(name: str, folder: str, spec: dict[str, Any], context: ts.Context) -> LazyArray:
    """An array whose shape the index tells; its files are opened at the first read."""
    # The driver noted is the writer's: a checkpoint may since have moved between disk and bucket.
    path = (spec["kvstore"].get("path") or spec["path"]).rstrip("/")
    place = lazy_array.storage(os.path.join(folder, path))
    open_once = functools.cache(lambda: lazy_array.from_zarr(name, place, context, True)())
    return LazyArray(
        tuple(spec["metadata"]["shape"]),
        ts.dtype(spec["dtype"]).numpy_dtype,
        lambda index: open_once().read(index),
    )


def _unpack(code: int, data: bytes) -> np.ndarray:
    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"unknown msgpack extension {code}")
    shape, dtype, buffer = msgpack.unpackb(data, raw=False)
    return np.frombuffer(buffer, ts.dtype(dtype).numpy_dtype).reshape(shape)
