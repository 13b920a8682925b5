"""flax_model.msgpack and the tokenizers in the last releases that run transformers 4's Flax T5.

`bash tests/flax_env.sh` sets them up in .venv-flax; without it the proof is skipped.
"""

import json
import os
import subprocess

import numpy as np
import pytest

from convert import atomic_output, to_hf, weight_map
from convert.model_config import GENERATION_CONFIG, hugging_face_config
from convert.proof import t5x_logits, verify
from convert.run import vocabulary as vocabularies
from convert.to_hf import ConversionOptions
from fakes.convert_fakes import FAMILIES, arrays, tree
from fakes.paths import ROOT

ENVIRONMENT = ROOT / ".venv-flax"
MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"
PROGRAM = """
import json, sys
import numpy as np
from transformers import AutoTokenizer, FlaxT5ForConditionalGeneration

with open("texts.json") as file:
    texts = json.load(file)
fast, slow = (AutoTokenizer.from_pretrained("tokenizer", use_fast=fast) for fast in (True, False))
assert (fast.is_fast, slow.is_fast) == (True, False)
with open("ids.json", "w") as file:
    json.dump([[list(kind(text).input_ids) for text in texts] for kind in (fast, slow)], file)

with np.load("batch.npz") as file:
    ids, shifted = file["encoder_input_tokens"], file["decoder_input_tokens"]
mask = (ids > 0).astype(np.int32)
for folder in sys.argv[1:]:
    model = FlaxT5ForConditionalGeneration.from_pretrained(folder)
    logits = model(ids, attention_mask=mask, decoder_input_ids=shifted).logits
    np.save(f"{folder}/logits.npy", logits)
"""
FOLDERS = {
    "relu": ("t5_1_0", "float32"),
    "gelu": ("t5_1_1", "float32"),
    "rounded": ("t5_1_1", "bfloat16"),
}


def write(folder, sizes, values, dtype):
    folder.mkdir()
    job = ConversionOptions(sizes=sizes, out=folder, formats=("flax",), dtype=dtype)
    to_hf.write_weights(folder, tree(values), weight_map.tensors(sizes), job)
    atomic_output.write_json(folder / "config.json", hugging_face_config(sizes, "t5"))
    atomic_output.write_json(folder / "generation_config.json", GENERATION_CONFIG)


@pytest.mark.skipif(
    not (ENVIRONMENT / "ready").exists(),
    reason="no .venv-flax: bash tests/flax_env.sh installs transformers 4 with its Flax",
)
def test_transformers_4_computes_the_trainers_logits_and_ids(tmp_path):
    vocabulary = vocabularies.RunVocabulary(str(MINI), 0)
    vocabulary.write(tmp_path / "tokenizer")
    (tmp_path / "texts.json").write_text(json.dumps(vocabularies.SAMPLE))
    batch = verify.probe_batch(FAMILIES["t5_1_0"])
    np.savez(tmp_path / "batch.npz", **batch)
    for folder, (name, dtype) in FOLDERS.items():
        write(tmp_path / folder, FAMILIES[name], arrays(FAMILIES[name]), dtype)
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-c", PROGRAM, *FOLDERS],
        cwd=tmp_path,
        env=os.environ | {"XLA_FLAGS": ""},
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
    reference = vocabulary.reference_ids()
    wanted = [[*reference.encode(text), reference.eos_id] for text in vocabularies.SAMPLE]
    fast, slow = json.loads((tmp_path / "ids.json").read_text())
    assert fast == wanted
    assert slow == wanted
