"""Runs of encoders become folders that transformers loads, with the trainer's logits."""

import json

import pytest
import torch
import transformers

from convert import __main__ as command
from convert.encoders import from_hf, logits
from fakes.published import ENCODERS, published_encoder
from fakes.refusals import refused
from fakes.tokenizer_files import words


def run_of(folder, family):
    """Writes a run of a published model with a tokenizer of words; returns both."""
    model = published_encoder(folder / "published", family)
    words(folder / "published")
    from_hf.write_checkpoint(folder / "published", folder / "run", step=7, verify_logits=False)
    return model, folder / "run"


@pytest.mark.parametrize("family", ENCODERS)
def test_a_run_becomes_the_published_model_again(tmp_path, family):
    model, run = run_of(tmp_path, family)
    out = tmp_path / "out"
    assert command.main([str(run), "--out", str(out), "--examples", "ana are [MASK]"]) == 0
    folder = out / "checkpoint_7"
    again = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    known = model.state_dict()
    for name, value in again.state_dict().items():
        assert torch.equal(value, known[name]), name
    record = json.loads((folder / "conversion.json").read_text())
    assert record["proof"]["largest_difference"] < 1e-4
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    fill = transformers.pipeline("fill-mask", str(folder), top_k=1)
    (best,) = fill("ana are <mask>")
    assert record["examples"] == [["ana are <mask>", f"ana are {best['token_str']}"]]
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: fill-mask" in card
    assert f"ana are {best['token_str']}" in card
    assert again.config.pad_token_id == 1


def test_xlm_r_stays_xlm_r_by_its_tokenizer(tmp_path):
    """Its network is a RoBERTa, so only the tokenizer of the run says which of both it was."""
    model, run = run_of(tmp_path, "xlm-roberta")
    path = run / "tokenizer/tokenizer_config.json"
    named = json.loads(path.read_text()) | {"tokenizer_class": "XLMRobertaTokenizer"}
    path.write_text(json.dumps(named))
    out = ["--out", str(tmp_path / "out"), "--no_verify"]
    assert command.main([str(run), *out]) == 0
    folder = tmp_path / "out/checkpoint_7"
    again = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    assert type(again) is type(model) is transformers.XLMRobertaForMaskedLM
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in model.state_dict().items())
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["XLMRobertaForMaskedLM"]
    assert "- xlm-roberta" in (folder / "README.md").read_text()


def test_weights_are_rounded_and_compared_rounded(tmp_path):
    _, run = run_of(tmp_path, "bert")
    assert command.main([str(run), "--out", str(tmp_path / "out"), "--dtype", "bfloat16"]) == 0
    record = json.loads((tmp_path / "out/checkpoint_7/conversion.json").read_text())
    assert record["proof"]["largest_difference"] < 1e-3
    assert record["proof"]["largest_difference_from_float32"] > 1e-3


def test_other_logits_leave_nothing_behind(tmp_path, monkeypatch, capsys):
    _, run = run_of(tmp_path, "roberta")
    real = logits.torch_logits
    monkeypatch.setattr(logits, "torch_logits", lambda *given: real(*given) + 0.01)
    with refused(capsys, "PyTorch's logits differ from the trainer's by 0.01"):
        command.main([str(run), "--out", str(tmp_path / "out")])
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    ("family", "change", "flags", "sentence"),
    [
        ("bert", None, ["--model_type", "t5"], "--model_type is for a T5, but the run is an enc"),
        ("bert", "remove", [], "holds no tokenizer.json: give the folder of the trained one"),
        ("bert", "many", [], "has 70 ids and the embedding 60 rows"),
        ("roberta", "padding", [], "pads with id 0, but transformers counts the positions"),
        ("bert", "gin", [], r"The checkpoint is not the network of its gin \(bert, 2 layers"),
    ],
)
def test_what_cannot_be_converted_is_refused(tmp_path, capsys, family, change, flags, sentence):
    _, run = run_of(tmp_path, family)
    if change == "remove":
        (run / "tokenizer/tokenizer.json").unlink()
    elif change == "many":
        words(run / "tokenizer", count=70)
    elif change == "padding":
        words(run / "tokenizer", special=("<pad>", "<s>", "</s>", "<mask>"))
    elif change == "gin":
        gin = (run / "config.gin").read_text().replace("mlp_dim = 12", "mlp_dim = 16")
        (run / "config.gin").write_text(gin)
    with refused(capsys, sentence):
        command.main([str(run), "--out", str(tmp_path / "out"), *flags])


def test_mmbert_is_continued_and_returned_with_gemmas_special_tokens(tmp_path):
    """Its config.json has the names of transformers 4, and one theta for all layers."""
    published, run = tmp_path / "published", tmp_path / "run"
    model = published_encoder(published, "modernbert")
    path = published / "config.json"
    config = json.loads(path.read_text())
    for name in ("rope_parameters", "layer_types"):
        config.pop(name)
    config |= {"global_rope_theta": 160000.0, "local_rope_theta": 160000.0}
    config |= {"global_attn_every_n_layers": 3, "position_embedding_type": "sans_pos"}
    path.write_text(json.dumps(config))
    words(published, special=("<pad>", "<eos>", "<bos>", "<mask>"))
    roles = {"pad": "<pad>", "cls": "<bos>", "sep": "<eos>", "mask": "<mask>", "unk": "<unk>"}
    named = {f"{role}_token": token for role, token in roles.items()}
    named["tokenizer_class"] = "PreTrainedTokenizerFast"
    (published / "tokenizer_config.json").write_text(json.dumps(named))
    from_hf.write_checkpoint(published, run, step=7)  # with transformers' logits
    assert command.main([str(run), "--out", str(tmp_path / "out")]) == 0
    folder = tmp_path / "out/checkpoint_7"
    again = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in model.state_dict().items())
    ids = [getattr(again.config, f"{role}_token_id") for role in ("pad", "sep", "cls")]
    assert ids == [0, 1, 2]
    kinds = again.config.rope_parameters.values()
    assert {kind["rope_theta"] for kind in kinds} == {160000.0}
