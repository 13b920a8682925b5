"""Arrays on disk with known shape and dtype.

    array = from_zarr("kernel", {"driver": "file", "path": "/run/checkpoint_25/target.x.kernel/"})
    array.shape, array.dtype                       # (250112, 768), float32
    array.read((slice(0, 1000), slice(None)))      # np.ndarray [1000, 768]

An array is read when it is needed, completely or in part.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorstore as ts

from common import small_files
from common.errors import Failure, UserError, first_line
from t5x.checkpointing import checksums

# The start of tensorstore's errors that do not mean damage, and may pass.
_TRANSIENT = re.compile(
    "UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|PERMISSION_DENIED|UNAUTHENTICATED|ABORTED"
    "|CANCELLED|INTERNAL|UNKNOWN"
)
Index = tuple[slice, ...]


class DamagedCheckpoint(UserError):
    """A checkpoint whose files are cut off, missing or unreadable."""


RESTORE_ANOTHER = "restore another checkpoint"
# Turns what a damaged or missing file of a checkpoint makes a parser raise into DamagedCheckpoint.
parsing = functools.partial(small_files.parsing, advice=RESTORE_ANOTHER, kind=DamagedCheckpoint)


@dataclasses.dataclass(frozen=True)
class LazyArray:
    """An array that `read` fetches, or a part of it.

    `digest` is the checksum that the writer stored (see `checksums`), None if unknown. `read`
    verifies it for the complete array; a caller that reads parts calls `check_digest` itself.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    fetch: Callable[[Index], np.ndarray] = dataclasses.field(repr=False)
    name: str = ""
    digest: int | None = None

    def read(self, index: Index = ()) -> np.ndarray:
        """Return the part at `index`, by default all of it.

        Raise DamagedCheckpoint if its files cannot be read or have changed.
        """
        array = self.fetch(index)
        if index == () and self.digest is not None:
            self.check_digest(checksums.digest(array))
        return array

    def check_digest(self, digest: int) -> None:
        """Raise DamagedCheckpoint for another digest than the writer's."""
        if digest != self.digest:
            raise DamagedCheckpoint(
                self.name,
                why=f"is not what was saved (its digest is {digest:08x}, not {self.digest:08x}), "
                "so the checkpoint is damaged",
                to_set=RESTORE_ANOTHER,
            )


def from_numpy(array: np.ndarray) -> LazyArray:
    """Return an array in memory as a LazyArray."""
    array = np.asarray(array)
    return LazyArray(array.shape, array.dtype, lambda index: array[index])


def from_zarr(
    name: str, kvstore: dict[str, Any], context: ts.Context, gaps_are_zeros: bool
) -> Callable[[], LazyArray]:
    """Start to open a zarr array; return a function that waits for it and returns a LazyArray.

    Args:
      name: for messages.
      kvstore: its location, from `storage`.
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
    """Return tensorstore's description of a folder on disk or under gs://.

    With `ocdbt_path`, `folder` is an OCDBT database and this a path inside it. Raise UserError for
    another scheme.
    """
    folder = os.fspath(folder)
    scheme, is_remote, address = folder.partition("://")
    if not is_remote:
        base = {"driver": "file", "path": os.path.abspath(folder) + "/"}
    elif scheme != "gs":
        raise UserError(folder, why="is neither local nor under gs://", to_set="copy it there")
    else:
        bucket, _, path = address.partition("/")
        base = {"driver": "gcs", "bucket": bucket, "path": path.rstrip("/") + "/"}
    if ocdbt_path is None:
        return base
    return {"driver": "ocdbt", "base": base, "path": ocdbt_path}


def _readable(name: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError as error:  # tensorstore raises it for almost everything
        reason = first_line(error).partition(" [tensorstore_spec")[0][:300]
        if _TRANSIENT.match(reason):
            why = f"cannot be read now ({reason})"
            raise Failure(name, why=why, to_set="the same command tries again") from error
        raise DamagedCheckpoint(
            name,
            why="cannot be read from its checkpoint, so the checkpoint is incomplete or damaged "
            f"({reason})",
            to_set=RESTORE_ANOTHER,
        ) from error
