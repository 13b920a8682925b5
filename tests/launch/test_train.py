"""The scripts run for real, with an interpreter that records how it was called."""

import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from fakes.paths import ROOT, is_shipped
from fakes.shell import LAUNCH, bash, executable, sentence

SCRIPTS = sorted(filter(is_shipped, [*LAUNCH.glob("*.sh"), *ROOT.glob("convert/*.sh")]))
SCRIPTS += [*sorted(ROOT.glob("tests/*.sh")), ROOT / ".ci/run"]
RECIPES = sorted(path.stem for path in filter(is_shipped, (ROOT / "gin").glob("*.gin")))


# --- every script


def test_scripts_stop_at_the_first_error_and_please_shellcheck():
    for script in SCRIPTS:
        if script.name != "environment.sh":
            assert "\nset -euo pipefail\n" in script.read_text(), script
    shellcheck = pathlib.Path(sys.executable).parent / "shellcheck"
    if not shellcheck.exists():
        pytest.skip("shellcheck is not installed")
    command = [shellcheck, "-x", "-P", "SCRIPTDIR", *SCRIPTS]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout


def test_the_script_of_a_recipe_trains_it():
    scripts = [LAUNCH / f"{recipe}.sh" for recipe in RECIPES]
    scripts = [script for script in scripts if script.exists()]
    assert scripts
    for script in scripts:
        assert script.read_text().splitlines()[2:] == [
            f'exec bash "$(dirname "${{BASH_SOURCE[0]}}")/train.sh" {script.stem} "$@"'
        ]


# --- training


def recorded(process):
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    call = json.loads(process.stdout)
    assert call["argv"][0] == "-m"
    call["flags"] = call["argv"][1:]
    return call


def model_dir(call):
    (value,) = [f for f in call["flags"] if f.startswith("--gin.MODEL_DIR=")]
    return ast.literal_eval(value.partition("=")[2])


@pytest.mark.parametrize("given", ["topic", "gin/topic.gin", "topic.gin"])
def test_a_recipe_trains_into_its_own_folder_and_flags_come_last_so_that_they_win(given, recorder):
    flags = ["--gin.TRAIN_STEPS=7", '--gin.DROPOUT_RATE="a b"', "--dry_run"]
    call = recorded(bash(LAUNCH / "train.sh", given, *flags, env={"PYTHON": str(recorder)}))
    assert call["flags"][:2] == ["t5x.train", "--gin_file=gin/topic.gin"]
    assert model_dir(call) == "runs/topic"
    assert call["flags"][-3:] == flags
    assert call["cwd"] == str(ROOT)
    assert call["env"]["PYTHONPATH"] == str(ROOT)


@pytest.mark.parametrize("words", [["train.sh", "topic"], ["preflight.sh", "topic", "here"]])
def test_a_gin_file_of_the_current_directory_is_meant_before_one_of_the_repository(
    words, recorder, tmp_path
):
    for path in ("more file.gin", "gin/topic.gin"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    names = ["more file.gin", "gin/topic.gin", "gin/optimizers/muon.gin", "/etc/x.gin"]
    flags = [f"--gin_file={name}" for name in names]
    env = {"PYTHON": str(recorder)}
    call = recorded(bash(LAUNCH / words[0], *words[1:], *flags, env=env, cwd=tmp_path))
    expected = [tmp_path / "more file.gin", tmp_path / "gin/topic.gin", *names[2:]]
    assert call["flags"][-4:] == [f"--gin_file={path}" for path in expected]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("gs://bucket/run", "gs://bucket/run"),
        ("/data/run", "/data/run"),
        ("~/run", "/home/ana/run"),
        ('a "quoted" \\ name', '{cwd}/a "quoted" \\ name'),
    ],
)
def test_a_relative_model_dir_starts_from_the_current_directory(
    given, expected, recorder, tmp_path
):
    env = {"PYTHON": str(recorder), "MODEL_DIR": given, "HOME": "/home/ana"}
    call = recorded(bash(LAUNCH / "ro_t5x_base.sh", env=env, cwd=tmp_path))
    assert model_dir(call) == expected.format(cwd=tmp_path)
    assert call["cwd"] == str(ROOT)


