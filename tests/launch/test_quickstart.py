"""The quickstart runs for real, with fewer steps, and reports that it is done."""

import os
import re
import shlex
import subprocess

import pytest

from fakes.paths import ROOT
from fakes.shell import LAUNCH, bash, executable

FEW_STEPS = [
    "--gin.TRAIN_STEPS=20",
    "--gin.EVAL_PERIOD=10",
    "--gin.utils.SaveCheckpointConfig.period=10",
]


def quickstart(model_dir, *flags):
    # The devices and the platform that conftest sets are for the tests themselves.
    drop = ("XLA_FLAGS", "JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL", "HF_HUB_OFFLINE", "PYTHON")
    env = {key: value for key, value in os.environ.items() if key not in drop}
    return subprocess.run(
        ["bash", str(ROOT / "launch/quickstart.sh"), *flags],
        env=env | {"MODEL_DIR": str(model_dir)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=1200,
    )


@pytest.mark.slow
def test_all_steps_run_and_a_second_run_repeats_nothing(tmp_path):
    first = quickstart(f"{tmp_path}/run/", *FEW_STEPS)
    assert first.returncode == 0, first.stderr
    assert re.findall(r"^\d\.", first.stdout, re.MULTILINE) == ["1.", "2.", "3.", "4."]
    continued = re.findall(r"^  .+ \[.*\]$", first.stdout, re.MULTILINE)
    assert len(continued) == 3  # by nothing, perhaps, after 20 steps
    assert "<extra_id" not in first.stdout
    assert re.search(r"[\d.]+ at step \d+, [\d.]+ at step 20: [\d.]+ less", first.stdout)
    for step in (10, 20):
        converted = {path.name for path in (tmp_path / f"run_hf/checkpoint_{step}").iterdir()}
        assert {"config.json", "model.safetensors", "flax_model.msgpack"} <= converted
    for output in (first.stdout, first.stderr):
        assert not re.search(r"^(WARNING|[IWE]0000)", output, re.MULTILINE), output

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoint_*/**/*")}
    again = quickstart(tmp_path / "run", *FEW_STEPS)
    assert again.returncode == 0, again.stderr
    assert "nothing is left to do" in again.stderr
    assert again.stdout.count(" is done.\n") >= 2
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoint_*/**/*")}


def test_the_command_for_the_curves_can_be_pasted(tmp_path):
    python = executable(tmp_path / "python", "#!/usr/bin/env bash\n")
    folder = tmp_path / "my run's $folder"
    env = {"PYTHON": str(python), "MODEL_DIR": str(folder)}
    process = bash(LAUNCH / "quickstart.sh", env=env, cwd="/")
    assert process.returncode == 0, process.stderr
    (command,) = re.findall(r"^  curves +(.*)$", process.stdout, re.MULTILINE)
    assert shlex.split(command) == [str(python), "-m", "tensorboard.main", f"--logdir={folder}"]


def test_a_bucket_is_refused_in_one_sentence():
    process = quickstart("gs://bucket/run")
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("quickstart.sh: MODEL_DIR is gs://bucket/run")
