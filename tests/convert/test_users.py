"""Programs that read a converted folder compute what the trainer and transformers compute."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from convert import __main__ as converter
from convert.proof import t5x_logits, verify
from convert.sizes import T5Sizes
from convert.tokenizer import TrainedVocabulary
from fakes.convert_fakes import ENCODERS, FAMILIES, NETWORKS, arrays, tree, write_run
from fakes.optional_env import optional_folder, optional_python
from fakes.paths import FAST_COMPILATION, MINI, ROOT
from fakes.tokenizer_files import WORDPIECE

pytestmark = pytest.mark.slow
USERS = ROOT / "tests" / "fakes" / "users"
TEXTS = {
    "t5": ["Ana are <extra_id_0> mere.", "Copiii se joacă în curte, iar <extra_id_0> vine."],
    "masked": ["Ana are [MASK] .", "Copiii [MASK] în curte."],
    "plain": ["Ana are mere.", "Copiii se joacă."],
    "words": [
        ["Ana", "are", "mere", "."],
        ["Ștefan", "cel", "Mare", "s-a", "născut", "în", "1433"],
    ],
    "odd": [
        "Ștefan cel Mare s-a născut, iar țăranii și-au strâns grânele.",
        "  două  spații,\tun tab\no linie",
        "Ştiinţa cu sedile; «ghilimele» – 3,14 lei/m².",
        "Привет, 你好 🙂 e\u0301 ﬁ ½ ①",
        "a" * 300,
        "",
    ],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A converted T5, a converted BERT, and the file of the texts."""
    home = tmp_path_factory.mktemp("users")
    # optimum's runtime knows no other width of a head.
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048, head_dim=8)
    write_run(home / "t5", sizes)
    shutil.copy(MINI / "ro_mini.model", home / "t5" / "vocabulary.model")
    write_run(home / "bert", ENCODERS["bert"])
    shutil.copytree(WORDPIECE, home / "bert" / "tokenizer")
    for name in ("t5", "bert"):
        assert converter.main([str(home / name)]) == 0
    (home / "texts.json").write_text(json.dumps(TEXTS))
    made = [str(home / f"{name}_hf" / "checkpoint_3") for name in ("t5", "bert")]
    return [*made, str(home / "texts.json")]


@pytest.fixture(scope="module")
def wanted(folders):
    """What transformers makes of the texts."""
    t5, encoder, _ = folders
    tokenizer, model = AutoTokenizer.from_pretrained(t5), AutoModelForSeq2SeqLM.from_pretrained(t5)
    inputs = [tokenizer(text, return_tensors="pt") for text in TEXTS["t5"]]
    fill = pipeline("fill-mask", encoder)
    tokenizer, model_of_states = (
        AutoTokenizer.from_pretrained(encoder),
        AutoModel.from_pretrained(encoder),
    )
    words = [tokenizer([each], is_split_into_words=True) for each in TEXTS["words"]]
    ids, places = [each.input_ids[0] for each in words], [each.word_ids(0) for each in words]
    with torch.inference_mode():
        states_of = lambda ids: model_of_states(torch.tensor([ids])).last_hidden_state[0].numpy()
        means = [states_of(tokenizer(text).input_ids).mean(0) for text in TEXTS["plain"]]
        states = [states_of(each) for each in ids]
        generated = [model.generate(**each, max_new_tokens=12)[0].tolist() for each in inputs]
    return {
        "generated": generated,
        "filled": [[found["token"] for found in fill(text)] for text in TEXTS["masked"]],
        "words": [ids, places],
        "means": means,
        "states": [
            [state[at.index(i)] for i in range(len(each))]
            for state, at, each in zip(states, places, TEXTS["words"], strict=True)
        ],
    }


def run(command, folders):
    flags = {"USE_TF": "0", "USE_FLAX": "0", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command, *folders], env=os.environ | flags, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["generate", "optimum_onnx"])
def test_transformers_4_and_onnx_generate_and_fill_masks_alike(folders, wanted, name):
    found = run([optional_python("exporters"), USERS / f"{name}.py"], folders)
    assert found == {key: wanted[key] for key in found}


def test_ctranslate2_generates_alike(folders, wanted):
    found = run([optional_python("exporters"), USERS / "ctranslate2_translate.py"], folders)
    assert found["generated"] == [ids[1:] for ids in wanted["generated"]]


def test_sentence_transformers_gives_the_mean_of_the_states(folders, wanted):
    found = run([optional_python("users"), USERS / "sentence_transformers_encode.py"], folders)
    np.testing.assert_allclose(found["means"], wanted["means"], atol=1e-5)


