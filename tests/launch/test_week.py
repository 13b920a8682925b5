"""A week of a real project's churn: slices that come and go, of several types, in two zones.

The supervisor, the worker's side and the training processes are the real ones; gcloud and the
clock are simulated (`fakes.week`). A slice lives 20 minutes to 2 days, and for hours there is none.
Set-up and start take 5 minutes of each slice, a checkpoint is saved every 20 minutes, and a slice
is taken without a warning.
"""

import json
import math
import os
import random
import subprocess
import sys

import pytest

from fakes import pods, week
from fakes.paths import FAST_COMPILATION, ROOT
from fakes.scalars import scalars
from fakes.shell import executable
from fakes.simulated_pod import Pod

HOUR = 3600.0
RECIPE = (
    pods.SMALL
    + f"""
import fakes.pace
train_script.train.actions = {{'TRAIN': [@fakes.pace.Pace()]}}
utils.SaveCheckpointConfig.period = {week.PERIOD}
TASK_FEATURE_LENGTHS = {{'inputs': 18, 'targets': 18}}  # so that the corpus is not read twice
# A low rate: rounding differs with the number of devices, and grows from step to step.
utils.create_learning_rate_scheduler.factors = 'constant'
utils.create_learning_rate_scheduler.base_learning_rate = 0.005
"""
)
LINE = "--xla_force_host_platform_device_count"
CASES = "".join(f"  {kind}) devices={n} ;;\n" for kind, n in week.DEVICES.items())
SCRIPT = f"""#!/usr/bin/env bash
case "$ACCELERATOR_TYPE" in
{CASES}esac
export XLA_FLAGS="$XLA_FLAGS {LINE}=$devices"
exec "$PYTHON" -m t5x.train --gin_file=gin/week.gin --gin.MODEL_DIR="'$MODEL_DIR'" "$@"
"""
# Answers as preflight does: the batch is cut differently on each type.
ADVISER = """#!/bin/sh
case "$*" in
  *preflight.files*) printf 'gin/week.gin\\t\\n' ;;
  *slice=v6e-8*) echo --gin.partitioning.PjitPartitioner.num_partitions=2 ;;
  *slice=v5e-1*) echo --gin.trainer.Trainer.num_microbatches=4 ;;
esac
"""


def churn(seed):
    """Return when a slice can be had in a week: [start, end, type, zone], in seconds."""
    draw = random.Random(seed)
    kinds, windows, now = [*week.DEVICES], [], 600.0
    while now < 7 * 24 * HOUR:
        if len(windows) % len(kinds) == 0:
            draw.shuffle(kinds)
        life = math.exp(draw.uniform(math.log(HOUR / 3), math.log(48 * HOUR)))
        kind, zone = kinds[len(windows) % len(kinds)], draw.choice(week.ZONES)
        windows.append([now, now + life, kind, zone])
        now += life + draw.expovariate(1 / (2 * HOUR))
    return windows


@pytest.mark.slow
def test_a_week_of_churn_trains_what_an_undisturbed_run_does(tmp_path):
    weather = churn(seed=5)
    lives = [end - start for start, end, *_ in weather]
    steps = int(0.85 * sum(lives) / week.STEP_SECONDS) // week.PERIOD * week.PERIOD
    pace = tmp_path / "pace"
    pace.mkdir()
    for name in ("allowed", "reached"):
        (pace / name).write_text("0")
    environment = {
        "PYTHON": sys.executable,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": FAST_COMPILATION,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "PYTHONPATH": f"{ROOT}/tests",
        "PACE": str(pace),
        "MODEL_DIR": str(tmp_path / "run"),
    }
    packages = ("common", "t5x", "tasks", "gin", "data", "convert")
    with Pod(tmp_path, 1, packages, environment) as pod:
        executable(pod.folder / "origin/launch/week.sh", SCRIPT)
        (pod.folder / "origin/gin/week.gin").write_text(RECIPE)
        pod.commit("a week")
        subprocess.run(["git", "-C", pod.clone, "pull", "-q"], check=True)
        executable(pod.clone / ".venv/bin/python", ADVISER)
        pod.cloud.write("weather", weather)
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHON"}
        driver = {"PYTHONPATH": f"{pod.clone}:{ROOT}/tests", "PACE": str(pace)}
        done = subprocess.run(
            [
                sys.executable,
                ROOT / "tests/fakes/week.py",
                pod.cloud.folder,
                pod.run_dir,
                str(steps),
            ],
            env=inherited | pod.cloud.environment | {"MODEL_DIR": str(pod.run_dir)} | driver,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        assert pod.cloud.left() == set(), "nothing that costs money"
        lines = (pod.cloud.folder / "ledger.jsonl").read_text().splitlines()
        ledger = [json.loads(line) for line in lines]

    granted, begun, used = 0.0, {}, set()
    for now, event, name in ledger:
        if event == "granted":
            begun[name] = now
            used.add(name)
        elif name in begun:
            granted += now - begun.pop(name)
    assert not begun
    assert {
        next(kind for kind in week.DEVICES if kind in name.replace("v5e", "v5litepod"))
        for name in used
    } == {*week.DEVICES}
    assert steps * week.STEP_SECONDS / granted >= 0.9
    assert ledger[-1][0] < 8 * 24 * HOUR

    for name in ("allowed", "reached"):
        (pace / name).write_text(str(steps))
    alone = {"PACE": str(pace), "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    with pods.Pod(tmp_path / "quiet", steps, 1, environment=alone, recipe=RECIPE) as quiet:
        assert not any(quiet.ends(1800)), quiet.said()
    disturbed, calm = scalars(pod.run_dir / "train"), quiet.losses()
    assert sorted(disturbed) == sorted(calm) == list(range(1, steps + 1))
    differences = [abs(disturbed[step] - calm[step]) for step in calm]
    print(
        f"{len(lives)} slices, {steps} steps, {max(differences):.1e}, "
        f"{steps * week.STEP_SECONDS / granted:.1%} of {granted / HOUR:.0f} h"
    )
    assert max(differences) < 1e-5
    epochs = scalars(quiet.run / "train", "data/epoch/ro_mini_span_corruption")
    assert epochs[steps] < 1, "each once"
    rows = [sorted(p.glob(f"checkpoint_{steps}/dataset/*.npz")) for p in (pod.run_dir, quiet.run)]
    for mine, theirs in zip(*rows, strict=True):  # begun rows of each shard
        assert mine.read_bytes() == theirs.read_bytes()
