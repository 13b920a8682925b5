"""launch/preflight.sh passes recipe, slice and flags to Python, here a recording interpreter."""

import ast
import json

import pytest

from fakes.shell import LAUNCH, bash, sentence


@pytest.fixture
def started(recorder, tmp_path):
    """Run the script; return the flags that Python got, or the failed process."""

    def start(*flags, **environment):
        env = {"PYTHON": str(recorder), **environment}
        done = bash(LAUNCH / "preflight.sh", *flags, env=env, cwd=tmp_path)
        if done.returncode:
            return done
        call = json.loads(done.stdout)
        start.platform = call["env"]["JAX_PLATFORMS"]
        return call["argv"][call["argv"].index("preflight") :]

    return start


def test_a_recipe_and_a_slice(started):
    flags = started("gin/ro_t5x_base.gin", "v4-8", "--offline")
    assert flags[:4] == ["preflight", "--gin_file=gin/ro_t5x_base.gin", "--slice", "v4-8"]
    assert flags[-1] == "--offline"
    assert '--gin.MODEL_DIR="runs/ro_t5x_base"' in flags


def test_the_devices_that_are_there_take_the_place_of_a_slice(started):
    for flags in (["here"], ["--slice=here"], ["--offline", "--slice", "here"]):
        started("ro_t5x_tiny", *flags, JAX_PLATFORMS="cuda")
        assert started.platform == "cuda"
    started("ro_t5x_tiny", "v4-8", "--gin.MODEL_DIR='here'", JAX_PLATFORMS="cuda")
    assert started.platform == "cpu"


def test_a_slice_may_be_a_flag(started):
    flags = started("ro_t5x_base", "--slice=v4-8", MODEL_DIR="here")
    assert "--slice" not in flags
    (folder,) = [f for f in flags if f.startswith("--gin.MODEL_DIR=")]
    assert ast.literal_eval(folder.partition("=")[2]).endswith("/here")


@pytest.mark.parametrize("flags", [(), ("--gin.A='--slice'", "--offline")])
def test_without_a_slice_the_sentence_says_what_to_add(flags, started):
    assert "name a slice" in sentence(started("ro_t5x_base", *flags))
    assert "--slice" in started("ro_t5x_base", *flags, "--slice", "v4-8")
