"""The jobs of fine-tuning from end to end, as their recipes are started; minutes of a core each."""

import collections
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
from rouge_score import rouge_scorer
from safetensors.numpy import load_file

from convert import __main__ as convert_main
from fakes.paths import ROOT
from report import misclassified
from t5x.checkpointing.reader import open_checkpoint
from tasks.jobs.classification import scores
from tasks.text import sentence_split

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
@pytest.mark.parametrize("learnable", [True, False])
def test_the_classification_recipe_learns_what_can_be_learned(tmp_path, learnable):
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
                label = label if learnable else draw.choice(list(labels))
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
    if learnable:
        assert found["accuracy"] >= 0.95
    else:
        assert abs(found["accuracy"] - 1 / 3) < 0.15
    examples = list(misclassified.read(path.read_text().splitlines()))
    targets, predictions = [e.target for e in examples], [e.prediction for e in examples]
    again = scores(targets, predictions, ("n", "l", "h"))
    assert again == pytest.approx({name: found[name] for name in again})


TASK = """
from tasks import summarization, vocabularies
from tasks.rows import Rows

columns = {{"inputs": "article", "targets": "summary"}}
source = Rows(files={{"train": "{0}", "validation": "{0}"}}, columns=columns)
lengths = {{"inputs": 64, "targets": 16}}
summarization.add("small_summaries", source, vocabularies.byt5(), lengths=lengths)
"""


def write_pairs(path):
    """Articles and summaries that a task of `TASK` reads."""
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["article", "summary"])
        for i in range(64):
            word = "abcd"[i % 4] * 3
            rows.writerow([f"{word} {word}. More of it, number {i}.", f"{word} of it."])


SUMMARIES = {
    "MIXTURE_OR_TASK_NAME": "small_summaries",
    "MIXTURE_OR_TASK_MODULE": "small_summaries_task",
    "TASK_FEATURE_LENGTHS": {"inputs": 64, "targets": 16},
}


def write_task(folder):
    """A module with the task of `SUMMARIES`, and what it reads."""
    write_pairs(folder / "pairs.csv")
    (folder / "small_summaries_task.py").write_text(TASK.format(folder / "pairs.csv"))


def fine_tune_without_a_rate(folder, start, sizes):
    """Two steps from the checkpoint `start` of a network of `sizes`; the step they end at."""
    write_task(folder)
    last = int(start.name.removeprefix("checkpoint_")) + 2
    settings = SUMMARIES | {f"network.T5Config.{name}": value for name, value in sizes.items()}
    settings |= {
        "INITIAL_CHECKPOINT_PATH": str(start),
        "TRAIN_STEPS": last,
        "EVAL_PERIOD": 2,
        "utils.SaveCheckpointConfig.period": 2,
        "utils.create_learning_rate_scheduler.base_learning_rate": 0.0,
    }
    files = ["t5x/examples/t5/byt5/tiny.gin", "t5x/configs/runs/finetune.gin"]
    rows, _ = train(folder, files, settings)
    assert rows[-1]["step"] == last
    return last


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
    own = {"num_heads": 4, "head_dim": 16}
    fine_tune_without_a_rate(tmp_path, tmp_path / "start/checkpoint_0", own)
    assert convert_main.main([str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    (out,) = (tmp_path / "out").glob("checkpoint_*")
    found, wanted = (load_file(f / "model.safetensors") for f in (out, published))
    assert "lm_head.weight" in found
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=0, atol=1e-6, err_msg=name)


def rouge_score_of(lines):
    """Means over `lines` of what the rouge-score library itself finds, 0..100."""
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    by_sentence = rouge_scorer.RougeScorer(["rougeLsum"], use_stemmer=True)
    found = collections.Counter()
    for line in lines:
        pair = line["target"], line["prediction"]
        split = (
            "\n".join(sentence_split.split(text)) for text in pair
        )  # as the library wants them
        for name, score in (scorer.score(*pair) | by_sentence.score(*split)).items():
            found[name] += 100 * score.fmeasure / len(lines)
    return found


@pytest.mark.slow
def test_summaries_are_generated_during_training_and_measured_as_the_library_does(tmp_path):
    write_task(tmp_path)
    files = ["t5x/examples/t5/byt5/tiny.gin", "t5x/configs/runs/finetune.gin"]
    settings = SUMMARIES | {
        "TRAIN_STEPS": 100,
        "EVAL_PERIOD": 50,
        "EVAL_STEPS": 1,
        "KEEP_BEST": 1,
        "BEST_METRIC": "inference_eval/small_summaries/rougeLsum",
        "BATCH_SIZE": 16,
        "utils.create_learning_rate_scheduler.base_learning_rate": 0.01,
    }
    rows, predictions = train(tmp_path, files, settings)
    assert [row["step"] for row in rows] == [50, 100]
    lines = [json.loads(line) for line in predictions.read_text().splitlines()]
    assert len(lines) == 64
    direct = rouge_score_of(lines)
    assert {name: rows[-1][name] for name in direct} == pytest.approx(direct)
    assert rows[-1]["rouge1"] > 0
    best = max(rows, key=lambda row: row["rougeLsum"])
    generated = (tmp_path / "run/generated_predictions.jsonl").read_text().splitlines()
    generated = [json.loads(line) for line in generated]
    assert {(line["task"], line["step"]) for line in generated} == {
        ("small_summaries", best["step"])
    }
    assert best["rougeLsum"] == pytest.approx(rouge_score_of(generated)["rougeLsum"])


@pytest.mark.slow
def test_a_public_checkpoint_of_t5x_is_where_a_fine_tune_starts(tmp_path, golden):
    """With a learning rate of 0, which is kept above 1e-8, it comes out as it went in."""
    start = golden.folder / "legacy/checkpoint_25"
    last = fine_tune_without_a_rate(tmp_path, start, golden.settings["config"])
    arrays = open_checkpoint(str(tmp_path / f"run/checkpoint_{last}"))
    wanted = golden.arrays("final_state")
    targets = [name for name in wanted if name.startswith("target/")]
    assert targets
    for name in targets:
        np.testing.assert_allclose(arrays[name].read(), wanted[name], rtol=0, atol=1e-6)
