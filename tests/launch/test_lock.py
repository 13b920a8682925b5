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
    found = {"python_version": python, "python_full_version": f"{python}.9", **machine}
    return found | {"platform_python_implementation": "CPython", "implementation_name": "cpython"}


def pins(file, python, machine=LINUX) -> dict[str, str]:
    found = {}
    for line in (ROOT / file).read_text().splitlines():
        if line.startswith("#"):
            continue
        pin = Requirement(line)
        if not pin.marker or pin.marker.evaluate(environment(python, machine)):
            assert pin.name not in found, "one version of a package for a Python"
            (specifier,) = pin.specifier
            assert specifier.operator == "=="
            assert "+" not in specifier.version, "no build of one index"
            found[pin.name] = specifier.version
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_pins_what_the_lists_ask_for(python):
    found = pins("requirements/lock.txt", python)
    lists = [PYPROJECT["project"]["dependencies"], *EXTRAS.values()]
    for wanted in map(Requirement, [line for lines in lists for line in lines]):
        if wanted.name not in OVERRIDDEN:
            assert wanted.specifier.contains(found[wanted.name]), wanted


@pytest.mark.parametrize("python", PYTHONS)
def test_the_requirements_for_pip_agree_with_the_lock(python):
    """They have what trains on a TPU, and nothing that only some commands need."""
    lock = pins("requirements/lock.txt", python)
    found = pins("requirements.txt", python)
    assert {
        "jax",
        "libtpu",
        "seqio",
        "flax",
        "tensorflow",
        "datasets",
        "transformers",
    } <= found.keys()
    assert not found.keys() & {"apache-beam", "pytest", "s3fs", "jax-cuda12-plugin"}
    assert {name for name, version in found.items() if lock.get(name) != version} <= OVERRIDDEN


def test_every_python_but_3_11_has_todays_jax():
    found = [pins("requirements/lock.txt", python)["jax"] for python in PYTHONS]
    assert found[0].startswith("0.10.")
    assert all(tuple(map(int, jax.split(".")[:2])) >= (0, 12) for jax in found[1:])


def test_what_has_no_wheel_is_left_out():
    found = pins("requirements/lock.txt", "3.13")
    assert "editdistance" not in found, "its build needs a compiler"
    assert "ilt-editdistance" in found, "the same module"
    mac = pins("requirements/lock.txt", "3.13", MAC)
    assert "libtpu" not in mac
    assert {"jax", "tensorflow", "torch"} <= mac.keys()
