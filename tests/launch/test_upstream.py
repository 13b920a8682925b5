"""launch/upstream.sh: mistakes are one sentence, and what it makes runs upstream's trainer."""

import os
import shutil
import subprocess
import sys

import pytest

from fakes.paths import ROOT
from fakes.shell import LAUNCH, bash, sentence

SCRIPT = LAUNCH / "upstream.sh"
MIRRORS = ("T5X_URL", "AIRIO_URL", "JESTIMATOR_URL", "T5_URL")


def test_the_repository_takes_in_no_source_of_upstream(tmp_path):
    repository = tmp_path / "clone"
    shutil.copytree(LAUNCH, repository / "launch")
    git("init", "--quiet", str(repository))
    refusal = sentence(bash("launch/upstream.sh", "upstream", cwd=repository))
    assert f"{repository}/upstream is in this repository" in refusal
    assert not any((repository / "upstream").iterdir())


def test_a_copy_that_is_absent_or_old_is_named_with_its_variable(tmp_path):
    old = tmp_path / "old"
    git("init", "--quiet", str(old))
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    git("-C", str(old), *identity, "commit", "--quiet", "--allow-empty", "-m", "first")
    for copy in (tmp_path / "nowhere", old):
        process = bash(SCRIPT, tmp_path / "up", env={"T5X_URL": str(copy)})
        assert process.returncode == 2
        *_, refusal = process.stderr.splitlines()
        assert str(copy) in refusal
        assert "set T5X_URL" in refusal


def test_a_folder_of_the_user_is_not_deleted(tmp_path):
    own = tmp_path / "src/t5x"
    git("init", "--quiet", str(own))
    (own / "mine.py").write_text("unsaved = 1\n")
    refusal = bash(SCRIPT, own.parent, env={"T5X_URL": str(tmp_path / "nowhere")})
    assert (own / "mine.py").exists()
    assert str(own) in sentence(refusal)


@pytest.mark.slow
def test_upstreams_trainer_runs_in_what_the_script_makes(tmp_path):
    if not all(os.environ.get(name) for name in MIRRORS):
        pytest.skip(f"{', '.join(MIRRORS)} do not name copies of upstream's repositories")
    clone = tmp_path / "clone"  # so that nothing is left in the repository
    shutil.copytree(LAUNCH, clone / "launch")
    for name in ("common", "data", "gin", "t5x", "tasks"):
        (clone / name).symlink_to(ROOT / name)
    # Not all of the environment: the tests simulate eight devices.
    of_pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    mirrors = of_pip | {name: os.environ[name] for name in MIRRORS} | {"PYTHON": sys.executable}

    script = clone / "launch/upstream.sh"
    first, again = (run(script, tmp_path / "up", env=mirrors) for _ in range(2))
    assert first.count("Cloning") == 4
    assert "Cloning" not in again
    run(
        clone / "launch/ro_t5x_tiny.sh",
        "--gin.USE_CACHED_TASKS=False",
        "--gin.TRAIN_STEPS=2",
        env={"T5X_DIR": str(tmp_path / "up/t5x"), "MODEL_DIR": str(tmp_path / "run")},
    )
    assert (tmp_path / "run/checkpoint_2").is_dir()


def run(*command, env):
    done = bash(*command, env=env, seconds=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def git(*arguments):
    subprocess.run(["git", *arguments], check=True, capture_output=True)