def test_flair_gives_the_states_of_words(folders, wanted):
    found = run([optional_python("exporters"), USERS / "flair_words.py"], folders)
    for ours, theirs in zip(wanted["states"], found["states"], strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-5)


def test_transformers_js_gives_the_trainers_ids(folders):
    t5, encoder, _ = folders
    home = optional_folder("users") / "node"
    program = home / "transformers_js.mjs"  # Node looks for packages beside a program
    shutil.copy(USERS / program.name, program)
    found = run(["node", program], folders)
    own = TrainedVocabulary(f"{t5}/spiece.model", 0)
    assert found["t5"] == [[*own.encode(text), 1] for text in TEXTS["odd"]]
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    assert found["encoder"] == [tokenizer(text).input_ids for text in TEXTS["odd"]]


@pytest.mark.parametrize("name", ["t5_1_1", "t5gemma2"])
def test_a_plain_pytorch_loop_fine_tunes_and_the_trainer_reads_the_result(tmp_path, name):
    write_run(tmp_path / "run", dataclasses.replace(NETWORKS[name], vocab_size=2048))
    shutil.copy(MINI / "ro_mini.model", tmp_path / "run" / "vocabulary.model")
    assert converter.main([str(tmp_path / "run")]) == 0
    texts, tuned = tmp_path / "texts.json", tmp_path / "tuned"
    texts.write_text(
        json.dumps([["Ana are", "mere."], ["Copiii se joacă", "în curte, iar Ion vine."]])
    )
    folder = tmp_path / "run_hf" / "checkpoint_3"
    losses = run([sys.executable, USERS / "torch_finetune.py"], [folder, tuned, texts])
    assert losses[-1] < losses[0] - 0.1
    # `from_hf` compares the logits of the trainer with those of the fine-tuned folder.
    assert converter.main(["from_hf", str(tuned), str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "checkpoint_0").is_dir()


def folder_of(home, sizes, values, dtype):
    """Convert a run to a folder, which gets the batch of the proof; return both."""
    write_run(home, sizes, values)
    flags = ["--vocabulary", "none", "--no_verify", "--dtype", dtype]
    assert converter.main([str(home), *flags]) == 0
    folder = home.with_name(f"{home.name}_hf") / "checkpoint_3"
    batch = verify.probe_batch(sizes)
    ids, second = [*batch.values()][:2]
    if isinstance(sizes, T5Sizes):
        inputs = {"attention_mask": np.int32(ids > 0), "decoder_input_ids": second}
    else:
        inputs = {"attention_mask": second}
    np.savez(folder / "batch.npz", input_ids=ids, **inputs)
    return folder, batch


def test_transformers_4_computes_the_trainers_logits_of_every_kind(tmp_path):
    """By PyTorch and, for T5 and mT5, by Flax.

    A umT5 with a head of its own needs transformers 5: transformers 4 does not scale its logits.
    So does T5Gemma 2, which transformers 4 lacks.
    """
    networks = NETWORKS | ENCODERS
    del networks["t5gemma2"]
    networks["pretraining"] = dataclasses.replace(networks["bert"], next_sentence=True)
    networks["equal head"] = networks["rounded"] = networks["t5_1_1"]
    folders, logits, real = {}, {}, {}
    for name, sizes in networks.items():
        values = arrays(sizes)
        if name == "equal head":
            values["decoder/logits_dense/kernel"] = values["token_embedder/embedding"].T
        dtype = "bfloat16" if name == "rounded" else "float32"
        folders[name], batch = folder_of(tmp_path / name, sizes, values, dtype)
        weights = verify.rounded(tree(values), dtype)
        *_, counted = batch.values()
        real[name] = counted > 0
        ours = t5x_logits.trainer_logits(weights, sizes, batch)[real[name]]
        logits[name] = ours / sizes.output_scale
    environment = os.environ | {"XLA_FLAGS": FAST_COMPILATION, "USE_TF": "0"}
    program = [optional_python("flax"), USERS / "transformers_4_logits.py"]
    done = subprocess.run([*program, *folders.values()], env=environment, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
    for name, folder in folders.items():
        kinds = ["pytorch"] + ["flax"] * (networks[name].family in ("t5", "mt5"))
        for kind in kinds:
            found = np.load(folder / f"{kind}.npy")[real[name]]
            np.testing.assert_allclose(found, logits[name], atol=1e-4, err_msg=f"{name} {kind}")
