"""Golden checkpoints of upstream through the complete converter, and everything that can fail."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
import transformers
from sentencepiece import sentencepiece_model_pb2
from transformers import AutoModelForSeq2SeqLM

from common.markdown import plain
from convert import __main__ as converter
from convert import atomic_output, card, from_hf, t5x_params, to_hf
from convert.formats import t5x_checkpoint_writer
from convert.run import model_dir
from convert.to_hf import ConversionOptions
from fakes.convert_fakes import (
    ENCODERS,
    FAMILIES,
    arrays,
    golden_sizes,
    refusal,
    tree,
    write_run,
)
from fakes.paths import GOLDEN, ROOT
from fakes.published import published_encoder
from fakes.tokenizer_files import words

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"


def convert(*arguments):
    return converter.main([str(argument) for argument in arguments])


@pytest.mark.parametrize("name", ["t5_1_0", "t5_1_1"])
def test_golden_weights_of_both_kinds_arrive_and_score_as_upstream_scores(tmp_path, name):
    files = []
    for kind in ("legacy", "orbax"):
        run = model_dir.open_run(str(GOLDEN / name / kind / "checkpoint_25"))
        options = ConversionOptions(sizes=golden_sizes(name), out=tmp_path / kind, verify=False)
        folder = to_hf.convert_one(run, [25], options)
        weights = ("model.safetensors", "flax_model.msgpack")
        files.append([(folder / file).read_bytes() for file in weights])
    assert files[0] == files[1]
    os.umask(mask := os.umask(0))
    readable = 0o044 & ~mask  # for others
    assert all(path.stat().st_mode & readable == readable for path in folder.rglob("*"))
    found = safetensors.numpy.load_file(folder / "model.safetensors")
    truth = np.load(GOLDEN / name / "final_state.npz")
    kernel = "layers_1/encoder_decoder_attention/key/kernel"
    np.testing.assert_array_equal(
        found["decoder.block.1.layer.1.EncDecAttention.k.weight"],
        truth[f"target/decoder/{kernel}"].T,
    )
    golden = np.load(GOLDEN / name / "decode.npz")
    np.testing.assert_allclose(
        scores(AutoModelForSeq2SeqLM.from_pretrained(folder), golden),
        golden["final/score_batch"],
        rtol=1e-5,
    )


def scores(model, golden):
    """Sequence log-likelihoods, as upstream's score_batch sums them."""
    batch = {k.removeprefix("batch/"): golden[k] for k in golden.files if k.startswith("batch/")}
    ids, shifted, target = (
        torch.from_numpy(batch[name]).long()
        for name in ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
    )
    with torch.inference_mode():
        out = model(input_ids=ids, attention_mask=(ids > 0).long(), decoder_input_ids=shifted)
    chosen = out.logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
    return (chosen * torch.from_numpy(batch["decoder_loss_weights"])).sum(-1).numpy()


def test_a_run_is_converted_by_its_own_gin_and_then_skipped(run_folder, capsys):
    assert convert(run_folder, "--vocabulary", "none", "--no_verify") == 0
    folder = run_folder.parent / "run_hf" / "checkpoint_25"
    assert "Not verified" in (folder / "README.md").read_text()
    assert atomic_output.read_record(folder)["proof"] is None
    assert convert(run_folder, "--vocabulary", "none") == 0  # an unproved folder is not done
    assert "Verified" in (folder / "README.md").read_text()
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "README.md",
        "config.json",
        "conversion.json",
        "flax_model.msgpack",
        "generation_config.json",
        "model.safetensors",
    }
    assert json.loads((folder / "config.json").read_text())["d_ff"] == 96
    assert atomic_output.read_record(folder)["proof"]["largest_difference"] < 1e-4
    capsys.readouterr()
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert convert(run_folder, "--vocabulary", "none") == 0
    assert "is done" in capsys.readouterr().out
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert convert(run_folder, "--vocabulary", "none", "--dtype", "bfloat16") == 0
    assert atomic_output.read_record(folder)["dtype"] == "bfloat16"
    proof = atomic_output.read_record(folder)["proof"]
    assert proof["largest_difference"] < 1e-4 < proof["largest_difference_from_float32"]


def test_flax_alone_is_written_if_nothing_is_to_be_verified(run_folder, capsys):
    """transformers 5 loads PyTorch's weights only."""
    flags = ("--vocabulary", "none", "--formats", "flax")
    assert "--formats is 'flax'" in refusal(capsys, run_folder, *flags)
    assert convert(run_folder, *flags, "--no_verify") == 0
    folder = run_folder.parent / "run_hf" / "checkpoint_25"
    assert (folder / "flax_model.msgpack").exists()
    assert not (folder / "model.safetensors").exists()


