"""Published models to T5X and back, bit by bit."""

import contextlib
import dataclasses
import itertools
import json
import shutil
import time

import numpy as np
import pytest
import safetensors.torch
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, ByT5Tokenizer, GenerationConfig

from common.errors import UserError
from common.gin_reader import Bindings
from convert import __main__ as converter
from convert import atomic_output, from_hf, weight_map
from convert.formats import tokenizer_files
from convert.formats.hf_checkpoint_reader import HfCheckpoint, weights_file
from convert.proof import torch_logits
from convert.sizes import NO_EFFECT, T5_IDS
from fakes.convert_fakes import FAMILIES, NETWORKS, refusal
from fakes.paths import GOLDEN, ROOT
from fakes.published import ENCODERS, publish, published, published_encoder
from fakes.refuses import refuses
from fakes.tokenizer_files import words
from t5x.checkpointing.reader import open_checkpoint

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"


def weights(folder):
    found = safetensors.torch.load_file(folder / "model.safetensors")
    sizes, _ = from_hf.network_of(HfCheckpoint.open(folder))
    return weight_map.present(found, sizes)


def there_and_back(tmp_path, *flags):
    """Convert tmp_path/hf to a run and back, by the commands."""
    assert converter.main(["from_hf", str(tmp_path / "hf"), str(tmp_path / "run")]) == 0
    assert converter.main([str(tmp_path / "run"), "--formats", "pytorch", *flags]) == 0
    return tmp_path / "run_hf" / "checkpoint_0"


@pytest.mark.parametrize("name", [*NETWORKS, *ENCODERS, "bfloat16", "trimmed mt5"])
def test_there_and_back_is_bit_equal(tmp_path, name):
    if name == "bfloat16":
        publish(tmp_path / "hf", FAMILIES["t5_1_1"], torch.bfloat16)
    elif name == "trimmed mt5":
        publish(tmp_path / "hf", dataclasses.replace(FAMILIES["t5_1_1"], model_type="mt5"))
    else:
        published(tmp_path / "hf", name)
    before = weights(tmp_path / "hf")
    dtype = "bfloat16" if name == "bfloat16" else "float32"
    # The way there compares the logits of both libraries, and the way back gives the same bits.
    folder = there_and_back(tmp_path, "--vocabulary", "none", "--dtype", dtype, "--no_verify")
    after = weights(folder)
    assert before.keys() == after.keys()
    # A T5Gemma 2 keeps the scale of a norm less 1, which costs the last bits of small values.
    allowed = 2.0**-22 if name == "t5gemma2" else 0.0
    assert all(torch.allclose(before[name], after[name], 0, allowed) for name in before)
    config = json.loads((folder / "config.json").read_text())
    published_config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["model_type"] == published_config["model_type"]
    assert (name == "pretraining") == (config["architectures"] == ["BertForPreTraining"])


@pytest.mark.parametrize("sentinels", [100, 0])
def test_a_byt5_is_known_by_its_tokenizer(tmp_path, sentinels):
    """Our tokenizer has its sentinels last; transformers' names rows that were never trained."""
    folder = publish(tmp_path / "hf", NETWORKS["byt5"])
    if sentinels:
        tokenizer_files.write_byte_tokenizer(str(folder), extra_ids=sentinels)
    else:
        ByT5Tokenizer().save_pretrained(folder)
    done = there_and_back(tmp_path)
    assert atomic_output.read_record(done)["proof"]["tokenizer_texts"] > 0
    found = AutoTokenizer.from_pretrained(done)
    assert found("é").input_ids == [0xC3 + 3, 0xA9 + 3, 1]
    assert len(found) == 259 + sentinels
    if sentinels:
        assert found.convert_tokens_to_ids("<extra_id_0>") == 358


def test_a_checkpoint_survives_the_way_through_hugging_face(tmp_path):
    golden = GOLDEN / "t5_1_0" / "orbax" / "checkpoint_25"
    config = GOLDEN / "t5_1_0" / "config.json"
    flags = ["--config", str(config), "--vocabulary", "none", "--out", str(tmp_path / "hf")]
    assert converter.main([str(golden), *flags]) == 0
    path = from_hf.write_checkpoint(tmp_path / "hf" / "checkpoint_25", tmp_path / "run", step=25)
    found = open_checkpoint(path)
    truth = np.load(GOLDEN / "t5_1_0" / "final_state.npz")
    names = [name for name in truth.files if name.startswith("target/")]
    assert {name for name in found if name.startswith("target/")} == set(names)
    assert all(np.array_equal(found[name].read(), truth[name]) for name in names)
    assert found["state/step"].read() == 25


