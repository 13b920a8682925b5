"""seqio can be imported without the package `editdistance`."""

import subprocess
import sys

import pytest

from command_line import edit_distance
from fakes.paths import ROOT


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("abc", "abc", 0), ([1, 2], [2], 1)],
)
def test_the_distance_counts_single_edits(a, b, wanted):
    assert edit_distance.distance(a, b) == edit_distance.distance(b, a) == wanted


def test_an_installed_package_is_left_alone(monkeypatch):
    installed = object()
    monkeypatch.setitem(sys.modules, "editdistance", installed)
    edit_distance.provide()
    assert sys.modules["editdistance"] is installed


@pytest.mark.parametrize("package", ["t5x", "tasks", "vocabulary", "preflight"])
def test_it_is_there_before_seqio_is_imported(package):
    script = f"""
import importlib.util as util
find = util.find_spec
util.find_spec = lambda name, *a: None if name == "editdistance" else find(name, *a)
import {package}, editdistance
assert editdistance.__spec__ is None and editdistance.eval("ab", "b") == 1
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
