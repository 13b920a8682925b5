"""Blocks of an array are the array, and each byte range is written once."""

import numpy as np
import pytest

from convert.formats.preallocated_file import ByteRange, PreallocatedFile, blocks


@pytest.mark.parametrize("turn", [False, True])
def test_blocks_join_to_the_complete_array(turn, monkeypatch):
    monkeypatch.setattr("convert.formats.preallocated_file._BLOCK", 40)
    value = np.arange(7 * 5, dtype=np.float32).reshape(7, 5)
    found = list(blocks(value, turn, np.dtype(np.float32)))
    assert len(found) > 1
    np.testing.assert_array_equal(np.concatenate(found), value.T if turn else value)


def test_a_tensor_may_be_spread_over_byte_ranges(tmp_path):
    ranges = {"a": [ByteRange(2, 4), ByteRange(8, 8)]}
    path = tmp_path / "file"
    with PreallocatedFile(path, [(0, b"<<"), (16, b">>")], ranges, 18, np.dtype("<i4")) as file:
        file.write("a", np.arange(1, 4), transpose=False)
    words = [int(n).to_bytes(4, "little") for n in (1, 2, 3)]
    assert path.read_bytes() == b"<<" + words[0] + bytes(2) + words[1] + words[2] + b">>"


def test_a_file_that_exists_is_not_overwritten(tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(FileExistsError):
        PreallocatedFile(tmp_path / "file", [], {}, 0, np.dtype("float32"))
