"""The locks pin what the lists ask for, agree with each other, and name no index."""

import re

import pytest
from packaging.requirements import Requirement

from fakes.paths import ROOT

LOCKS = {path.stem: path for path in (ROOT / "requirements").glob("*.txt")}
LOCKS["dev"] = ROOT / "requirements.txt"
LISTS = {
    "cpu": ("base", "cpu", "convert"),
    "tpu": ("base", "tpu", "convert"),
    "cuda": ("base", "cuda", "convert"),
    "cache": ("cache",),
    "clean": ("clean",),
    "dev": ("base", "tpu", "convert", "cache", "clean", "docs", "dev"),
}
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
MAC = {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"}
PYTHONS = ("3.11", "3.12", "3.13")
# On Linux launch/lock.sh replaces it.
REPLACED = {"tensorflow": "tensorflow-cpu"}


def requirements(path) -> list[Requirement]:
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    return [Requirement(line) for line in lines]


def pins(name, python, machine=LINUX) -> dict[str, str]:
    environment = {"python_version": python, "python_full_version": f"{python}.9", **machine}
    environment |= {"platform_python_implementation": "CPython", "implementation_name": "cpython"}
    found = {}
    for pin in requirements(LOCKS[name]):
        if not pin.marker or pin.marker.evaluate(environment):
            assert pin.name not in found, "one version of a package for a Python"
            (specifier,) = pin.specifier
            assert specifier.operator == "=="
            found[pin.name] = specifier.version
    return found


def test_there_is_a_lock_for_each_set():
    assert LOCKS.keys() == LISTS.keys()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LISTS)
def test_a_lock_pins_what_its_lists_ask_for(name, python):
    found = pins(name, python)
    assert not [version for version in found.values() if "+" in version], "no build of one index"
    for list_name in LISTS[name]:
        for wanted in requirements(ROOT / f"requirements/{list_name}.in"):
            if not wanted.marker or wanted.marker.evaluate({**LINUX, "python_version": python}):
                package = REPLACED.get(wanted.name, wanted.name)
                assert wanted.specifier.contains(found[package]), wanted


@pytest.mark.parametrize("python", PYTHONS)
def test_the_locks_agree(python):
    all_pins = {}
    for name in LISTS:
        for package, version in pins(name, python).items():
            assert all_pins.setdefault(package, version) == version, package


def test_a_flavour_has_only_what_its_device_needs():
    heavy = re.compile("libtpu|apache-beam|pytest|mypy|zensical|nvidia-.*|jax-cuda.*|tensorflow")
    found = {name: {p for p in pins(name, "3.11") if heavy.fullmatch(p)} for name in LISTS}
    assert found["cpu"] == set()
    assert found["tpu"] == {"libtpu"}
    assert {"jax-cuda12-plugin", "nvidia-cudnn-cu12"} <= found["cuda"]
    assert not [p for p in found["cuda"] if p.startswith("nvidia-") and not p.endswith("-cu12")]
    assert found["dev"] == {"libtpu", "apache-beam", "pytest", "mypy", "zensical"}


def test_python_3_11_keeps_the_jax_that_has_it():
    assert [pins("tpu", python)["jax"][:4] for python in PYTHONS] == ["0.10", "0.12", "0.12"]


def test_what_has_no_wheel_is_left_out():
    assert "editdistance" in pins("cpu", "3.12")
    assert "editdistance" not in pins("cpu", "3.13"), "its build needs a C++ compiler"
    mac = pins("tpu", "3.12", MAC)
    assert "libtpu" not in mac
    assert {"jax", "tensorflow", "torch"} <= mac.keys()
