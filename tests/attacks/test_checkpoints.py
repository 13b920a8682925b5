"""A run whose checkpoints are damaged at random starts from the newest that can be read.

Each attack damages one or two files, or a folder, in the newest, the two newest or all of the
checkpoints, in the ways of tests/fakes/damage.py. The run must start with the numbers and the data
of the newest checkpoint that can be read and name each newer one, or, where all are damaged, end
with one sentence that names all.
"""

import pathlib
import random
import re
import shutil
from collections.abc import Sequence

import pytest

from fakes import damage, pods


def attack(run: pathlib.Path, steps: Sequence[int], rng: random.Random) -> set[int]:
    """Damage some of the newest checkpoints in a run's folder; return their steps."""
    damaged = set()
    for step in steps[-rng.choice((1, 1, 1, 2, len(steps))) :]:
        folder = run / f"checkpoint_{step}"
        paths = [str(path) for path in damage.files(folder)] + list(damage.FOLDERS)
        for path in rng.sample(paths, rng.choice((1, 1, 2))):
            kind = "deleted" if path in damage.FOLDERS else rng.choice(damage.KINDS)
            if (folder / path).exists():  # unless its folder has gone
                damage.damage(folder / path, kind, rng)
                print(f"{step}/{path} {kind}")
                damaged.add(step)
    return damaged


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    return damage.Starter(tmp_path_factory.mktemp("sound") / "run")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_a_start_in_this_process(starter, tmp_path, seed):
    copy = tmp_path / "copy"
    shutil.copytree(starter.folder, copy)
    damaged = attack(copy, damage.STEPS, random.Random(seed))
    assert not damage.fault(starter.start(copy), copy, damaged)


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    """A run of `python -m t5x.train` with checkpoints 10, 20 and 30."""
    folder = tmp_path_factory.mktemp("real")
    keep = "utils.SaveCheckpointConfig.keep = None\n"
    with pods.Pod(folder, 30, programs=folder / "programs", bindings=keep) as pod:
        assert pod.ends() == [0], pod.said()
    return pod


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_start_of_the_command(pod, tmp_path, seed):
    run = tmp_path / "run"
    shutil.copytree(pod.run, run)
    steps = (10, 20, 30)
    damaged = attack(run, steps, random.Random(seed))
    keep = "utils.SaveCheckpointConfig.keep = None\n"
    with pods.Pod(tmp_path, 32, programs=pod.folder / "programs", bindings=keep) as again:
        status, output = again.ends()[0], again.said()
    begun = re.search(r"^Resuming from step (\d+)", output, re.MULTILINE)
    error = next((line for line in output.splitlines() if line.startswith("Error: ")), output)
    outcome = (
        damage.Found(int(begun[1]), None, (output,)) if begun else damage.Found(None, error, ())
    )
    assert not damage.fault(outcome, run, damaged, steps)
    assert status == (0 if begun else 2)
    assert "Traceback" not in output