@pytest.mark.slow
def test_a_dry_run_prints_the_configuration_the_checks_and_no_noise(tmp_path):
    env = {"PYTHON": sys.executable, "MODEL_DIR": "run"}
    flags = ["--dry_run", "--print_config", "--gin.TRAIN_STEPS=7"]
    process = bash(LAUNCH / "ro_t5x_tiny.sh", *flags, env=env, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    assert f"MODEL_DIR = '{tmp_path}/run'" in process.stdout.replace("\\\n    ", "")
    config, _, table = process.stdout.partition("\ncheck ")
    assert "TRAIN_STEPS = 7" in config
    assert "0 to 7, saved every 100, evaluated every 100" in table
    assert "2.1 M parameters; data/ro_mini/ro_mini.model, 2,048 ids" in table
    assert re.search(r"\n\d+ ok\n$", table), "no warning, and nothing that fails"


# --- upstream's trainer, and TensorFlow's notices

TRAIN = """
import importlib.util, json, os, sys
import gin, t5x, tasks
MARK = 1
gin.parse_config("include 't5x/configs/runs/pretrain.gin'")
gin.parse_config(f"INITIAL_CHECKPOINT_PATH = '{os.environ.get('START', '')}'")
gin.finalize()
print(json.dumps({
    "t5x": t5x.__file__, "tasks": tasks.__file__, "argv": sys.argv[1:], "who": __name__,
    "main": hasattr(sys.modules["__main__"], "MARK"),
    "cwd": os.getcwd(), "only_here": importlib.util.find_spec("t5x.classifier").origin,
    "included": gin.query_parameter("INCLUDED/gin.macro.value"),
    "path": gin.query_parameter("INITIAL_CHECKPOINT_PATH/gin.macro.value"),
}))
print("a warning of its own", file=sys.stderr)
"""
NOISE = """
import os
os.write(2, b"I0000 oneDNN\\n")
class config:
    set_visible_devices = staticmethod(lambda *_: os.write(2, b"E0000 cuInit\\n"))
"""


@pytest.fixture
def upstream(tmp_path):
    """The environment that runs a checkout whose trainer says what it sees.

    TensorFlow is a noisy stub. The scripts, RECIPE among them, are in a clone, so that nothing
    is left in the repository.
    """
    shutil.copytree(LAUNCH, tmp_path / "clone/launch")
    for name in ("common", "data", "gin", "t5x", "tasks"):
        (tmp_path / "clone" / name).symlink_to(ROOT / name)
    checkout = tmp_path / "checkout"
    files = {
        "checkout/t5x/__init__.py": "",
        "checkout/t5x/train.py": TRAIN,
        "checkout/t5x/configs/runs/pretrain.gin": "INCLUDED = 'upstream'\n",
        "stubs/tensorflow/__init__.py": NOISE,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(tmp_path / "stubs"),
        "T5X_DIR": str(checkout),
        "MODEL_DIR": str(tmp_path / "run"),
        "RECIPE": str(tmp_path / "clone/launch/ro_mt5x_base.sh"),
    }


@pytest.mark.parametrize("relative", [False, True])
def test_t5x_dir_puts_upstream_before_the_repository(upstream, tmp_path, relative):
    folders = {"T5X_DIR": "checkout", "MODEL_DIR": "run"} if relative else {}
    env = upstream | {"START": "runs/a/checkpoint_3"} | folders
    process = bash(upstream["RECIPE"], "--gin.TRAIN_STEPS=7", env=env, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    seen = json.loads(process.stdout)
    checkout, clone = upstream["T5X_DIR"], str(pathlib.Path(upstream["RECIPE"]).parent.parent)
    assert os.path.realpath(seen["t5x"]) == f"{checkout}/t5x/__init__.py"
    assert os.path.realpath(seen["tasks"]) == f"{ROOT}/tasks/__init__.py"
    assert seen["included"] == "upstream"
    assert seen["cwd"] == clone
    assert seen["only_here"] == f"{clone}/t5x/classifier.py"
    assert seen["who"] == "__main__"
    assert seen["main"]
    assert seen["path"] == f"{clone}/runs/a/checkpoint_3"
    assert seen["argv"] == [
        "--gin_file=gin/ro_mt5x_base.gin",
        f'--gin.MODEL_DIR="{tmp_path}/run"',
        "--gin.TRAIN_STEPS=7",
    ]


def test_a_t5x_dir_without_a_trainer_is_one_sentence(upstream, tmp_path):
    env = upstream | {"T5X_DIR": str(tmp_path)}
    refusal = sentence(bash(upstream["RECIPE"], env=env))
    assert f"T5X_DIR is {tmp_path}" in refusal


def test_a_package_that_the_checkout_lacks_is_named_with_the_script_that_installs_it(upstream):
    trainer = pathlib.Path(upstream["T5X_DIR"]) / "t5x/train.py"
    trainer.write_text("import fiddle_of_nowhere.printing\n")
    refusal = sentence(bash(upstream["RECIPE"], env=upstream))
    assert "needs the package fiddle_of_nowhere" in refusal
    assert "bash launch/upstream.sh DIR" in refusal
    trainer.write_text("import t5x.lost\n")  # a broken checkout, which no package completes
    process = bash(upstream["RECIPE"], env=upstream)
    assert process.returncode == 1
    assert "No module named 't5x.lost'" in process.stderr


def test_the_interpreter_beside_the_checkout_is_taken(upstream, tmp_path):
    script = f'#!/usr/bin/env bash\nMINE=1 exec {sys.executable} "$@"\n'
    executable(tmp_path / "venv/bin/python", script)
    trainer = pathlib.Path(upstream["T5X_DIR"]) / "t5x/train.py"
    trainer.write_text("import os\nprint('MINE' in os.environ)\n")
    without = {name: value for name, value in upstream.items() if name != "PYTHON"}
    assert bash(upstream["RECIPE"], env=without).stdout == "True\n"
    assert bash(upstream["RECIPE"], env=upstream).stdout == "False\n"


def test_notices_are_shown_when_the_import_fails(upstream, tmp_path):
    stub = tmp_path / "stubs/tensorflow/__init__.py"
    stub.write_text(NOISE + "raise ImportError('libtensorflow is missing')\n")
    process = bash(upstream["RECIPE"], env=upstream)
    assert process.returncode == 1
    assert "oneDNN" in process.stderr
    assert "libtensorflow is missing" in process.stderr


# --- devices


def exported(name, before="", env=None):
    """Return a variable after `export_settings` on a machine without TPU and GPU."""
    script = (
        f"set -euo pipefail; source {LAUNCH}/environment.sh; has_tpu() {{ false; }}; "
        f"has_gpu() {{ false; }}; {before}export_settings; echo ${{{name}-unset}}"
    )
    process = bash("-c", script, env=env)
    assert process.stderr == ""
    return process.stdout.strip()


def test_the_cpu_is_chosen_and_tuned_where_nothing_else_is_or_was_chosen():
    assert exported("JAX_PLATFORMS") == "cpu"
    assert exported("JAX_PLATFORMS", "has_tpu() { true; }; ") == "unset"
    assert exported("JAX_PLATFORMS", "has_gpu() { true; }; ") == "unset"
    for value in ("cuda,cpu", ""):
        assert exported("JAX_PLATFORMS", env={"JAX_PLATFORMS": value}) == value
    assert exported("GLIBC_TUNABLES").startswith("glibc.malloc.arena_max=")
    tunables = {"GLIBC_TUNABLES": "glibc.malloc.check=3"}
    assert exported("GLIBC_TUNABLES", env=tunables).startswith("glibc.malloc.check=3")
    assert exported("GLIBC_TUNABLES", env={"JAX_PLATFORMS": "tpu"}) == "unset"


@pytest.mark.parametrize("status", [0, 9])
def test_a_gpu_is_there_if_its_driver_responds(status, tmp_path):
    executable(tmp_path / "nvidia-smi", f"#!/bin/sh\necho NVIDIA-SMI\nexit {status}\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = bash("-c", f"source {LAUNCH}/environment.sh; has_gpu", env=env)
    assert (process.returncode == 0) == (status == 0)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"dev/accel0": ""}, True),
        ({"dev/accel/accel0": ""}, False),  # another maker's accelerator
        ({"dev/vfio/vfio": ""}, False),
        ({"dev/vfio/0": "", "sys/bus/pci/devices/a/vendor": "0x1ae0\n"}, True),
        ({"dev/vfio/0": "", "sys/bus/pci/devices/a/vendor": "0x10de\n"}, False),
    ],
)
def test_a_tpu_is_known_by_its_device_files(files, expected, tmp_path):
    for name, text in files.items():
        executable(tmp_path / name, text)
    process = bash("-c", f"source {LAUNCH}/environment.sh; has_tpu {tmp_path}")
    assert (process.returncode == 0) == expected