def test_repeated_unused_and_renamed_tensors_of_old_files_are_read(tmp_path):
    folder = publish(tmp_path / "t5", FAMILIES["t5_1_0"])
    state = safetensors.torch.load_file(folder / "model.safetensors")
    table = state.pop("shared.weight")
    for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head"):
        state[f"{name}.weight"] = table
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    (folder / "model.safetensors").unlink()
    torch.save(state | {unused: torch.zeros(32, 2)}, folder / "pytorch_model.bin")
    path = from_hf.write_checkpoint(folder, tmp_path / "t5_run", verify_logits=False)
    found = open_checkpoint(path)["target/token_embedder/embedding"].read()
    np.testing.assert_array_equal(found, table.numpy())

    folder = tmp_path / "bert"
    state = published_encoder(folder, "bert").state_dict()
    old = lambda n: n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
    (folder / "model.safetensors").unlink()
    state = {old(name): value for name, value in state.items()}
    positions = {"bert.embeddings.position_ids": torch.arange(66)[None]}
    torch.save(state | positions, folder / "pytorch_model.bin")
    from_hf.write_checkpoint(folder, tmp_path / "bert_run")  # transformers reads it, too

    folder = tmp_path / "roberta"
    embeddings = published_encoder(folder, "roberta").roberta.embeddings.word_embeddings
    positions = {"roberta.embeddings.position_ids": torch.arange(66)[None]}
    file = folder / "model.safetensors"
    safetensors.torch.save_file({**safetensors.torch.load_file(file), **positions}, file)
    path = from_hf.write_checkpoint(folder, tmp_path / "roberta_run", verify_logits=False)
    table = open_checkpoint(path)["target/token_embedder/embedding"].read()
    np.testing.assert_array_equal(table, embeddings.weight.detach().numpy())


def test_a_run_with_its_vocabulary_answers_in_transformers(tmp_path):
    folder = publish(tmp_path / "hf", dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048))
    (folder / "spiece.model").write_bytes(MINI.read_bytes())
    done = there_and_back(tmp_path, "--language", "ro", "--license", "cc0-1.0")
    assert (tmp_path / "run" / "vocabulary.model").read_bytes() == MINI.read_bytes()
    record = atomic_output.read_record(done)
    assert record["proof"]["tokenizer_texts"] > 0
    assert [given for given, _ in record["examples"]] == ["<extra_id_0>"], "it names no sentences"
    model = AutoModelForSeq2SeqLM.from_pretrained(done)
    sentence = "Copiii se joacă <extra_id_0> în curte."
    ids = AutoTokenizer.from_pretrained(done)(sentence, return_tensors="pt").input_ids
    assert 2047 in ids
    assert GenerationConfig.from_pretrained(done).decoder_start_token_id == 0
    assert model.generate(ids, max_new_tokens=4).shape[1] <= 5
    assert "language:\n- ro" in (done / "README.md").read_text()


def test_sentinels_behind_the_pieces_keep_their_ids_there_and_back(tmp_path, outside_model):
    """The conversion back reads their number from the gin and proves the ids of texts."""
    rows = 1948 + 300
    folder = publish(tmp_path / "hf", dataclasses.replace(FAMILIES["umt5"], vocab_size=rows))
    tokenizer_files.write_tokenizer(outside_model, str(folder), extra_ids=300)
    done = there_and_back(tmp_path)
    gin = Bindings.read((tmp_path / "run" / "config.gin").read_text())
    assert gin.of("SentencePieceVocabulary") == {"extra_ids": 300}
    assert atomic_output.read_record(done)["proof"]["tokenizer_texts"] > 0
    found = AutoTokenizer.from_pretrained(done)
    assert found.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_299>"]) == [rows - 1, 1948]
    assert len(found) == rows


