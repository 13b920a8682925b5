"""The project installs as a package, and every file that states its version agrees."""

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from fakes.paths import PACKAGES, ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = {"cpu", "tpu", "cuda", "cache", "s3", "dev"}


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    headings = re.findall(
        r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", read("CHANGELOG.md"), re.MULTILINE
    )
    assert headings[0] == version
    assert yaml.safe_load(read("CITATION.cff"))["version"] == version


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_an_entry_point_is_a_function():
    for entry in PROJECT["scripts"].values():
        module, _, function = entry.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_every_python_is_tried_with_the_newest_versions_each_week():
    (job,) = yaml.safe_load(read(".github/workflows/newest.yml"))["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[1] == "bash launch/lock.sh --upgrade"
    assert commands[-1] == "bash tests/run.sh"
    pythons = [line for line in PROJECT["classifiers"] if "Python :: 3" in line]
    assert job["strategy"]["matrix"]["python"] == [line.split()[-1] for line in pythons]


@pytest.mark.slow
def test_it_installs_with_its_dependencies_and_extras_and_a_command_runs(tmp_path):
    patterns = PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name.rstrip("*") for name in patterns} == set(PACKAGES)
    copy, installed = tmp_path / "project", tmp_path / "prefix"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip = [
        sys.executable,
        *["-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index"],
    ]
    done = subprocess.run(
        [*pip, "--no-index", "--ignore-installed", "--prefix", installed, "--editable", copy],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = installed.glob("lib/python*/site-packages")
    (distribution,) = importlib.metadata.distributions(path=[str(folder)])
    required = distribution.requires or []
    assert distribution.metadata["Name"] == PROJECT["name"]
    assert distribution.version == PROJECT["version"]
    assert set(distribution.metadata.get_all("Provides-Extra")) >= EXTRAS
    assert any(line.startswith("jax>=") for line in required)
    assert 'pytest; extra == "dev"' in required
    of = lambda extra: {line for line in required if f'extra == "{extra}"' in line}
    assert not of("cpu")
    assert any(line.startswith("jax[tpu]") for line in of("tpu"))
    assert any(line.startswith("jax[cuda12]") for line in of("cuda"))
    assert set(PROJECT["scripts"]) <= {path.name for path in (installed / "bin").iterdir()}
    help_of = [installed / "bin/t5x-report", "--help"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(help_of, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "MODEL_DIR" in done.stdout
