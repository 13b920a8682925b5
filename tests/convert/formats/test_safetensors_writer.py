"""model.safetensors against the library whose format it is."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch

from convert.formats.safetensors_writer import SafetensorsWriter


def example():
    rng = np.random.default_rng(0)
    return {
        "a.weight": rng.normal(size=(7, 5)).astype(np.float32),
        "b.weight": rng.normal(size=(11,)).astype(np.float32),
        "c.weight": rng.normal(size=(3, 4)).astype(np.float32),
    }


def write_safetensors(folder, values, dtype="float32", **options):
    shapes = {name: value.shape for name, value in values.items()}
    with SafetensorsWriter(folder, shapes, dtype, **options) as out:
        for name in reversed(values):
            out.write(name, values[name], transpose=False)


def test_safetensors_reads_what_was_written(tmp_path):
    values = example()
    write_safetensors(tmp_path, values)
    found = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value)


def test_turned_and_rounded(tmp_path):
    value = example()["a.weight"]
    with SafetensorsWriter(tmp_path, {"a": (5, 7)}, "bfloat16") as out:
        out.write("a", value, transpose=True)
    found = safetensors.torch.load_file(tmp_path / "model.safetensors")["a"]
    wanted = value.T.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(found.float().numpy(), wanted)


def test_shards_hold_everything_once_and_the_index_says_where(tmp_path):
    values = example()
    write_safetensors(tmp_path, values, shard_bytes=150)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in values.values())
    assert set(index["weight_map"].values()) == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }
    for name, file_name in index["weight_map"].items():
        found = safetensors.numpy.load_file(tmp_path / file_name)
        np.testing.assert_array_equal(found[name], values[name])


def test_nothing_is_set_twice_left_unset_or_unplanned(tmp_path):
    value = np.zeros((2, 3), np.float32)
    with SafetensorsWriter(tmp_path, {"a": (2, 3)}, "float32") as out:
        out.write("a", value, transpose=False)
        with pytest.raises(ValueError, match="a is set twice"):
            out.write("a", value, transpose=False)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="still lacks b"):
        with SafetensorsWriter(tmp_path, {"a": (2, 3), "b": (1,)}, "float32") as out:
            out.write("a", value, transpose=False)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="no place for c"):
        with SafetensorsWriter(tmp_path, {"a": (2, 3)}, "float32") as out:
            out.write("c", value, transpose=False)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="not its planned size"):
        with SafetensorsWriter(tmp_path, {"a": (2, 4)}, "float32") as out:
            out.write("a", value, transpose=False)
