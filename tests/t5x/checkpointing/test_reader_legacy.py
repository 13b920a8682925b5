"""T5X's older format is read exactly, wherever it was written and whatever it holds."""

import shutil

import ml_dtypes
import msgpack
import numpy as np
import pytest
import tensorstore as ts

from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.checkpointing.reader import open_checkpoint


def packed(array):
    body = msgpack.packb((array.shape, array.dtype.name, array.tobytes()))
    return msgpack.ExtType(1, body)


def stored(folder, name, array, dtype, driver="file"):
    spec = {
        "driver": "zarr",
        "dtype": dtype,
        "kvstore": {"driver": driver, "path": name + "/"},
        "metadata": {
            "shape": list(array.shape),
            "chunks": [-(-n // 2) for n in array.shape],
            "compressor": {"id": "gzip", "level": 1},
        },
    }
    local = spec | {"kvstore": {"driver": "file", "path": f"{folder}/{name}/"}}
    ts.open(local, create=True).result().write(array).result()
    return spec


def write(folder, target, version=3):
    folder.mkdir()
    state = {"step": np.int32(9).item(), "param_states": {}}
    optimizer = {"target": target(folder), "state": state}
    index = {"version": version, "optimizer": optimizer}
    (folder / "checkpoint").write_bytes(msgpack.packb(index))
    return str(folder)


def test_a_part_of_an_array_is_read_across_its_chunks(tmp_path):
    kernel = np.arange(35, dtype=np.float32).reshape(5, 7)
    path = write(tmp_path / "c", lambda f: {"w": stored(f, "target.w", kernel, "float32")})
    part = (slice(1, 4), slice(2, None))
    assert np.array_equal(open_checkpoint(path)["target/w"].read(part), kernel[part])


@pytest.mark.parametrize("driver", ["gcs", "gfile"])
def test_the_place_it_was_written_to_does_not_matter(tmp_path, driver):
    kernel = np.ones((2, 2), np.float32)
    path = write(tmp_path / "c", lambda f: {"w": stored(f, "target.w", kernel, "float32", driver)})
    assert np.array_equal(open_checkpoint(path)["target/w"].read(), kernel)


def test_bfloat16_and_a_plain_number_for_the_step(tmp_path):
    kernel = np.array([[1.5, -2.25]], ml_dtypes.bfloat16)

    def target(folder):
        return {"w": stored(folder, "target.w", kernel, "bfloat16"), "s": packed(kernel)}

    arrays = open_checkpoint(write(tmp_path / "c", target))
    for name in ("target/w", "target/s"):
        assert arrays[name].read().dtype == arrays[name].dtype == ml_dtypes.bfloat16
        assert np.array_equal(arrays[name].read(), kernel)
    assert arrays["state/step"].read() == 9


def test_bfloat16_written_as_integers_is_refused_by_name(tmp_path):
    kernel = np.ones((2, 2), np.uint16)
    path = write(tmp_path / "c", lambda f: {"w": stored(f, "target.w", kernel, "uint16")}, 2)
    with pytest.raises(ValueError, match="target/w"):
        open_checkpoint(path)


def test_an_index_that_is_cut_off_is_named(golden, tmp_path):
    complete = golden.folder / "legacy/checkpoint_25/checkpoint"
    (tmp_path / "checkpoint").write_bytes(complete.read_bytes()[:-1000])
    with pytest.raises(DamagedCheckpoint, match="checkpoint"):
        open_checkpoint(str(tmp_path))


def test_an_array_whose_files_are_gone_is_named_when_it_is_read(golden, tmp_path):
    folder = shutil.copytree(golden.folder / "legacy/checkpoint_25", tmp_path / "checkpoint_25")
    shutil.rmtree(folder / "target.token_embedder.embedding")
    arrays = open_checkpoint(str(folder))
    with pytest.raises(DamagedCheckpoint, match="target/token_embedder/embedding"):
        arrays["target/token_embedder/embedding"].read()
