import ml_dtypes
import msgpack
import numpy as np
import pytest

from convert.formats import t5x_checkpoint_writer
from t5x.checkpointing import layout, lazy_array
from t5x.checkpointing.reader import open_checkpoint

VALUES = {
    "target/a/kernel": np.arange(35, dtype=np.float32).reshape(7, 5),
    "target/b/scale": np.arange(11).astype(ml_dtypes.bfloat16),
    "state/param_states/a/kernel/v": np.full(1, 0.5, np.float32),
    "state/param_states/a/kernel/v_row": np.arange(7, dtype=np.float32),
    "state/step": np.int32(9),
}


def write(folder):
    arrays = {name: lazy_array.from_numpy(value) for name, value in VALUES.items()}
    t5x_checkpoint_writer.write(folder, arrays)


@pytest.mark.parametrize("block", [2**25, 40, 1])
def test_what_was_written_is_read_whatever_the_chunks(tmp_path, monkeypatch, block):
    monkeypatch.setattr("convert.t5x_params._BLOCK", block)
    write(tmp_path / "checkpoint_9")
    found = open_checkpoint(str(tmp_path / "checkpoint_9"))
    assert found.keys() == VALUES.keys()
    for name, value in VALUES.items():
        read = found[name].read()
        assert (read.shape, read.dtype) == (value.shape, value.dtype)
        np.testing.assert_array_equal(read, value)


def test_what_t5x_does_not_partition_is_in_the_index(tmp_path):
    write(tmp_path / "checkpoint_9")
    folders = {path.name for path in (tmp_path / "checkpoint_9").iterdir() if path.is_dir()}
    assert folders == {"target.a.kernel", "target.b.scale"}
    index = msgpack.unpackb((tmp_path / "checkpoint_9" / "checkpoint").read_bytes())
    assert isinstance(index["optimizer"]["state"]["step"], msgpack.ExtType)


def test_a_checkpoint_is_one_only_when_all_is_written(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoint_9"
    stored = t5x_checkpoint_writer._stored

    def fails(folder, key, values):
        if key.startswith("target.b"):
            raise OSError("gone")
        return stored(folder, key, values)

    monkeypatch.setattr(t5x_checkpoint_writer, "_stored", fails)
    with pytest.raises(OSError, match="gone"):
        write(folder)
    assert layout.kind(str(folder)) is None
