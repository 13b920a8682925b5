"""A Hugging Face folder's tensors, whatever files hold them."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch
from flax import serialization, traverse_util

from convert import from_hf, to_hf
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from fakes.convert_fakes import FAMILIES, arrays, tree
from fakes.published import publish, published
from fakes.refuses import refuses


@pytest.mark.parametrize("file_name", ["model.safetensors", "pytorch_model.bin"])
def test_shards_are_read_through_their_index(tmp_path, file_name):
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    state = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save = torch.save if file_name.endswith(".bin") else safetensors.torch.save_file
    owner = {name: f"{i % 2}_{file_name}" for i, name in enumerate(state)}
    for file in set(owner.values()):
        part = {name: value for name, value in state.items() if owner[name] == file}
        save(part, folder / file)
    (folder / f"{file_name}.index.json").write_text(json.dumps({"weight_map": owner}))
    found = HfCheckpoint.open(folder).arrays
    assert found.keys() == state.keys()
    assert all(np.array_equal(array.read(), state[name]) for name, array in found.items())
    (folder / f"1_{file_name}").unlink()
    with refuses(folder):
        HfCheckpoint.open(folder)


def test_files_of_old_releases_of_torch_are_read(tmp_path):
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    state = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    found = HfCheckpoint.open(folder).arrays
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name].read(), state[name]) for name in state)


@pytest.mark.parametrize("content", [torch.zeros(3), {"step": 5}, [torch.zeros(3)]])
def test_a_torch_file_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text("{}")
    torch.save(content, tmp_path / "pytorch_model.bin")
    with refuses(tmp_path / "pytorch_model.bin"):
        HfCheckpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("tokenizer", "number"),
    [
        ({"tokenizer_class": "T5Tokenizer", "extra_ids": 300}, 300),
        ({"tokenizer_class": "T5Tokenizer", "extra_ids": 0}, 0),
        ({"added_tokens_decoder": {"9": "<extra_id_1>", "10": "<extra_id_0>"}}, 2),
        ({"added_tokens_decoder": {"9": "<extra_id_0>", "10": "<extra_id_1>"}}, None),  # upwards
        ({}, None),
    ],
)
def test_the_tokenizers_configuration_says_how_many_sentinels_there_are(
    tmp_path, tokenizer, number
):
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    named = tokenizer.get("added_tokens_decoder", {}).items()
    tokenizer = tokenizer | {"added_tokens_decoder": {i: {"content": name} for i, name in named}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert HfCheckpoint.open(folder).extra_ids() == number


def test_a_tensor_is_read_from_the_file_on_request(tmp_path):
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    table = HfCheckpoint.open(folder).arrays["shared.weight"]
    before = table.read().copy()
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content.replace(before.tobytes(), (before + 1).tobytes()))
    np.testing.assert_array_equal(table.read(), before + 1)


def to_flax(state):
    """Tensors of PyTorch under the paths and with the axes of transformers 4's Flax models."""
    found = {}
    for name, value in state.items():
        *modules, leaf = name.split(".")
        kind = "kernel"
        if modules[-1].endswith(
            ("embeddings", "embed_tokens", "shared", "relative_attention_bias")
        ):
            kind = "embedding"
        elif value.ndim == 1:
            kind = "weight" if modules[-1].endswith("layer_norm") and "block" in name else "scale"
            kind = "weight" if modules[-1] == "final_layer_norm" else kind
        leaf = kind if leaf == "weight" else leaf
        found["/".join([*modules, leaf])] = value.T if leaf == "kernel" else value
    return found


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("t5_1_0", torch.float32), ("t5_1_1", torch.bfloat16), ("pretraining", torch.float32)],
)
def test_flax_weights_are_read(tmp_path, name, dtype, shards):
    folder = published(tmp_path / "hf", name)
    state = HfCheckpoint.open(folder).arrays
    (folder / "model.safetensors").unlink()
    kind = ml_dtypes.bfloat16 if dtype == torch.bfloat16 else np.float32
    values = {key: array.read().astype(kind) for key, array in state.items()}
    flat, owner = to_flax(values), {}
    for i in range(shards):
        file = "flax_model.msgpack" if shards == 1 else f"flax_model-0000{i}.msgpack"
        part = dict([*flat.items()][i::shards])
        owner |= dict.fromkeys(part, file)
        part = traverse_util.unflatten_dict(part, sep="/")
        (folder / file).write_bytes(serialization.msgpack_serialize(part))
    if shards > 1:
        index = json.dumps({"weight_map": owner})
        (folder / "flax_model.msgpack.index.json").write_text(index)
    found = HfCheckpoint.open(folder)
    assert found.arrays.keys() == values.keys()
    assert all(np.array_equal(array.read(), values[key]) for key, array in found.arrays.items())
    from_hf.write_checkpoint(folder, tmp_path / "run")  # compares logits


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_our_own_flax_weights_are_read(tmp_path, dtype):
    sizes = FAMILIES["t5_1_1"]
    options = to_hf.ConversionOptions(sizes=sizes, out=tmp_path, dtype=dtype)
    to_hf.write_weights(tmp_path, tree(arrays(sizes)), sizes, options)
    (tmp_path / "config.json").write_text("{}")
    of_torch = HfCheckpoint.open(tmp_path).arrays
    (tmp_path / "model.safetensors").unlink()
    of_flax = HfCheckpoint.open(tmp_path).arrays
    assert of_flax.keys() == of_torch.keys()
    assert all(np.array_equal(of_flax[name].read(), of_torch[name].read()) for name in of_torch)


def test_numbers_of_8_bits_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    state = {"shared.weight": torch.zeros(2, 2, dtype=torch.float8_e4m3fn)}
    torch.save(state, tmp_path / "pytorch_model.bin")
    with refuses("shared.weight", where=str(tmp_path / "pytorch_model.bin")):
        HfCheckpoint.open(tmp_path)
