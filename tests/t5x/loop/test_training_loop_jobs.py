"""The jobs of fine-tuning from end to end, as their recipes are started; minutes of a core each."""

import csv
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from convert import __main__ as convert_main
from fakes.paths import ROOT
from report import misclassified
from tasks.jobs.classification import scores

SMALL = {
    "network.T5Config.emb_dim": 64,
    "network.T5Config.mlp_dim": 128,
    "network.T5Config.num_encoder_layers": 2,
    "network.T5Config.num_decoder_layers": 2,
    "INITIAL_CHECKPOINT_PATH": [],
}


def train(folder, gin_files, settings):
    """Trains into `folder`/run and returns what was measured: {metric: values}, predictions."""
    flags = [f"--gin_file={path}" for path in gin_files]
    settings = {**SMALL, "MODEL_DIR": f"{folder}/run", **settings}
    flags += [f"--gin.{name}={value!r}" for name, value in settings.items()]
    env = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    env |= {"PYTHONPATH": f"{ROOT}:{folder}"}
    command = [sys.executable, "-m", "t5x.train", *flags]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (measured,) = (folder / "run/inference_eval").glob("*-metrics.jsonl")
    rows = [json.loads(line) for line in measured.read_text().splitlines()]
    stem = measured.name.removesuffix("-metrics.jsonl")
    step = rows[-1]["step"]
    path = measured.parent / f"{stem}-{step:06}.jsonl"
    return rows, path


@pytest.mark.slow
def test_the_classification_recipe_learns_what_can_be_learned(tmp_path):
    draw = random.Random(0)
    words = ["casa", "masa", "apa", "foc", "drum", "pom", "cer", "mare"]
    labels = {"LQ_CLOSE": "unu", "LQ_EDIT": "doi", "HQ": "trei"}  # a word marks the class
    for name, n in (("train", 3000), ("valid", 30)):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["Title", "Body", "Y"])
            for _ in range(n):
                label = draw.choice(list(labels))
                text = [*draw.choices(words, k=6), labels[label]]
                draw.shuffle(text)
                rows.writerow([" ".join(text[:2]), f"<p>{' '.join(text[2:])}</p>", label])
    files = "tasks.jobs.classification.quality_files"
    settings = {
        f"{files}.train": str(tmp_path / "train.csv"),
        f"{files}.test": str(tmp_path / "valid.csv"),
        "TASK_FEATURE_LENGTHS": {"inputs": 48, "targets": 2},
        "TRAIN_STEPS": 300,
        "EVAL_PERIOD": 300,
    }
    rows, path = train(tmp_path, ["gin/quality_tiny.gin"], settings)
    found = rows[-1]
    n = sum(value for name, value in found.items() if name.startswith("confusion/"))
    assert n > 100  # the held-out part of the training file
    assert found["accuracy"] >= 0.95
    examples = list(misclassified.read(path.read_text().splitlines()))
    targets, predictions = [e.target for e in examples], [e.prediction for e in examples]
    again = scores(targets, predictions, ("none", "low", "high"))
    assert again == pytest.approx({name: found[name] for name in again})


@pytest.mark.slow
def test_a_model_of_hugging_face_is_where_a_fine_tune_starts(tmp_path):
    """With a learning rate of 0, which is kept above 1e-8, it comes out as it went in."""
    sizes = {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4, "vocab_size": 384}
    config = transformers.T5Config(**sizes, num_layers=2, feed_forward_proj="gated-gelu")
    model, published = transformers.T5ForConditionalGeneration(config), tmp_path / "published"
    model.lm_head.weight = torch.nn.Parameter(torch.randn(384, 64))
    model.save_pretrained(published)
    transformers.ByT5Tokenizer(extra_ids=125).save_pretrained(published)
    written = json.loads((published / "config.json").read_text())
    written |= {"tie_word_embeddings": False, "scale_decoder_outputs": False}
    (published / "config.json").write_text(json.dumps(written))
    convert = ["from_hf", str(published), str(tmp_path / "start")]
    assert convert_main.main(convert) == 0
    settings = {
        "network.T5Config.num_heads": 4,
        "network.T5Config.head_dim": 16,
        "INITIAL_CHECKPOINT_PATH": str(tmp_path / "start/checkpoint_0"),
        "TASK_FEATURE_LENGTHS": {"inputs": 64, "targets": 64},
        "TRAIN_STEPS": 2,
        "EVAL_PERIOD": 2,
        "EVALUATOR_NUM_EXAMPLES": 4,
        "KEEP_BEST": None,
        "BEST_METRIC": None,
        "utils.SaveCheckpointConfig.period": 2,
        "utils.create_learning_rate_scheduler.base_learning_rate": 0.0,
    }
    rows, _ = train(tmp_path, ["gin/ro_diacritics_byt5_tiny.gin"], settings)
    assert rows[-1]["step"] == 2
    assert convert_main.main([str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    (out,) = (tmp_path / "out").glob("checkpoint_*")
    found, wanted = (load_file(f / "model.safetensors") for f in (out, published))
    assert "lm_head.weight" in found
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=0, atol=1e-6, err_msg=name)
