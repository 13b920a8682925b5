"""Runs of encoders become folders that transformers loads, with the trainer's logits."""

import json

import numpy as np
import pytest
import torch
import transformers

from convert import __main__ as command
from convert.encoders import from_hf, logits
from convert.encoders.weight_map import tensors
from convert.formats import t5x_checkpoint_writer
from fakes.published import ENCODERS, labelled_encoder, published_encoder
from fakes.refusals import refused
from fakes.tokenizer_files import words
from t5x.checkpointing.lazy_array import from_numpy


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


def labelling_run(folder, family, head, **changed):
    """Writes a run that labels, with the weights of transformers; returns model, sizes and run.

    With the head "vectors" it has none.
    """
    model, sizes = labelled_encoder(family, "words" if head == "vectors" else head, **changed)
    if head == "vectors":
        sizes = sizes.with_vectors()
    run = folder / "run"
    (run / "tokenizer").mkdir(parents=True)
    words(run / "tokenizer")
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    arrays = {
        f"target/{source}": from_numpy(np.ascontiguousarray(part))
        for tensor in tensors(sizes)
        for source, part in zip(tensor.sources, tensor.split(weights[tensor.target]), strict=True)
    }
    arrays["state/step"] = from_numpy(np.asarray(7, np.int32))
    t5x_checkpoint_writer.write(run / "checkpoint_7", arrays)
    pooling = f"label_model.LabelModel.pooling = {sizes.pooling!r}"
    lines = [from_hf.gin_of(sizes), "MODEL = @label_model.LabelModel()", pooling]
    if head == "vectors":
        lines = [from_hf.gin_of(sizes), "MODEL = @embedding_model.EmbeddingModel()"]
    (run / "config.gin").write_text("\n".join(lines))
    named = {"labels": sizes.labels, "of_words": head == "words"}
    (run / "labels.json").write_text(json.dumps(named))
    return model, sizes, run


@pytest.mark.parametrize(
    ("family", "head"),
    [(f, h) for f in ("bert", "roberta", "modernbert") for h in ("text", "words")],
)
def test_a_run_that_labels_becomes_a_folder_that_labels(tmp_path, family, head):
    changed = {"classifier_pooling": "mean"} if (family, head) == ("modernbert", "text") else {}
    model, _, run = labelling_run(tmp_path, family, head, **changed)
    out = tmp_path / "out"
    assert command.main([str(run), "--out", str(out), "--examples", "ana are mere"]) == 0
    folder = out / "checkpoint_7"
    again = type(model).from_pretrained(folder)
    known = model.state_dict()
    for name, value in again.state_dict().items():
        assert torch.equal(value, known[name]), name
    assert again.config.id2label == {0: "label0", 1: "label1", 2: "label2"}
    assert again.config.architectures == [type(model).__name__]
    record = json.loads((folder / "conversion.json").read_text())
    assert record["proof"]["largest_difference"] < 1e-4
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    task = "text-classification" if head == "text" else "token-classification"
    found = transformers.pipeline(task, str(folder))("ana are mere")
    (shown,) = record["examples"]
    assert found[0]["label" if head == "text" else "entity"] in shown[1]
    assert f"pipeline_tag: {task}" in (folder / "README.md").read_text()


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_a_run_of_vectors_becomes_a_folder_of_sentence_transformers(tmp_path, family):
    model, sizes, run = labelling_run(tmp_path, family, "vectors")
    out = tmp_path / "out"
    assert command.main([str(run), "--out", str(out)]) == 0
    folder = out / "checkpoint_7"
    record = json.loads((folder / "conversion.json").read_text())
    assert record["proof"]["largest_difference"] < 1e-4
    modules = json.loads((folder / "modules.json").read_text())
    named = [(module["path"], module["type"].rpartition(".")[2]) for module in modules]
    assert named == [("", "Transformer"), ("1_Pooling", "Pooling")]
    pooling = json.loads((folder / "1_Pooling/config.json").read_text())
    assert pooling.pop("word_embedding_dimension") == sizes.emb_dim
    assert [name for name, value in pooling.items() if value] == ["pooling_mode_mean_tokens"]
    cut = json.loads((folder / "sentence_bert_config.json").read_text())
    assert cut["max_seq_length"] == sizes.max_length
    again = transformers.AutoModel.from_pretrained(folder).eval()
    body = getattr(model, model.base_model_prefix)
    ids = torch.tensor([[0, 7, 8, 9, 2]])
    with torch.no_grad():
        found, wanted = again(ids).last_hidden_state, body(ids).last_hidden_state
    torch.testing.assert_close(found, wanted)
    assert "library_name: sentence-transformers" in (folder / "README.md").read_text()


def test_labels_that_are_not_there_are_asked_for(tmp_path, capsys):
    _, _, run = labelling_run(tmp_path, "bert", "text")
    (run / "labels.json").unlink()
    with refused(capsys, "labels texts or words, but has no labels.json"):
        command.main([str(run), "--out", str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("family", "change", "flags", "sentence"),
    [
        ("bert", None, ["--space"], "--space is for a T5, but the run is an encoder"),
        ("bert", None, ["--formats", "pytorch", "onnx"], "onnx is for a T5, but"),
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
