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
    "target/c/kernel": np.arange(5 << 21, dtype=np.float32).reshape(5, -1),  # 40 MB, in two blocks
    "state/param_states/a/kernel/v": np.full(1, 0.5, np.float32),
    "state/param_states/a/kernel/v_row": np.arange(7, dtype=np.float32),
    "state/step": np.int32(9),
}
ARRAYS = {name: lazy_array.from_numpy(value) for name, value in VALUES.items()}


def test_what_was_written_is_read_again_and_scalars_are_in_the_index(tmp_path):
    folder = tmp_path / "checkpoint_9"
    t5x_checkpoint_writer.write(folder, ARRAYS)
    found = open_checkpoint(str(folder))
    assert found.keys() == VALUES.keys()
    for name, value in VALUES.items():
        read = found[name].read()
        assert (read.shape, read.dtype) == (value.shape, value.dtype)
        np.testing.assert_array_equal(read, value)
    # T5X reads what it does not partition from nowhere else.
    folders = {path.name for path in folder.iterdir() if path.is_dir()}
    assert folders == {"target.a.kernel", "target.b.scale", "target.c.kernel"}
    index = msgpack.unpackb((folder / "checkpoint").read_bytes())
    assert isinstance(index["optimizer"]["state"]["step"], msgpack.ExtType)


def test_a_checkpoint_is_one_only_when_all_is_written(tmp_path):
    def gone(index):
        raise OSError("gone")

    last = lazy_array.LazyArray((2, 2), np.dtype(np.float32), gone)
    with pytest.raises(OSError, match="gone"):
        t5x_checkpoint_writer.write(tmp_path / "checkpoint_9", ARRAYS | {"target/z": last})
    assert layout.kind(str(tmp_path / "checkpoint_9")) is None
