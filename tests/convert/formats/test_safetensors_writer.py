"""model.safetensors holds every tensor once, turned and rounded, and the index says where."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch

from convert.formats import safetensors_writer
from fakes.convert_fakes import tree


@pytest.mark.parametrize(("shard_bytes", "files"), [(10**9, 1), (150, 2)])
@pytest.mark.parametrize("dtype", safetensors_writer.DTYPES)
def test_every_tensor_is_written_once(tmp_path, dtype, shard_bytes, files):
    shapes = {"a.weight": (7, 5), "b.weight": (11,), "c.weight": (3, 4)}
    random = np.random.default_rng(0)
    values = {name: random.normal(size=s).astype(np.float32).T for name, s in shapes.items()}
    size = shard_bytes if dtype == "float32" else shard_bytes // 2
    safetensors_writer.write(tmp_path, tree(values), dtype, size)
    found = {}
    for path in tmp_path.glob("*.safetensors"):
        part = safetensors.torch.load_file(path)
        assert not part.keys() & found.keys()
        found |= part
        if files > 1:
            index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
            assert {index["weight_map"][name] for name in part} == {path.name}
            bytes_each = {"float32": 4, "bfloat16": 2}[dtype]
            total = sum(value.size for value in values.values()) * bytes_each
            assert index["metadata"]["total_size"] == total
    assert len([*tmp_path.glob("*.safetensors")]) == files
    assert found.keys() == values.keys()
    for name, value in values.items():
        rounded = value.astype({"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}[dtype])
        np.testing.assert_array_equal(found[name].float().numpy(), rounded.astype(np.float32))
