"""Training in phases: each goes on from the one before by one command, to longer rows."""

import json
import re

import numpy as np
import pytest

from convert.proof import torch_logits, verify
from convert.run import model_dir
from fakes.clone import Clone
from report.phases import joined
from report.run_data import Folder, load
from t5x import metrics

RATE = "utils.create_learning_rate_scheduler"
FIRST = {"TRAIN_STEPS": 40, "EVAL_PERIOD": 20, "EVAL_STEPS": 2, f"{RATE}.warmup_steps": 10}
LATER = {"train_script.train.run_eval_before_training": True}


def flags(**settings) -> str:
    return " ".join(f'--gin.{name}="{value!r}"' for name, value in settings.items())


def evaluations(run) -> list[dict[str, float]]:
    """Return the metrics of the one task of each evaluation."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    found = [event["metrics"] for event in events if event["event"] == "evaluate"]
    assert {len(tasks) for tasks in found} == {1}
    return [next(iter(tasks.values())) for tasks in found]


def losses(run) -> list[float]:
    return [values[metrics.UNNORMALIZED_LOSS] for values in evaluations(run)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return Clone(tmp_path_factory.mktemp("phases"), None)


@pytest.mark.slow
def test_three_phases_of_a_modernbert_lead_from_nothing_to_a_published_model(clone):
    """Rows of 128 tokens, then of 512 and a larger theta, then the rate falls on other text."""
    words = "--corpus 'data/ro_mini/train-*.jsonl' --name zz --kind modernbert --size tiny --phases"
    printed = clone.run(f"python -m tasks.new_language {words}")
    commands = re.findall(r"^  ((?:python|bash) (?:.*\\\n)*.*)", printed, re.MULTILINE)
    vocabulary, base, long, decay, convert = commands
    clone.run(vocabulary)

    clone.run(f"{base} {flags(**FIRST)}")
    runs = clone.root / "runs"
    name = "zz_modernbert_tiny"
    start = {"INITIAL_CHECKPOINT_PATH": f"runs/{name}/checkpoint_40", "TRAIN_STEPS_RELATIVE": 40}
    clone.run(f"{long} {flags(**FIRST, **LATER, **start)}")
    start = {"COOLDOWN_FROM": f"runs/{name}_long/checkpoint_80", "TRAIN_STEPS_RELATIVE": 20}
    clone.run(f"{decay} {flags(**FIRST, **LATER, **start)}")
    clone.run(convert)

    before, *_, after = losses(runs / f"{name}_long")
    assert after < before - 0.1

    phases = [f"{name}{phase}" for phase in ("", "_long", "_decay")]
    (whole,) = joined([load(Folder(str(runs / phase))) for phase in phases])
    curve = whole.series["train"]["learning_rate"]
    assert (curve.steps[0] <= 20, curve.steps[-1]) == (True, 100)
    assert np.all(np.diff(curve.steps) > 0)
    assert max(curve.values) > 7.5e-4 > curve.values[-1]
    assert [step for step, *_ in whole.history.configs] == [0, 40, 80]

    folder = runs / f"{name}_decay_hf/checkpoint_100"
    config = json.loads((folder / "config.json").read_text())
    assert config["max_position_embeddings"] == 512
    assert config["global_rope_theta"] == 160_000
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert tokenizer["model_max_length"] == 512
    run = model_dir.open_run(str(runs / f"{name}_decay/checkpoint_100"))
    sizes, _ = model_dir.network(run)
    ids = np.random.default_rng(0).integers(5, sizes.vocab_size, (2, 512), dtype=np.int32)
    batch = {"encoder_input_tokens": ids, "encoder_segment_ids": np.ones_like(ids)}
    theirs = torch_logits.torch_logits(torch_logits.load_network(folder, sizes), sizes, batch)
    ours = verify.trainer_logits([*run.checkpoints.values()], sizes, "float32", batch)
    assert verify.compare(ours, theirs) < verify.TOLERANCE * np.abs(ours).max()

    # The model before the decay, for others to go on from.
    clone.run(f"bash convert/convert.sh runs/{name}_long")
    assert (runs / f"{name}_long_hf/checkpoint_80/config.json").is_file()


@pytest.mark.slow
def test_a_t5_of_short_rows_goes_on_with_long_ones(clone):
    """Its relative positions are of distances, the far ones in one bucket, so none is new."""
    runs = clone.root / "runs"
    first = {**FIRST, "TRAIN_STEPS": 60}
    clone.run(f"bash launch/ro_t5x_tiny.sh {flags(**first)}")
    longer = {
        "TASK_FEATURE_LENGTHS": {"inputs": 512, "targets": 114},
        "BATCH_SIZE": 4,
        "utils.RestoreCheckpointConfig.path": "runs/ro_t5x_tiny/checkpoint_60",
        "utils.RestoreCheckpointConfig.mode": "specific",
        "TRAIN_STEPS_RELATIVE": 40,
        "RANDOM_SEED": 1,
    }
    long = "MODEL_DIR=runs/ro_t5x_tiny_long bash launch/ro_t5x_tiny.sh"
    clone.run(f"{long} {flags(**{**first, **LATER, **longer})}")
    before, *_, after = losses(runs / "ro_t5x_tiny_long")
    assert after < before - 0.1
    clone.run("bash convert/convert.sh runs/ro_t5x_tiny_long")
    assert (runs / "ro_t5x_tiny_long_hf/checkpoint_100/config.json").is_file()
