"""Arrays are read in part or completely, and a complete one is compared to its digest."""

import re
import types
import zipfile

import numpy as np
import pytest

from common.errors import Failure
from t5x.checkpointing import checksums, lazy_array
from t5x.checkpointing.lazy_array import DamagedCheckpoint, LazyArray

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_a_part_is_read_alone():
    array = lazy_array.from_numpy(VALUES)
    assert (array.shape, array.dtype) == ((3, 4), np.float32)
    assert np.array_equal(array.read(), VALUES)
    assert np.array_equal(array.read((slice(1, 2), slice(None))), VALUES[1:2])


def test_a_complete_array_is_compared_to_its_digest():
    digest = checksums.digest(VALUES)
    fetch = lambda index: VALUES[index]
    assert np.array_equal(LazyArray((3, 4), VALUES.dtype, fetch, "w", digest).read(), VALUES)
    changed = LazyArray((3, 4), VALUES.dtype, fetch, "w", digest ^ 1)
    with pytest.raises(DamagedCheckpoint, match="w"):
        changed.read()
    changed.read((slice(0, 1),))  # of a part there is no digest


def test_buckets_are_read_and_other_storage_is_refused():
    in_bucket = {"driver": "gcs", "bucket": "bucket", "path": "run/x/"}
    assert lazy_array.storage("gs://bucket/run/x/") == in_bucket
    with pytest.raises(ValueError, match="az://bucket/run"):
        lazy_array.storage("az://bucket/run")


@pytest.mark.parametrize(
    "reason",
    [
        "UNAVAILABLE: the bucket does not answer",
        "INTERNAL: We encountered an internal error. Please try again.",
        "UNKNOWN: CURL error[60] SSL peer certificate or SSH remote key was not OK",
        "UNKNOWN: Failed to read from file [OS error 5: EIO Input/output error]",
    ],
)
def test_an_error_of_storage_is_not_damage(monkeypatch, reason):
    def result():
        raise ValueError(reason)

    opened = types.SimpleNamespace(result=result)
    monkeypatch.setattr(lazy_array.ts, "open", lambda *_, **__: opened)
    with pytest.raises(Failure, match=re.escape(reason)):
        lazy_array.from_zarr("kernel", {}, None, gaps_are_zeros=True)()


def test_what_a_parser_raises_is_damage():
    unreadable = KeyError, AttributeError, IsADirectoryError, FileNotFoundError, zipfile.BadZipFile
    for error in unreadable:
        with pytest.raises(DamagedCheckpoint, match=r"^run/x"), lazy_array.parsing("run/x"):
            raise error("a")
    with pytest.raises(PermissionError), lazy_array.parsing("run/x"):  # which may pass
        raise PermissionError
    with pytest.raises(DamagedCheckpoint, match=r"^mine\.$"), lazy_array.parsing("run/x"):
        raise DamagedCheckpoint("mine")
