"""Published encoders become checkpoints with their logits, whatever their files are."""

import pytest
import torch
import transformers

from convert import from_hf as command
from convert.encoders import from_hf
from convert.formats.hf_checkpoint_reader import HfCheckpoint

SIZES = {"vocab_size": 60, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12}
LONG = SIZES | {"max_position_embeddings": 66, "num_hidden_layers": 2}
FAMILIES = {
    "bert": ("BertForMaskedLM", LONG),
    "pretraining": ("BertForPreTraining", LONG),
    "roberta": ("RobertaForMaskedLM", LONG | {"type_vocab_size": 1}),
    "xlm-roberta": ("XLMRobertaForMaskedLM", LONG | {"type_vocab_size": 1}),
    "modernbert": ("ModernBertForMaskedLM", SIZES | {"num_hidden_layers": 4, "local_attention": 8}),
}
IDS = {"pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2, "bos_token_id": 0}


def published(folder, family):
    """Write a folder of random weights, as transformers does; return its model."""
    architecture, fields = FAMILIES[family]
    torch.manual_seed(0)
    config = architecture.split("For")[0] + "Config"
    config = getattr(transformers, config)(**fields, **IDS, eos_token_id=2)
    model = getattr(transformers, architecture)(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name.lower() else 0.0, 0.3)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_model_becomes_a_run_with_its_logits(tmp_path, family):
    """The command itself compares the logits of both libraries, within 1e-4."""
    folder, run = tmp_path / "published", tmp_path / "run"
    model = published(folder, family)
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
    model = published(folder, "bert")
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
    published(folder, "bert")
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(ValueError, match=r"layer\.2\.\S+ is not there, and should be"):
        from_hf.write_checkpoint(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_logits_are_refused(tmp_path, monkeypatch):
    folder = tmp_path / "published"
    published(folder, "modernbert")
    split = from_hf.weight_map.EncoderTensor.split
    swapped = lambda tensor, array: split(tensor, array)[::-1]  # values, keys, queries
    monkeypatch.setattr(from_hf.weight_map.EncoderTensor, "split", swapped)
    with pytest.raises(ValueError, match="logits differ"):
        from_hf.write_checkpoint(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()