# --- Python


@pytest.mark.parametrize("script", ["train.sh", "preflight.sh"])
def test_a_relative_python_starts_from_the_current_directory(script, recorder):
    command = (LAUNCH / script, "ro_t5x_tiny", *["v4-8"] * (script == "preflight.sh"))
    folder = recorder.parent
    for python, cwd in ((f"./{recorder.name}", folder), (f"{folder.name}/python", folder.parent)):
        call = recorded(bash(*command, env={"PYTHON": python}, cwd=cwd))
        assert call["cwd"] == str(ROOT)


@pytest.mark.parametrize("given", ["bin/python", "python-of-no-one"])
def test_a_python_that_does_not_exist_is_one_sentence(given, tmp_path):
    process = bash(LAUNCH / "ro_t5x_tiny.sh", env={"PYTHON": given}, cwd=tmp_path)
    where = f"{tmp_path}/{given}" if "/" in given else given
    assert f"PYTHON is {where}, which is not a program: name an" in sentence(process)


# --- tests/run.sh


@pytest.mark.parametrize(
    ("given", "passed"),
    [(["-k", "a or b"], ["-k", "a or b"]), (["--slow", "-x"], ["-m", "slow", "-x"])],
)
def test_flags_reach_pytest(given, passed, tmp_path):
    python = executable(tmp_path / "python", '#!/usr/bin/env bash\nprintf "%s|" "$@"; echo\n')
    process = bash(ROOT / "tests/run.sh", *given, env={"PYTHON": str(python)}, cwd="/")
    check, style, tests, types = [line.split("|")[:-1] for line in process.stdout.splitlines()]
    assert check == ["-m", "ruff", "check", "."]
    assert style == ["-m", "ruff", "format", "--check", "."]
    assert types == ["-m", "mypy"]
    assert tests[:2] == ["-m", "pytest"]
    assert tests[len(tests) - len(passed) :] == passed


@pytest.mark.parametrize("failing", ["ruff", "pytest", "mypy"])
def test_a_failure_is_one_of_the_run_and_no_test_runs_on_a_tree_that_ruff_refuses(
    failing, tmp_path
):
    script = f'#!/usr/bin/env bash\necho "$2"; [[ "$2" != {failing} ]]\n'
    process = bash(ROOT / "tests/run.sh", env={"PYTHON": str(executable(tmp_path / "p", script))})
    assert process.returncode == 1
    ran = ["ruff"] if failing == "ruff" else ["ruff", "ruff", "pytest", "mypy"]
    assert process.stdout.split() == ran
