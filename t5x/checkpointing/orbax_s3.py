"""Orbax's writing of checkpoints to s3://, as it writes to gs://.

  orbax_s3.provide()
  ocp.AsyncCheckpointer(handler, temporary_path_class=orbax_s3.committed_by_file(folder))

Orbax lists files under s3:// but gives tensorstore the driver of disks for it.
"""

import re
from typing import Any

from orbax.checkpoint._src.path import atomicity, gcs_utils
from orbax.checkpoint._src.serialization import tensorstore_utils

from t5x.checkpointing.lazy_array import storage

_S3 = re.compile("^s3:/+")  # os.path.normpath, which Orbax applies, leaves one "/"
_is_bucket = tensorstore_utils._use_gcs_driver
_kvstore = gcs_utils.get_kvstore_for_gcs


def _is_bucket_or_s3(directory: str) -> bool:
    return bool(_S3.match(directory)) or _is_bucket(directory)


def _kvstore_or_s3(path: str) -> dict[str, Any]:
    if _S3.match(path):
        return storage(_S3.sub("s3://", path))
    return _kvstore(path)


def provide() -> None:
    """Make Orbax use tensorstore's driver for s3://; other folders are as before."""
    tensorstore_utils._use_gcs_driver = _is_bucket_or_s3
    gcs_utils.get_kvstore_for_gcs = _kvstore_or_s3


def committed_by_file(folder: str) -> type | None:
    """Return how Orbax commits a save below `folder`, None for its own choice.

    That would be a rename for s3://, which has none.
    """
    return atomicity.CommitFileTemporaryPath if folder.startswith("s3://") else None
