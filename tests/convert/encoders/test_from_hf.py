"""Published encoders become checkpoints with their logits, whatever their files are."""

import pytest
import torch

from convert import from_hf as command
from convert.encoders import from_hf
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from fakes.published import ENCODERS, published_encoder


@pytest.mark.parametrize("family", ENCODERS)
def test_a_published_model_becomes_a_run_with_its_logits(tmp_path, family):
    """The command itself compares the logits of both libraries, within 1e-4."""
    folder, run = tmp_path / "published", tmp_path / "run"
    model = published_encoder(folder, family)
    assert command.main([str(folder), str(run), "--step", "7"]) == 0
    assert (run / "checkpoint_7").is_dir()
    assert (run / "tokenizer/tokenizer.json").is_file()
    gin = (run / "config.gin").read_text()
    config = "ModernBertConfig" if family == "modernbert" else "BertConfig"
    assert f"network.{config}.vocab_size = 60" in gin
    sizes, _ = from_hf.network_of(HfCheckpoint.open(folder))
    assert sizes.next_sentence == (family == "pretraining")
    assert sizes.num_layers == model.config.num_hidden_layers


def test_an_old_bin_with_gamma_and_beta_is_read(tmp_path):
    folder = tmp_path / "published"
    model = published_encoder(folder, "bert")
    (folder / "model.safetensors").unlink()
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    state = {}
    for name, value in model.state_dict().items():
        for new, named in old.items():
            name = name.replace(new, named)
        state[name] = value
    assert any("gamma" in name for name in state)
    state["bert.embeddings.position_ids"] = torch.arange(66)[None]
    torch.save(state, folder / "pytorch_model.bin")
    path = from_hf.write_checkpoint(folder, tmp_path / "run")
    assert path.endswith("run/checkpoint_0")


def test_tensors_of_another_network_are_refused(tmp_path):
    folder = tmp_path / "published"
    published_encoder(folder, "bert")
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(ValueError, match=r"layer\.2\.\S+ is not there, and should be"):
        from_hf.write_checkpoint(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_logits_are_refused(tmp_path, monkeypatch):
    folder = tmp_path / "published"
    published_encoder(folder, "modernbert")
    split = from_hf.weight_map.EncoderTensor.split
    swapped = lambda tensor, array: split(tensor, array)[::-1]  # values, keys, queries
    monkeypatch.setattr(from_hf.weight_map.EncoderTensor, "split", swapped)
    with pytest.raises(ValueError, match="logits differ"):
        from_hf.write_checkpoint(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()