def test_another_request_or_run_is_converted_again(tmp_path, capsys):
    """Nothing of an earlier request stays: family, vocabulary, or a run that is started again."""
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    checkpoint = write_run(tmp_path / "run", sizes)
    other = tmp_path / "other.model"
    model = sentencepiece_model_pb2.ModelProto.FromString(MINI.read_bytes())
    model.pieces[1000].score -= 1
    other.write_bytes(model.SerializeToString())
    quick = (checkpoint.parent, "--no_verify", "--formats", "pytorch")
    requests = [
        ("--vocabulary", MINI),
        ("--vocabulary", other),
        ("--vocabulary", other, "--model_type", "mt5"),
    ]
    folder = tmp_path / "run_hf" / checkpoint.name
    for request in requests:
        assert convert(*quick, *request) == 0
        assert "is done" not in capsys.readouterr().out
        assert convert(*quick, *request) == 0
        assert "is done" in capsys.readouterr().out
    assert (folder / "spiece.model").read_bytes() == other.read_bytes()
    assert json.loads((folder / "config.json").read_text())["model_type"] == "mt5"
    for mark in checkpoint.iterdir():
        os.utime(mark, (1, 1))
    assert convert(*quick, *requests[-1]) == 0
    assert "is done" not in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_transformers_loads_what_is_split_over_files(tmp_path, dtype):
    sizes = FAMILIES["t5_1_1"]
    checkpoint = write_run(tmp_path, sizes)
    options = ConversionOptions(
        sizes=sizes, out=tmp_path / "out", dtype=dtype, shard_bytes=15_000, formats=("pytorch",)
    )
    folder = to_hf.convert_one(model_dir.open_run(str(checkpoint)), [3], options)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found = [safetensors.torch.load_file(path) for path in folder.glob("model-*.safetensors")]
    assert len(found) > 2
    assert len(index["weight_map"]) == sum(map(len, found)), "each tensor is in one file"
    size = sum(tensor.nbytes for part in found for tensor in part.values())
    assert index["metadata"]["total_size"] == size
    assert atomic_output.read_record(folder)["proof"]["largest_difference"] < 1e-4


def test_all_checkpoints_or_their_mean(run_folder, capsys):
    found = t5x_params.open_tree([str(run_folder / "checkpoint_25")])
    double = {f"target/{name}": array.read() * 2 for name, array in found.items()}
    t5x_checkpoint_writer.write(run_folder / "checkpoint_50", tree(double))
    quick = ("--vocabulary", "none", "--no_verify", "--language", "ro", "--license", "cc0-1.0")
    out = run_folder.parent / "run_hf"
    assert convert(run_folder / "checkpoint_25", *quick) == 0
    assert [path.name for path in out.iterdir()] == ["checkpoint_25"]
    capsys.readouterr()
    assert convert(run_folder / "checkpoint_25", *quick, "--all") == 0
    assert {path.name for path in out.iterdir()} == {"checkpoint_25", "checkpoint_50"}
    first, second = capsys.readouterr().out.splitlines()
    assert "checkpoint_25 is done" in first
    assert "checkpoint_50 ->" in second
    assert convert(run_folder, *quick, "--average", 2) == 0
    mean = safetensors.numpy.load_file(out / "checkpoint_50_mean_of_2" / "model.safetensors")
    one = safetensors.numpy.load_file(out / "checkpoint_25" / "model.safetensors")
    assert all(np.array_equal(mean[name], one[name] * np.float32(1.5)) for name in one)


def run_of(folder, family):
    """Write a run of a published encoder with a tokenizer of words; return both."""
    model = published_encoder(folder / "published", family)
    words(folder / "published")
    from_hf.write_checkpoint(folder / "published", folder / "run", step=7, verify_logits=False)
    return model, folder / "run"


@pytest.mark.parametrize("family", ["pretraining", "roberta", "modernbert"])
def test_an_encoder_fills_in_masks_and_its_card_shows_it(tmp_path, family):
    model, run = run_of(tmp_path, family)
    assert convert(run, "--dtype", "bfloat16", "--examples", "ana are [MASK]") == 0
    folder = tmp_path / "run_hf" / "checkpoint_7"
    record = json.loads((folder / "conversion.json").read_text())
    assert record["proof"]["largest_difference"] < 1e-3
    assert record["proof"]["largest_difference_from_float32"] > 1e-3
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    fill = transformers.pipeline("fill-mask", str(folder), top_k=1)
    (best,) = fill("ana are <mask>")
    assert record["examples"] == [["ana are <mask>", f"ana are {best['token_str']}"]]
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: fill-mask" in card
    assert plain(f"ana are {best['token_str']}") in card
    assert fill.model.config.pad_token_id == 1


