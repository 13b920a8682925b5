"""flax_model.msgpack and the tokenizer in the last releases that run transformers 4's Flax T5.

`bash tests/optional_env.sh flax` sets them up in .venv-flax; without it the proof is skipped.
"""

import json
import os
import subprocess

import flax.serialization
import jax
import numpy as np
import pytest

from convert import atomic_output, to_hf, tokenizer
from convert.formats import flax_msgpack_writer
from convert.formats.safetensors_writer import DTYPES
from convert.proof import t5x_logits, verify
from convert.sizes import T5_IDS
from convert.to_hf import ConversionOptions
from fakes.convert_fakes import FAMILIES, arrays, tree
from fakes.paths import FAST_COMPILATION, ROOT

ENVIRONMENT = ROOT / ".venv-flax"
MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"
PROGRAM = """
import json, sys
import jax
import numpy as np
from transformers import AutoTokenizer, FlaxT5ForConditionalGeneration

with open("texts.json") as file:
    texts = json.load(file)
loaded = AutoTokenizer.from_pretrained("tokenizer")
with open("ids.json", "w") as file:
    json.dump([list(loaded(text).input_ids) for text in texts], file)

with np.load("batch.npz") as file:
    ids, shifted = file["encoder_input_tokens"], file["decoder_input_tokens"]
mask = (ids > 0).astype(np.int32)
for folder in sys.argv[1:]:
    # Without random parameters, whose program would compile for seconds.
    model, params = FlaxT5ForConditionalGeneration.from_pretrained(folder, _do_init=False)
    run = jax.jit(lambda params: model(
        ids, attention_mask=mask, decoder_input_ids=shifted, params=params).logits)
    np.save(f"{folder}/logits.npy", run(params))
"""
SAMPLE = (
    "Ana are mere, iar țăranii și-au strâns grânele.",
    "joacă <extra_id_0> în <extra_id_99>",
    "",
)
FOLDERS = {
    "relu": ("t5_1_0", "float32"),
    "gelu": ("t5_1_1", "float32"),
    "rounded": ("t5_1_1", "bfloat16"),
}


def write(folder, sizes, values, dtype):
    folder.mkdir()
    job = ConversionOptions(sizes=sizes, out=folder, formats=("flax",), dtype=dtype)
    to_hf.write_weights(folder, tree(values), sizes, job)
    atomic_output.write_json(folder / "config.json", sizes.config())
    atomic_output.write_json(folder / "generation_config.json", T5_IDS)


@pytest.mark.skipif(
    not (ENVIRONMENT / "ready").exists(),
    reason="no .venv-flax: bash tests/optional_env.sh flax installs transformers 4 with its Flax",
)
def test_transformers_4_computes_the_trainers_logits_and_ids(tmp_path):
    vocabulary = tokenizer.TrainedVocabulary(str(MINI), 0)
    vocabulary.publish(tmp_path / "tokenizer")
    (tmp_path / "texts.json").write_text(json.dumps(SAMPLE))
    batch = verify.probe_batch(FAMILIES["t5_1_0"])
    np.savez(tmp_path / "batch.npz", **batch)
    for folder, (name, dtype) in FOLDERS.items():
        write(tmp_path / folder, FAMILIES[name], arrays(FAMILIES[name]), dtype)
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-c", PROGRAM, *FOLDERS],
        cwd=tmp_path,
        env=os.environ | {"XLA_FLAGS": FAST_COMPILATION},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "newly initialized" not in done.stderr
    assert "not used" not in done.stderr
    for folder, (name, dtype) in FOLDERS.items():
        sizes = FAMILIES[name]
        weights = verify.rounded(tree(arrays(sizes)), dtype)
        ours = t5x_logits.trainer_logits(weights, sizes, batch)
        np.testing.assert_allclose(np.load(tmp_path / folder / "logits.npy"), ours, atol=1e-4)
    wanted = [[*vocabulary.encode(text), vocabulary.eos_id] for text in SAMPLE]
    assert json.loads((tmp_path / "ids.json").read_text()) == wanted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("chunk", [2**30, 64])
def test_flax_restores_what_was_written(tmp_path, monkeypatch, dtype, chunk):
    monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", chunk)
    rng = np.random.default_rng(0)
    shapes = {"a/weight": (7, 5), "b/weight": (11,), "c/weight": (3, 4)}
    values = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    path = tmp_path / "flax_model.msgpack"
    flax_msgpack_writer.write(path, tree(values), dtype)
    wanted = {name.split("/")[0]: {"weight": value} for name, value in values.items()}
    wanted = jax.tree.map(lambda value: value.astype(DTYPES[dtype]), wanted)
    assert path.read_bytes() == flax.serialization.msgpack_serialize(wanted)
    found = flax.serialization.msgpack_restore(path.read_bytes())
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
