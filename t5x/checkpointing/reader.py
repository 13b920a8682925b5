"""The arrays of a checkpoint by name, whichever of the two kinds it is, each read when asked for.

  arrays = open_checkpoint("runs/tiny/checkpoint_2000")
  arrays["target/encoder/layers_0/attention/query/kernel"].read()     # np.ndarray [D, H*K]

Names are the state dict's paths: `target/…`, `state/step`, `state/param_states/…/{m,v,…}`. A model
trained with scanned layers (T5X's `scalable_t5`) has `encoder/layers/…` with the layers on axis 1.
Needs no jax, so a converter runs on a machine without one.
"""

import dataclasses
import json
import os

import tensorstore as ts
from etils import epath

from t5x.checkpointing import layout, lazy_array, legacy
from t5x.checkpointing.lazy_array import DamagedCheckpoint, LazyArray

DIGESTS = "digests"  # what `checkpoints` notes, by name, and `digests.digest` computes
_PLACEHOLDER = "PLACEHOLDER://"


def open_checkpoint(path: str) -> dict[str, LazyArray]:
    """All arrays of one checkpoint, of either kind, on disk or under gs://.

    Args:
      path: the checkpoint's own folder, `…/checkpoint_<step>`.

    Raises:
      ValueError: there is no such folder, it is no checkpoint, or an unfinished one.
      DamagedCheckpoint: files inside are missing or cut off.
    """
    kind = layout.kind(path)
    if kind == "legacy":
        return legacy.read_legacy(path)
    if kind == "orbax":
        return _with_digests(path, _read_orbax(os.path.join(path, "state")))
    raise ValueError(layout.why_no_checkpoint(path))


def _with_digests(path: str, arrays: dict[str, LazyArray]) -> dict[str, LazyArray]:
    """The arrays with the digests that `checkpoints` has noted; T5X notes none."""
    noted = layout.notes(path).get(DIGESTS) or {}
    if lost := sorted(noted.keys() - arrays.keys()):
        raise DamagedCheckpoint(
            f"{path} has lost {lost[0]}, so the checkpoint is damaged; restore another one."
        )
    return {n: dataclasses.replace(a, digest=noted.get(n)) for n, a in arrays.items()}


def _read_orbax(folder: str) -> dict[str, LazyArray]:
    """The tree in `folder`: names first, then all arrays are opened at once."""
    in_memory, stored, gaps_are_zeros = _names(folder)
    ocdbt = (epath.Path(folder) / "manifest.ocdbt").exists()
    # Tensors are read once; what is worth keeping is OCDBT's index.
    context = ts.Context({"cache_pool": {"total_bytes_limit": 8 << 20}})
    opening = {}
    for name, key in stored.items():
        place = (
            lazy_array.storage(folder, f"{key}/")
            if ocdbt
            else lazy_array.storage(os.path.join(folder, key))
        )
        opening[name] = lazy_array.from_zarr(f"{folder}: {name}", place, context, gaps_are_zeros)
    arrays = {name: lazy_array.from_numpy(value) for name, value in in_memory.items()}
    return arrays | {name: wait() for name, wait in opening.items()}


def _names(folder: str) -> tuple[dict[str, object], dict[str, str], bool]:
    """Values that the index itself holds, keys of stored arrays, whether zeros were left out."""
    metadata = epath.Path(folder) / "_METADATA"
    if not metadata.exists():  # T5X of 2023: a msgpack with placeholders
        index = legacy.read_index(os.path.join(folder, "checkpoint"))
        flat = legacy.flatten(index)
        stored = {
            name: value.removeprefix(_PLACEHOLDER)
            for name, value in flat.items()
            if isinstance(value, str) and value.startswith(_PLACEHOLDER)
        }
        return {name: value for name, value in flat.items() if name not in stored}, stored, True
    try:
        described = json.loads(metadata.read_text())
        if described.get("use_zarr3"):
            raise ValueError(f"{folder} is written as zarr 3, which T5X does not write.")
        paths = [
            [part["key"] for part in entry["key_metadata"]]
            for entry in described["tree_metadata"].values()
            if entry["value_metadata"]["value_type"] not in ("Dict", "None")
        ]
    except (json.JSONDecodeError, KeyError) as error:
        raise DamagedCheckpoint(
            f"{metadata} is cut off or of an unknown form ({error}); restore another checkpoint."
        ) from error
    gaps_are_zeros = not described.get("store_array_data_equal_to_fill_value")
    return {}, {"/".join(path): ".".join(path) for path in paths}, gaps_are_zeros
