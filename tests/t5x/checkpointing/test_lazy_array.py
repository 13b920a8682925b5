"""Arrays are read in part or completely, and a complete one is compared to its digest."""

import zipfile

import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/run/x", {"driver": "file", "path": "/run/x/"}),
        ("gs://bucket/run/x/", {"driver": "gcs", "bucket": "bucket", "path": "run/x/"}),
    ],
)
def test_storage_is_described_for_tensorstore(folder, expected):
    assert lazy_array.storage(folder) == expected
    inside = {"driver": "ocdbt", "base": expected, "path": "w/"}
    assert lazy_array.storage(folder, "w/") == inside


def test_other_storage_is_refused():
    with pytest.raises(ValueError, match="az://bucket/run"):
        lazy_array.storage("az://bucket/run")


def test_unavailable_storage_is_not_damage():
    def read():
        raise ValueError("UNAVAILABLE: the bucket does not answer")

    with pytest.raises(RuntimeError, match="UNAVAILABLE"):
        lazy_array._readable("kernel", read)


@pytest.mark.parametrize(
    "error", [KeyError("a"), AttributeError("b"), IsADirectoryError("c"), zipfile.BadZipFile("d")]
)
def test_what_a_parser_raises_is_damage(error):
    with pytest.raises(DamagedCheckpoint, match=r"^run/x"):
        with lazy_array.parsing("run/x"):
            raise error
    with pytest.raises(DamagedCheckpoint, match="run/x"):
        with lazy_array.parsing("run/x"):
            raise FileNotFoundError
    with pytest.raises(PermissionError), lazy_array.parsing("run/x"):  # which may pass
        raise PermissionError
    with pytest.raises(DamagedCheckpoint, match=r"^mine$"), lazy_array.parsing("run/x"):
        raise DamagedCheckpoint("mine")
