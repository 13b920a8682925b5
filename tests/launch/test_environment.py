"""Every script answers --help, and then does nothing else."""

import subprocess
import sys

import pytest

from fakes.paths import ROOT, is_shipped
from fakes.shell import ENV, LAUNCH, bash, sentence

SCRIPTS = sorted(
    path.name
    for path in filter(is_shipped, LAUNCH.glob("*.sh"))
    if path.name not in ("environment.sh", "tpu_worker_setup.sh")
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_is_the_comment_that_begins_the_script(name):
    process = bash(LAUNCH / name, "--help", env={"PYTHON": "/does/not/exist"})
    assert (process.returncode, process.stderr) == (0, "")
    text = (LAUNCH / name).read_text()
    if '/train.sh" ' in text:  # a recipe's script
        text = (LAUNCH / "train.sh").read_text()
    comment = text.partition("\nset -euo pipefail")[0].splitlines()[1:]
    assert process.stdout.splitlines() == [
        line.removeprefix("#").removeprefix(" ") for line in comment
    ]
    assert "bash launch/" in process.stdout


def test_help_after_other_arguments_starts_nothing_whatever_cdpath_is(tmp_path):
    env = ENV | {"CDPATH": f".:{tmp_path}"}
    command = ["bash", "launch/train.sh", "ro_t5x_tiny", "--gin.TRAIN_STEPS=1", "--help"]
    process = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith("Trains a recipe of gin/")


@pytest.mark.parametrize("name", ["train.sh", "preflight.sh", "upstream.sh"])
def test_without_words_a_script_shows_its_usage_and_an_example(name):
    process = bash(LAUNCH / name, env={"PYTHON": "/does/not/exist"})
    assert process.returncode == 2
    assert f"bash launch/{name} " in process.stderr
    assert "ro_t5x_tiny" in process.stderr


@pytest.mark.parametrize("name", ["ro_t5_tiny", "gin/ro_t5x_tinny.gin", "ro-t5x-tiny"])
def test_a_wrong_recipe_name_gets_the_nearest_one(name):
    process = bash(LAUNCH / "train.sh", name, env={"PYTHON": sys.executable})
    assert "the nearest is ro_t5x_tiny.gin" in sentence(process)