def test_mmbert_is_continued_and_returned_with_gemmas_special_tokens(tmp_path):
    """Its config.json has the names of transformers 4, and one theta for all layers."""
    folder = published(tmp_path / "hf", "modernbert")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name in ("rope_parameters", "layer_types"):
        config.pop(name)
    config |= {"global_rope_theta": 160000.0, "local_rope_theta": 160000.0}
    config |= {"global_attn_every_n_layers": 3, "position_embedding_type": "sans_pos"}
    path.write_text(json.dumps(config))
    words(folder, special=("<pad>", "<eos>", "<bos>", "<mask>"))
    roles = {"pad": "<pad>", "cls": "<bos>", "sep": "<eos>", "mask": "<mask>", "unk": "<unk>"}
    named = {f"{role}_token": token for role, token in roles.items()}
    named["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    from_hf.write_checkpoint(folder, tmp_path / "run")
    assert converter.main([str(tmp_path / "run")]) == 0
    config = json.loads((tmp_path / "run_hf" / "checkpoint_0" / "config.json").read_text())
    assert [config[f"{role}_token_id"] for role in ("pad", "sep", "cls")] == [0, 1, 2]
    thetas = {kind["rope_theta"] for kind in config["rope_parameters"].values()}
    assert thetas == {160000.0}


def test_bad_folders_are_one_sentence(tmp_path, capsys):
    wrong = lambda folder: refusal(capsys, "from_hf", folder, tmp_path / "run")
    assert f"{tmp_path}/config.json" in wrong(tmp_path)
    for name in ("/nosuch", "nosuch", "./nosuch", "a/b/c", "s3://bucket/model"):
        assert f"{name} is not a folder, nor user/name of the hub" in wrong(name)
    for name in ("a/b--c", "a/b.."):  # which only the hub's client refuses
        assert f"{name} is not here, and cannot be downloaded from the hub" in wrong(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        assert "hf download a/b --local-dir" in wrong("a/b")
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "bart"}))
    assert "model_type is 'bart'" in wrong(folder)
    (folder / "config.json").write_text(json.dumps(config | {"d_ff": 8}))
    assert "DenseReluDense" in wrong(folder)
    (folder / "config.json").write_text(json.dumps(config))
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-10])
    assert "model.safetensors is not" in wrong(folder)
    (folder / "model.safetensors").unlink()
    assert "neither model.safetensors nor" in wrong(folder)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("t5_1_1", "decoder.embed_tokens.weight"),
        ("t5gemma2", "model.decoder.embed_tokens.weight"),
        ("bert", "cls.predictions.decoder.weight"),
        ("roberta", "lm_head.decoder.bias"),
        ("modernbert", "decoder.weight"),
    ],
)
def test_a_copy_with_values_of_its_own_is_refused(tmp_path, name, copy):
    """transformers computes with it, and the trainer has no such tensor."""
    file = published(tmp_path / "hf", name) / "model.safetensors"
    state = safetensors.torch.load_file(file)
    original = state[weight_map.COPIES[copy]]
    for values, is_equal in ((original.clone(), True), (original * 2, False)):
        safetensors.torch.save_file({**state, copy: values}, file)
        with contextlib.nullcontext() if is_equal else refuses(tmp_path / "hf"):
            from_hf.network_of(HfCheckpoint.open(tmp_path / "hf"))


def test_a_step_that_the_trainer_cannot_count_is_refused(tmp_path):
    with refuses("--step", 2**31):
        converter.main(["from_hf", str(tmp_path), str(tmp_path / "run"), "--step", str(2**31)])


