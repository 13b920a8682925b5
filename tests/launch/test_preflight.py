"""launch/preflight.sh passes recipe, slice and flags to Python, here a recording interpreter."""

import ast
import json
import os
import subprocess
import sys

import pytest

from fakes.paths import ROOT

SCRIPT = ROOT / "launch" / "preflight.sh"


@pytest.fixture
def started(tmp_path):
    """Run the script; return the flags that Python got, or the failed process."""
    python = tmp_path / "python"
    record = "import json, os, sys; print(json.dumps([os.environ['JAX_PLATFORMS'], *sys.argv[1:]]))"
    (tmp_path / "record.py").write_text(record)
    python.write_text(f'#!/usr/bin/env bash\nexec {sys.executable} {tmp_path}/record.py "$@"\n')
    python.chmod(0o755)

    def start(*flags, **environment):
        done = subprocess.run(
            ["bash", str(SCRIPT), *flags],
            env={"PATH": os.environ["PATH"], "HOME": "/", "PYTHON": str(python), **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return done
        said = json.loads(done.stdout)
        start.platform = said[0]
        return said[said.index("preflight") :]

    return start


def test_a_recipe_and_a_slice(started):
    flags = started("ro_t5x_base", "v4-8", "--offline")
    assert flags[:4] == ["preflight", "--gin_file=gin/ro_t5x_base.gin", "--slice", "v4-8"]
    assert flags[-1] == "--offline"
    assert '--gin.MODEL_DIR="runs/ro_t5x_base"' in flags


def test_the_devices_that_are_there_take_the_place_of_a_slice(started):
    assert started("ro_t5x_tiny", "here")[2:4] == ["--slice", "here"]
    for flags in (["here"], ["--slice", "here"], ["--slice=here"], ["--sweep", "--slice", "here"]):
        started("ro_t5x_tiny", *flags, JAX_PLATFORMS="cuda")
        assert started.platform == "cuda"
    started("ro_t5x_tiny", "v4-8", "--gin.MODEL_DIR='here'", JAX_PLATFORMS="cuda")
    assert started.platform == "cpu"


def test_comparing_slices_needs_no_slice(started):
    flags = started("ro_t5x_base", "--compare", "v4-8,v5e-16", MODEL_DIR="here")
    assert "--slice" not in flags
    (folder,) = [f for f in flags if f.startswith("--gin.MODEL_DIR=")]
    assert ast.literal_eval(folder.partition("=")[2]).endswith("/here")


@pytest.mark.parametrize("flags", [(), ("--offline",), ("--gin.A='--slice'", "--sweep")])
def test_without_a_slice_the_sentence_says_what_to_add(flags, started):
    done = started("ro_t5x_base", *flags)
    assert done.returncode == 2
    said = "name a slice, such as v4-8, or here; or give --compare NAME,NAME.\n"
    assert done.stderr == f"preflight.sh: {said}"
    for given in (["--slice=v4-8"], ["--slice", "v4-8"], ["--compare=v4-8,v5e-16"]):
        assert given[0] in started("ro_t5x_base", *flags, *given)


def test_a_recipe_may_be_named_by_its_file(started):
    flags = started("gin/ro_t5x_tiny.gin", "v4-8")
    assert "--gin_file=gin/ro_t5x_tiny.gin" in flags
    assert '--gin.MODEL_DIR="runs/ro_t5x_tiny"' in flags
