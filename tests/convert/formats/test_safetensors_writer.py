"""model.safetensors against the library whose format it is."""

import json

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch

from convert.formats import safetensors_writer
from fakes.convert_fakes import tree


def example():
    rng = np.random.default_rng(0)
    return {
        "a.weight": rng.normal(size=(7, 5)).astype(np.float32),
        "b.weight": rng.normal(size=(11,)).astype(np.float32),
        "c.weight": rng.normal(size=(3, 4)).astype(np.float32),
    }


def test_safetensors_reads_what_was_written(tmp_path):
    values = example()
    safetensors_writer.write(tmp_path, tree(values), "float32")
    found = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value)


def test_turned_and_rounded(tmp_path):
    value = example()["a.weight"]
    safetensors_writer.write(tmp_path, tree({"a": value.T}), "bfloat16")
    found = safetensors.torch.load_file(tmp_path / "model.safetensors")["a"]
    wanted = value.T.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(found.float().numpy(), wanted)


def test_shards_hold_everything_once_and_the_index_says_where(tmp_path):
    values = example()
    safetensors_writer.write(tmp_path, tree(values), "float32", shard_bytes=150)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in values.values())
    assert set(index["weight_map"].values()) == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }
    for name, file_name in index["weight_map"].items():
        found = safetensors.numpy.load_file(tmp_path / file_name)
        np.testing.assert_array_equal(found[name], values[name])