def test_logits_that_differ_leave_nothing(tmp_path, capsys, monkeypatch):
    published(tmp_path / "hf", "t5_1_0")
    right = torch_logits.torch_logits
    monkeypatch.setattr(torch_logits, "torch_logits", lambda *given: right(*given)[:, ::-1])
    assert "logits differ" in refusal(capsys, "from_hf", tmp_path / "hf", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def changed(folder, name="config.json", drop=(), **settings):
    """Write settings into a JSON file of a folder, or take some out."""
    path = folder / name
    found = json.loads(path.read_text()) if path.exists() else {}
    kept = {key: value for key, value in found.items() if key not in drop}
    path.write_text(json.dumps(kept | settings))


def test_a_published_umt5_comes_back_so_that_transformers_computes_its_logits(tmp_path):
    """transformers 5 scales what its head reads, though the config says that it does not."""
    folder = publish(tmp_path / "hf", FAMILIES["umt5"])
    changed(folder, drop=["scale_decoder_outputs"])
    ids = torch.arange(2, 12)[None]
    wanted = torch_logits.load_torch(folder)(input_ids=ids, decoder_input_ids=ids).logits
    done = there_and_back(tmp_path, "--vocabulary", "none")
    found = AutoModelForSeq2SeqLM.from_pretrained(done)(input_ids=ids, decoder_input_ids=ids).logits
    torch.testing.assert_close(found, wanted)
    name = "decoder.final_layer_norm.weight"
    torch.testing.assert_close(weights(done)[name], weights(folder)[name] * 16**0.5)


def test_a_head_whose_inputs_are_scaled_is_read_as_transformers_reads_it(tmp_path):
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    changed(folder, tie_word_embeddings=True)
    done = there_and_back(tmp_path, "--vocabulary", "none")
    assert json.loads((done / "config.json").read_text())["tie_word_embeddings"] is False


def test_an_untied_model_without_a_head_gets_the_embedding_as_its_head(tmp_path):
    """Some readers draw a head that config.json names and the file lacks at random."""
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    state = safetensors.torch.load_file(folder / "model.safetensors")
    del state["lm_head.weight"]
    safetensors.torch.save_file(state, folder / "model.safetensors", {"format": "pt"})
    done = there_and_back(tmp_path, "--vocabulary", "none", "--formats", "pytorch", "flax")
    for file in ("model.safetensors", "flax_model.msgpack"):
        assert weights_file(done) == file
        head = HfCheckpoint.open(done).arrays["lm_head.weight"].read()
        np.testing.assert_array_equal(head, state["shared.weight"].numpy())
        (done / file).unlink()


def test_a_decoder_deeper_than_its_encoder_generates_without_a_cache(tmp_path):
    folder = publish(tmp_path / "hf", NETWORKS["deeper decoder"])
    changed(folder, use_cache=True)
    done = there_and_back(tmp_path, "--vocabulary", "none")
    assert GenerationConfig.from_pretrained(done).use_cache is False
    made = AutoModelForSeq2SeqLM.from_pretrained(done).generate(torch.arange(2, 9)[None])
    assert made.shape[0] == 1


def test_how_a_model_generates_is_kept(tmp_path):
    """In generation_config.json or, as older models have it, in config.json."""
    settings = {"num_beams": 4, "length_penalty": 0.5, "no_repeat_ngram_size": 3, "max_length": 20}
    of_kinds = {"early_stopping", "cache_implementation", "suppress_tokens", "compile_config"}
    of_kinds |= {"watermarking_config", "num_return_sequences", "assistant_ensemble_weight"}
    others = dict.fromkeys(GenerationConfig().to_dict().keys() - of_kinds, 7) | settings
    others |= {"early_stopping": True, "suppress_tokens": [8], "num_return_sequences": 3}
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    (folder / "generation_config.json").unlink()
    changed(folder, **settings)
    done = there_and_back(tmp_path, "--vocabulary", "none", "--no_verify")
    found = json.loads((done / "generation_config.json").read_text())
    assert found == settings | T5_IDS | {"use_cache": True}
    changed(folder, "generation_config.json", **others | T5_IDS)
    from_hf.write_checkpoint(folder, tmp_path / "other", verify_logits=False)
    found = json.loads((tmp_path / "other" / "generation_config.json").read_text())
    assert found.keys() | NO_EFFECT | {*T5_IDS} >= others.keys()
    assert found.items() >= settings.items()


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("setting", T5_IDS)
def test_other_special_ids_are_refused_by_name(tmp_path, name, setting):
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    changed(folder, name, **{setting: 5})
    in_network = setting in ("decoder_start_token_id", "pad_token_id") and name == "config.json"
    with refuses(f"{setting} of config.json" if in_network else setting, 5):
        from_hf.write_checkpoint(folder, tmp_path / "run", verify_logits=False)
    assert not (tmp_path / "run").exists()


def test_a_roberta_that_pads_with_another_id_is_continued(tmp_path):
    folder = published(tmp_path / "hf", "roberta")
    changed(folder, pad_token_id=5)
    done = there_and_back(tmp_path, "--vocabulary", "none")
    assert json.loads((done / "config.json").read_text())["pad_token_id"] == 5


def test_what_the_run_will_not_have_is_named(tmp_path, capsys):
    folder = publish(tmp_path / "hf", dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2176))
    changed(folder, quantized=4, num_beams=2)
    from_hf.write_checkpoint(folder, tmp_path / "none", verify_logits=False)
    said = capsys.readouterr().out
    assert "no spiece.model" in said
    assert "not kept: quantized." in said
    tokenizer_files.write_tokenizer(str(MINI), str(folder))
    from_hf.write_checkpoint(folder, tmp_path / "same", verify_logits=False)
    assert "adds tokens" not in capsys.readouterr().out
    changed(folder, "added_tokens.json", **{"{": 2048, "\n": 2049, "<extra_id_0>": 2047})
    from_hf.write_checkpoint(folder, tmp_path / "run", verify_logits=False)
    assert r"'{', '\n'." in capsys.readouterr().out


