"""The lock pins what pyproject.toml asks for, for every Python, and names no index."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from fakes.paths import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
MAC = {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"}
PYTHONS = ("3.11", "3.12", "3.13")
OVERRIDDEN = {
    re.split("[ ;]", line)[0] for line in PYPROJECT["tool"]["uv"]["override-dependencies"]
}


def environment(python, machine):
    markers = {"python_version": python, "python_full_version": f"{python}.9", **machine}
    return markers | {"platform_python_implementation": "CPython", "implementation_name": "cpython"}


def pins(file, python, machine=LINUX) -> dict[str, str]:
    versions = {}
    for line in (ROOT / file).read_text().splitlines():
        if line.startswith("#"):
            continue
        pin = Requirement(line)
        if not pin.marker or pin.marker.evaluate(environment(python, machine)):
            assert pin.name not in versions, "one version of a package for a Python"
            (specifier,) = pin.specifier
            assert specifier.operator == "=="
            assert "+" not in specifier.version, "no build of one index"
            versions[pin.name] = specifier.version
    return versions


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_pins_what_the_lists_ask_for(python):
    locked = pins("requirements/lock.txt", python)
    lists = [PYPROJECT["project"]["dependencies"], *EXTRAS.values()]
    for requirement in map(Requirement, [line for lines in lists for line in lines]):
        if requirement.name not in OVERRIDDEN:
            assert requirement.specifier.contains(locked[requirement.name]), requirement


@pytest.mark.parametrize("python", PYTHONS)
def test_the_requirements_for_pip_agree_with_the_lock(python):
    """They have what trains on a TPU, and nothing that only some commands need."""
    lock = pins("requirements/lock.txt", python)
    pinned = pins("requirements.txt", python)
    names = {"jax", "libtpu", "seqio", "flax", "tensorflow", "datasets", "transformers"}
    assert names <= pinned.keys()
    assert not pinned.keys() & {"apache-beam", "pytest", "s3fs", "jax-cuda12-plugin"}
    assert {name for name, version in pinned.items() if lock.get(name) != version} <= OVERRIDDEN


def test_every_python_has_its_newest_jax_and_nothing_that_has_no_wheel():
    locks = {python: pins("requirements/lock.txt", python) for python in PYTHONS}
    assert locks["3.11"]["jax"].startswith("0.10.")
    for python in ("3.12", "3.13"):
        assert tuple(map(int, locks[python]["jax"].split(".")[:2])) >= (0, 12)
    assert "editdistance" not in locks["3.13"], "its build needs a compiler"
    assert "ilt-editdistance" in locks["3.13"], "the same module"
    mac = pins("requirements/lock.txt", "3.13", MAC)
    assert "libtpu" not in mac
    assert {"jax", "tensorflow", "torch"} <= mac.keys()
