"""The jobs of fine-tuning from end to end, as their recipes are started; minutes of a core each."""

import csv
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

from report import misclassified
from tasks.classification import scores
from tasks.summarization import ROUGE, rouge

ROOT = pathlib.Path(__file__).resolve().parent.parent
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
    labels = {"LQ_CLOSE": "unu", "LQ_EDIT": "doi", "HQ": "trei"}  # a word tells the class
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
    files = "tasks.classification.quality_files"
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


@pytest.mark.slow
def test_summaries_are_generated_during_training_and_measured_as_the_library_does(tmp_path):
    path = tmp_path / "pairs.csv"
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["article", "summary"])
        for i in range(64):
            word = "abcd"[i % 4] * 3
            rows.writerow([f"{word} {word}. More of it, number {i}.", f"{word} of it."])
    (tmp_path / "small_summaries_task.py").write_text(TASK.format(path))
    files = ["t5x/examples/t5/byt5/tiny.gin", "t5x/configs/runs/finetune.gin"]
    settings = {
        "MIXTURE_OR_TASK_NAME": "small_summaries",
        "MIXTURE_OR_TASK_MODULE": "small_summaries_task",
        "TASK_FEATURE_LENGTHS": {"inputs": 64, "targets": 16},
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
    direct = rouge([line["target"] for line in lines], [line["prediction"] for line in lines])
    assert {name: rows[-1][name] for name in direct} == pytest.approx(direct)
    assert all(rows[-1][name] > 0 for name in ROUGE[:1])
    best = max(rows, key=lambda row: row["rougeLsum"])
    generated = (tmp_path / "run/generated_predictions.jsonl").read_text().splitlines()
    generated = [json.loads(line) for line in generated]
    assert {(line["task"], line["step"]) for line in generated} == {
        ("small_summaries", best["step"])
    }
    direct = rouge(*([line[side] for line in generated] for side in ("target", "prediction")))
    assert best["rougeLsum"] == pytest.approx(direct["rougeLsum"])