@pytest.mark.parametrize("files", [[], ["vocab.txt"]])
def test_an_encoder_without_a_tokenizer_that_is_read_says_how_to_make_one(tmp_path, capsys, files):
    """What is said makes a tokenizer.json of the vocab.txt that old BERTs have alone."""
    folder, run = published(tmp_path / "hf", "bert"), tmp_path / "run"
    (folder / "tokenizer.json").unlink()
    for file in files:
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ana", "are", "mere"]
        (folder / file).write_text("\n".join(pieces))
    from_hf.write_checkpoint(folder, run, verify_logits=False)
    said = capsys.readouterr().out
    assert f"{folder} has no tokenizer.json: the run gets no vocabulary." in said
    assert not (run / "tokenizer").exists()
    if files:
        exec(f"from transformers import AutoTokenizer\n{said.partition('make it: ')[2]}")
        found = Tokenizer.from_file(str(run / "tokenizer" / "tokenizer.json"))
        assert found.encode("ana are mere", add_special_tokens=False).ids == [5, 6, 7]


ODD = {
    "nested": b"[" * 100_000,
    "null": b"null",
    "a list": b"[]",
    "a string": b'""',
    "a number": b"5",
    "nothing": b"",
    "binary": bytes(range(256)) * 9,
    "a length without end": b"\xff" * 8 + b"{}",
    "other types": b'{"model_type": [], "weight_map": {"a": 5}, "added_tokens": 5, "content": 5, '
    b'"added_tokens_decoder": [[]], "extra_ids": "x", "pad_token_id": {}, "tokenizer_class": 5}',
}
FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json")
FILES += ("added_tokens.json", "spiece.model", "model.safetensors", "pytorch_model.bin")
FILES += ("flax_model.msgpack", "model.safetensors.index.json", "flax_model.msgpack.index.json")


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A folder with a vocabulary."""
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    folder = publish(tmp_path_factory.mktemp("complete") / "hf", sizes)
    tokenizer_files.write_tokenizer(str(MINI), str(folder))
    return folder


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", FILES)
def test_any_content_of_a_file_is_read_or_refused_in_a_sentence(tmp_path, complete, name, odd):
    folder = tmp_path / "hf"
    shutil.copytree(complete, folder)
    if "model." in name and name != "spiece.model":
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(ODD[odd])
    try:
        from_hf.write_checkpoint(folder, tmp_path / "run", verify_logits=False)
    except UserError as error:
        said = str(error)
    else:
        said = ""
    assert "\n" not in said
    assert len(said) < 500


def test_settings_of_other_types_are_refused(complete, tmp_path):
    """Each setting of a config.json may hold anything."""
    model = HfCheckpoint.open(complete)
    for name, value in itertools.product(model.config, [None, [], {}, "x", -1, 1e999, True]):
        odd = dataclasses.replace(model, config=model.config | {name: value})
        with contextlib.suppress(UserError):
            from_hf.network_of(odd)


STRANGE = {
    "layers": ("config.json", {"num_layers": 10**6}, "num_layers of config.json", 10**6),
    "decoder layers": (
        *("config.json", {"num_decoder_layers": 10**6}),
        *("network.T5Config.num_decoder_layers", 10**6),
    ),
    "quantized": (
        *("config.json", {"quantization_config": {"quant_method": "bitsandbytes"}}),
        *("quantization_config of config.json", ...),
    ),
    "model type": ("config.json", {"model_type": "\x1b[31mx"}, "model_type", "\x1b[31mx"),
    "watermark": (
        *("generation_config.json", {"watermarking_config": {"foreign": 1}}),
        *("{folder}/generation_config.json", ...),
    ),
    "sentinels": ("tokenizer_config.json", {"extra_ids": 10**9}, "extra_ids", 10**9),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_a_stranger_may_write_is_refused_at_once(tmp_path, name):
    file, settings, setting, value = STRANGE[name]
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    (folder / "spiece.model").write_bytes(MINI.read_bytes())
    changed(folder, file, **settings)
    start = time.monotonic()
    with refuses(setting.format(folder=folder), value):
        from_hf.write_checkpoint(folder, tmp_path / "run")
    assert time.monotonic() - start < 60  # what is refused would take hours or all memory
    assert not (tmp_path / "run").exists()


def test_names_of_a_stranger_are_printed_without_their_control_characters(tmp_path, capsys):
    folder = publish(tmp_path / "hf", FAMILIES["t5_1_1"])
    changed(folder, **{"\x1b[31mname": 1, "a\u202eb": 2})
    from_hf.write_checkpoint(folder, tmp_path / "run", verify_logits=False)
    said = capsys.readouterr().out
    assert r"\x1b[31mname, a\u202eb." in said
    assert not {"\x1b", "\u202e"} & {*said}
