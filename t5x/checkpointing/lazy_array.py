"""An array on disk: shape and dtype are known, numbers are read when asked for, part by part.

array = from_zarr("kernel", {"driver": "file", "path": "/run/checkpoint_25/target.x.kernel/"})
array.shape, array.dtype                       # (250112, 768), float32
array.read((slice(0, 1000), slice(None)))      # np.ndarray [1000, 768]
"""

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorstore as ts

from t5x.checkpointing import checksums

# How tensorstore's errors begin where not the files are at fault.
_PASSES = re.compile(
    "UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|PERMISSION_DENIED|UNAUTHENTICATED|ABORTED"
    "|CANCELLED"
)
Index = tuple[slice | int, ...]


class DamagedCheckpoint(ValueError):
    """A checkpoint whose files are cut off, missing or unreadable."""


@dataclasses.dataclass(frozen=True)
class LazyArray:
    """An array that `read` fetches, or a part of it; `digest` is what its writer noted, if it did.

    See `digests`. Who reads it part by part compares the digest of the whole himself.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    fetch: Callable[[Index], np.ndarray] = dataclasses.field(repr=False)
    name: str = ""
    digest: int | None = None

    def read(self, index: Index = ()) -> np.ndarray:
        """The part under `index` (all of it by default), from disk.

        Raises:
          DamagedCheckpoint: the files that hold it cannot be read, or not what was saved is there.
        """
        array = self.fetch(index)
        if index == () and self.digest is not None:
            self.check(checksums.digest(array))
        return array

    def check(self, found: int) -> None:
        """Refuses, with a DamagedCheckpoint, another digest than the writer's."""
        if found != self.digest:
            raise DamagedCheckpoint(
                f"{self.name} is not what was saved (its digest is {found:08x}, not "
                f"{self.digest:08x}), so the checkpoint is damaged; restore another one."
            )


def from_numpy(array: np.ndarray) -> LazyArray:
    """An array that is in memory already."""
    array = np.asarray(array)
    return LazyArray(array.shape, array.dtype, lambda index: array[index])


def from_zarr(
    name: str, kvstore: dict[str, Any], context: ts.Context, gaps_are_zeros: bool
) -> Callable[[], LazyArray]:
    """Starts opening a zarr array; returns a callable that waits for it and gives a LazyArray.

    Args:
      name: what messages call it.
      kvstore: tensorstore's description of the place, as `storage` makes it.
      context: holds the caches that arrays of one checkpoint share.
      gaps_are_zeros: whether the writer left out chunks of zeros; if not, a missing one is damage.
    """
    spec = {
        "driver": "zarr",
        "kvstore": kvstore,
        "recheck_cached_data": False,
        "fill_missing_data_reads": gaps_are_zeros,
    }
    opening = ts.open(spec, open=True, read=True, context=context)

    def wait() -> LazyArray:
        store = _readable(name, opening.result)
        return LazyArray(
            tuple(store.shape),
            store.dtype.numpy_dtype,
            lambda index: _readable(name, lambda: store[index].read().result()),
            name,
        )

    return wait


def storage(folder: str, ocdbt_path: str | None = None) -> dict[str, Any]:
    """Tensorstore's description of a folder on disk or under gs://.

    Args:
      folder: the path.
      ocdbt_path: with it, `folder` is an OCDBT database and this a place inside.

    Raises:
      ValueError: another scheme than gs://.
    """
    folder = os.fspath(folder)
    if folder.startswith("gs://"):
        bucket, _, path = folder.removeprefix("gs://").partition("/")
        base = {"driver": "gcs", "bucket": bucket, "path": path.rstrip("/") + "/"}
    elif "://" in folder:
        raise ValueError(f"{folder} is neither a local path nor one under gs://; copy it to one.")
    else:
        base = {"driver": "file", "path": os.path.abspath(folder) + "/"}
    if ocdbt_path is None:
        return base
    return {"driver": "ocdbt", "base": base, "path": ocdbt_path}


def _readable(name: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError as error:  # tensorstore raises it for almost everything
        reason = str(error).splitlines()[0][:300]
        if _PASSES.match(reason):
            raise RuntimeError(
                f"{name} cannot be read now ({reason}); the same command tries again."
            ) from error
        raise DamagedCheckpoint(
            f"{name} cannot be read from its checkpoint, so the checkpoint is incomplete or "
            f"damaged ({reason}); restore another one."
        ) from error
