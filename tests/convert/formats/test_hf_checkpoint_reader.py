"""A Hugging Face folder's tensors, whatever files hold them."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch

from convert.formats.hf_checkpoint_reader import HfCheckpoint
from fakes.convert_fakes import FAMILIES
from fakes.published import publish


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
    with pytest.raises(ValueError, match=f"lacks 1_{file_name}"):
        HfCheckpoint.open(folder)


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