def test_xlm_r_stays_xlm_r_by_its_tokenizer(tmp_path):
    """Its network is a RoBERTa, so only the tokenizer of the run says which of both it was."""
    model, run = run_of(tmp_path, "xlm-roberta")
    path = run / "tokenizer/tokenizer_config.json"
    named = json.loads(path.read_text()) | {"tokenizer_class": "XLMRobertaTokenizer"}
    path.write_text(json.dumps(named))
    assert convert(run, "--no_verify") == 0
    folder = tmp_path / "run_hf" / "checkpoint_7"
    again = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    assert type(again) is type(model) is transformers.XLMRobertaForMaskedLM
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in model.state_dict().items())
    assert "- xlm-roberta" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("family", "change", "flags", "sentence"),
    [
        ("bert", None, ["--formats", "flax"], "--formats is 'flax'"),
        ("bert", "remove", [], "holds no tokenizer.json; give the trained one"),
        ("bert", None, ["--examples", "ana are"], "--examples is 'ana are', but has no [MASK]"),
        ("roberta", "padding", [], "pads with id 0, but transformers counts the positions"),
    ],
)
def test_an_encoder_that_cannot_be_converted_is_refused(
    tmp_path, capsys, family, change, flags, sentence
):
    _, run = run_of(tmp_path, family)
    if change == "remove":
        (run / "tokenizer/tokenizer.json").unlink()
    elif change == "padding":
        words(run / "tokenizer", special=("<pad>", "<s>", "</s>", "<mask>"))
    assert sentence in refusal(capsys, run, *flags)
    assert not list(tmp_path.glob("run_hf/*"))


def test_a_checkpoint_with_a_position_table_in_each_layer_is_a_umt5(tmp_path, monkeypatch):
    sizes = FAMILIES["umt5"]
    values = arrays(sizes)
    state = {f"target/{name}": value for name, value in values.items()}
    state["state/step"] = np.array(7)
    opened = tree(state)
    monkeypatch.setattr(t5x_params, "open_checkpoint", lambda _: opened)
    run = model_dir.TrainedRun(str(tmp_path), {7: str(tmp_path)})
    (tmp_path / "checkpoint_7").mkdir()
    options = ConversionOptions(
        sizes=dataclasses.replace(sizes, own_relative_bias=False), out=tmp_path / "out"
    )
    folder = to_hf.convert_one(run, [7], options)
    found = safetensors.numpy.load_file(folder / "model.safetensors")
    np.testing.assert_array_equal(
        found["encoder.block.2.layer.0.SelfAttention.relative_attention_bias.weight"],
        values["encoder/layers_2/relpos_bias/rel_embedding"].T,
    )
    assert json.loads((folder / "config.json").read_text())["model_type"] == "umt5"
    again = dataclasses.replace(options, metadata=card.CardMetadata(language=("ro",)))
    assert [*to_hf.convert(run, again)] == [folder]
    text = (folder / "README.md").read_text()
    assert "- ro" in text
    assert "one bias table in each layer" in text  # of the checkpoint, where the gin says stack


FAULTS = {
    "NaN inside": (lambda t, k: t[k].__setitem__((3, 5), np.nan), "holds 1 values"),
    "infinity": (lambda t, k: t[k].__setitem__((3, 5), -np.inf), "holds 1 values"),
    "nothing but zeros": (lambda t, k: t[k].fill(0), "holds nothing but zeros"),
    "a missing tensor": (lambda t, k: t.pop(k), "it lacks"),
    "another layer": (lambda t, k: t.update({k.replace("_1", "_9"): t[k]}), "no rule takes its"),
    "a wrong shape": (lambda t, k: t.update({k: t[k][:-1]}), "but mlp_dim"),
}


@pytest.mark.parametrize(("network", "stack"), [("t5_1_1", "decoder"), ("bert", "encoder")])
def test_a_fault_in_the_checkpoint_is_named_and_leaves_nothing(tmp_path, capsys, network, stack):
    sizes = (FAMILIES | ENCODERS)[network]
    kernel = f"{stack}/layers_1/mlp/wo/kernel"
    for fault, (plant, message) in FAULTS.items():
        values = arrays(sizes)
        plant(values, kernel)
        write_run(tmp_path / fault, sizes, values)
        said = refusal(capsys, tmp_path / fault, "--vocabulary", "none")
        assert message in said
        assert "/mlp/wo/kernel" in said
    assert not list(tmp_path.glob("*_hf/*"))


def test_biases_and_tables_of_types_may_be_zeros(tmp_path):
    values = arrays(ENCODERS["bert"])
    for name, array in values.items():
        if name.endswith(("/bias", "type_embedder/embedding")):
            array.fill(0)
    write_run(tmp_path / "run", ENCODERS["bert"], values)
    assert convert(tmp_path / "run", "--vocabulary", "none") == 0


@pytest.mark.parametrize(
    ("kind", "pattern"), [("orbax", "**/d/*"), ("legacy", "target.token_embedder.embedding/0.0")]
)
def test_a_truncated_checkpoint_is_one_sentence_and_leaves_nothing(
    run_folder, capsys, kind, pattern
):
    checkpoint = run_folder / "checkpoint_25"
    shutil.rmtree(checkpoint)
    shutil.copytree(GOLDEN / "t5_1_1" / kind / "checkpoint_25", checkpoint)
    largest = max(checkpoint.glob(pattern), key=lambda path: path.stat().st_size)
    for damage in (lambda: largest.write_bytes(largest.read_bytes()[:100]), largest.unlink):
        damage()
        assert "another" in refusal(capsys, run_folder, "--vocabulary", "none")
    assert not list(run_folder.parent.glob("run_hf/*"))
