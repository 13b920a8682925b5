"""Open a checkpoint of either format as arrays by name, each read when needed.

  arrays = open_checkpoint("runs/tiny/checkpoint_2000")
  arrays["target/encoder/layers_0/attention/query/kernel"].read()     # np.ndarray [D, H*K]

Names are the state dict's paths: `target/…`, `state/step`, `state/param_states/…/{m,v,…}`. Needs no
jax, so a converter runs on a machine without it.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import numpy as np
import tensorstore as ts
from etils import epath

from common.errors import UserError
from common.small_files import read_json
from t5x.checkpointing import layout, lazy_array
from t5x.checkpointing.lazy_array import DamagedCheckpoint, LazyArray, parsing

# The legacy format is T5X's own of 2021-2023, in which its public models are published. A folder
# `checkpoint_<step>/` holds `checkpoint`, a msgpack of the state in which each large array is
# replaced by a description of a zarr array in the same folder:
#   {"version": 3, "optimizer": {"target": {…}, "state": {"step": …, "param_states": {…}}}}
# It is documented nowhere and was read off checkpoints.

DIGESTS = "digests"  # key of our metadata: {name: `checksums.digest` of the array}
_PLACEHOLDER = "PLACEHOLDER://"
_ARRAY, _SCALAR = 1, 3  # msgpack extension types of flax.serialization


def open_checkpoint(path: str) -> dict[str, LazyArray]:
    """Return all arrays of one checkpoint, on disk or under gs://.

    `path` is the checkpoint's own folder, `…/checkpoint_<step>`. Raise UserError if it holds no
    complete checkpoint, DamagedCheckpoint if files inside are missing or cut off.
    """
    kind = layout.kind(path)
    if kind == "legacy":
        return _read_legacy(path)
    if kind is None:
        raise layout.no_checkpoint(path)
    arrays = _read_orbax(os.path.join(path, "state"))
    with parsing(path):
        digests = dict(layout.custom_metadata(path).get(DIGESTS) or {})  # T5X writes none
    if lost := sorted(digests.keys() - arrays.keys()):
        why = f"has lost {lost[0]}, so the checkpoint is damaged"
        raise DamagedCheckpoint(path, why=why, to_set=lazy_array.RESTORE_ANOTHER)
    return {n: dataclasses.replace(a, digest=digests.get(n)) for n, a in arrays.items()}


def _read_orbax(folder: str) -> dict[str, LazyArray]:
    """Return the tree in `folder`; all arrays are opened at once."""
    in_memory, stored, gaps_are_zeros = _orbax_index(folder)
    ocdbt = (epath.Path(folder) / "manifest.ocdbt").exists()
    # Arrays are read once; only OCDBT's index is worth caching.
    context = ts.Context({"cache_pool": {"total_bytes_limit": 8 << 20}})
    opening = {}
    for name, key in stored.items():
        store = (
            lazy_array.storage(folder, f"{key}/")
            if ocdbt
            else lazy_array.storage(os.path.join(folder, key))
        )
        opening[name] = lazy_array.from_zarr(f"{folder}: {name}", store, context, gaps_are_zeros)
    arrays = {name: lazy_array.from_numpy(value) for name, value in in_memory.items()}
    return arrays | {name: wait() for name, wait in opening.items()}


def _orbax_index(folder: str) -> tuple[dict[str, Any], dict[str, str], bool]:
    """Return arrays in the index itself, keys of stored arrays, whether zeros were left out."""
    metadata = epath.Path(folder) / "_METADATA"
    if not metadata.exists() and (epath.Path(folder) / "checkpoint").exists():
        # T5X of 2023: a msgpack with placeholders
        flat = _flatten(_read_msgpack(os.path.join(folder, "checkpoint")))
        stored = {
            name: value.removeprefix(_PLACEHOLDER)
            for name, value in flat.items()
            if isinstance(value, str) and value.startswith(_PLACEHOLDER)
        }
        return {name: value for name, value in flat.items() if name not in stored}, stored, True
    with parsing(metadata):
        described = read_json(metadata)
        paths = [
            [part["key"] for part in entry["key_metadata"]]
            for entry in described["tree_metadata"].values()
            if entry["value_metadata"]["value_type"] not in ("Dict", "None")
        ]
        stored = {"/".join(path): ".".join(path) for path in paths}
    if described.get("use_zarr3"):
        why = "is written as zarr 3, which T5X does not write"
        raise UserError(folder, why=why, to_set="save it again with T5X")
    return {}, stored, not described.get("store_array_data_equal_to_fill_value")


def _read_legacy(folder: str) -> dict[str, LazyArray]:
    """Return the arrays of a legacy checkpoint; only its index is read.

    Raise DamagedCheckpoint for an index that is cut off or of another format, UserError for one of
    before June 2021, which holds bfloat16 as integers.
    """
    index = os.path.join(folder, "checkpoint")
    state = _read_msgpack(index)
    with parsing(index):
        leaves = _flatten(state["optimizer"], is_leaf=_is_stored)
    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})
    arrays = {}
    for name, leaf in leaves.items():
        if not _is_stored(leaf):
            arrays[name] = lazy_array.from_numpy(leaf)
        elif leaf.get("dtype") == "uint16":
            raise UserError(
                folder,
                why=f"was written before June 2021 (version {state.get('version')}) and holds "
                f"{name} as uint16",
                to_set="save it again with T5X",
            )
        else:
            with parsing(index):
                arrays[name] = _legacy_array(f"{folder}: {name}", folder, leaf, context)
    return arrays


def _legacy_array(name: str, folder: str, spec: Mapping[str, Any], context: ts.Context):
    """Return an array whose shape the index holds; its files are opened at the first read."""
    # The driver is the writer's: a checkpoint may have moved between disk and bucket since.
    path = (spec["kvstore"].get("path") or spec["path"]).rstrip("/")
    store = lazy_array.storage(os.path.join(folder, path))
    open_once = functools.cache(lambda: lazy_array.from_zarr(name, store, context, True)())
    return LazyArray(
        tuple(spec["metadata"]["shape"]),
        ts.dtype(spec["dtype"]).numpy_dtype,
        lambda index: open_once().read(index),
    )


def _is_stored(leaf: Any) -> bool:
    return isinstance(leaf, dict) and {"driver", "kvstore", "metadata"} <= leaf.keys()


def _read_msgpack(path: str) -> dict[str, Any]:
    """Return a msgpack of flax with its arrays as numpy."""

    def unpack(code: int, data: bytes) -> np.ndarray:
        if code not in (_ARRAY, _SCALAR):
            raise ValueError(f"unknown msgpack extension {code}")
        shape, dtype, buffer = msgpack.unpackb(data, raw=False)
        return np.frombuffer(buffer, ts.dtype(dtype).numpy_dtype).reshape(shape)

    with parsing(path):
        content = epath.Path(path).read_bytes()
        return dict(msgpack.unpackb(content, ext_hook=unpack, raw=False, strict_map_key=False))


def _flatten(
    tree: Mapping[str, Any], prefix: str = "", is_leaf: Callable[[Any], bool] = lambda _: False
) -> dict[str, Any]:
    """Return nested dicts as {"a/b/c": leaf}, without empty ones."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and not is_leaf(value):
            flat |= _flatten(value, f"{prefix}{key}/", is_leaf)
        elif value is not None:
            flat[f"{prefix}{key}"] = value
    return flat
