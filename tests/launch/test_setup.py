"""Set-up runs for real, with Python interpreters that only record how they were called."""

import functools
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from fakes.shell import ENV, FAKE_PYTHON, LAUNCH, bash, executable, sentence


@pytest.fixture
def fresh(tmp_path):
    """A clone with only its launch scripts and small locks, and an inert Python of every name."""
    shutil.copytree(LAUNCH, tmp_path / "clone/launch")
    clone = Clone(tmp_path)
    clone.lock("cpu", "one==1\ntwo==2\n")
    clone.lock("tpu", "one==1\nlibtpu==3\n")
    clone.lock("cuda", "one==1\njax-cuda12-plugin==4\n")
    clone.lock("cache", "beam==5\n")
    clone.lock("clean", "words==6\n")
    (tmp_path / "clone/requirements.txt").write_text("one==1\npytest==6\n")
    return clone


class Clone:
    def __init__(self, folder):
        self.folder = folder
        self.venv = folder / "clone/.venv"
        self.stamp = self.venv / "installed"
        self.script = folder / "clone/launch/setup.sh"
        self.pythons()

    def pythons(self, version="3.11.7", old=0, bare=0):
        text = FAKE_PYTHON.format(version=version, old=old, bare=bare, folder=self.folder)
        for name in ("python3.11", "python3", "python3.12", "python3.13"):
            executable(self.folder / "bin" / name, text)

    def lock(self, name, text):
        path = self.folder / f"clone/requirements/{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def gpu(self, driver):
        executable(self.folder / "bin/nvidia-smi", f"#!/bin/sh\necho {driver}\n")

    def env(self, **settings):
        return ENV | {"PATH": f"{self.folder}/bin:{ENV['PATH']}"} | settings

    def setup(self, *flags, **settings):
        return bash(self.script, *flags, env=self.env(**settings), cwd="/")

    def calls(self, beginning):
        text = (self.folder / "calls").read_text()
        return [line for line in text.splitlines() if line.startswith(beginning)]


def test_setup_installs_the_lock_once(fresh):
    first = fresh.setup()
    assert first.returncode == 0, first.stderr
    assert "2 packages are installed" in first.stdout
    assert fresh.stamp.read_text() == "--cpu\none==1\ntwo==2\n"
    again = fresh.setup()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(fresh.calls("-m pip install")) == 1


def test_another_lock_is_installed_over_the_old(fresh):
    fresh.setup()
    fresh.lock("cpu", "one==1\ntwo==3\n")
    assert fresh.setup().returncode == 0
    assert len(fresh.calls("-m pip install")) == 2
    assert not any("--clear" in call for call in fresh.calls("-m venv"))


def test_an_error_of_pip_is_shown_and_nothing_counts_as_installed(fresh):
    failed = fresh.setup(PIP_SAYS="ERROR: no matching distribution for two==2")
    assert failed.returncode == 1, "another try may succeed, whereas 2 is never tried again"
    assert "ERROR: no matching distribution" in failed.stdout
    assert failed.stderr.count("\n") == 1
    assert failed.stderr.endswith(f"its output is in {fresh.venv}/pip.log.\n")
    assert not fresh.stamp.exists()
    assert fresh.setup().returncode == 0
    assert "--clear" in fresh.calls("-m venv")[-1]


FOREIGN = ".venv exists and was not made by launch/setup.sh: set PYTHON=.venv/bin/python to use it"


@pytest.mark.parametrize("config", ["pyvenv.cfg", "conda-meta"])
def test_an_environment_of_the_user_is_never_erased(config, fresh):
    """`uv pip install -e` puts the packages into ./.venv, if there is one."""
    mine = fresh.venv / "lib/python3.11/site-packages/t5x_recipes-0.1.dist-info"
    (mine.parent / "pip-24.0.dist-info").mkdir(parents=True)
    (fresh.venv / config).touch()
    if config == "pyvenv.cfg":
        mine.mkdir()
    for flags in ([], ["--dev"], ["--cuda"]):
        assert FOREIGN in sentence(fresh.setup(*flags))
    assert (fresh.venv / config).exists()
    assert mine.exists() == (config == "pyvenv.cfg")


def test_an_environment_without_packages_only_chooses_the_python(fresh):
    """The workflows run `python -m venv .venv` before tests/run.sh."""
    for name in ("pip-24.0", "setuptools-65.5.0", "wheel-0.45"):
        (fresh.venv / f"lib/python3.12/site-packages/{name}.dist-info").mkdir(parents=True)
    (fresh.venv / "pyvenv.cfg").touch()
    assert fresh.setup("--dev").returncode == 0
    assert fresh.stamp.exists()


def test_what_set_up_itself_left_unfinished_is_made_again(fresh):
    package = fresh.venv / "lib/python3.11/site-packages/one-1.dist-info"
    for mark in (".made_by_setup", "pip.log"):  # the latter of an earlier version
        package.mkdir(parents=True)
        (fresh.venv / mark).touch()
        assert fresh.setup().returncode == 0
        assert "--clear" in fresh.calls("-m venv")[-1]
        assert not package.exists()
        assert (fresh.venv / ".made_by_setup").exists()
        shutil.rmtree(fresh.venv)


def wait_for(condition):
    for _ in range(4800):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the condition did not hold within 240 s")


def test_ctrl_c_half_way_leaves_nothing_that_counts_as_done(fresh):
    process = subprocess.Popen(
        ["bash", fresh.script],
        env=fresh.env(PIP_SLEEPS="30"),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for((fresh.folder / "pip_is_running").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert "the same command starts again" in process.communicate(timeout=240)[0]
    assert process.returncode == 2
    assert not fresh.stamp.exists()
    assert fresh.setup().returncode == 0
    assert "--clear" in fresh.calls("-m venv")[-1]
    assert fresh.stamp.exists()


@pytest.mark.skipif(not shutil.which("flock"), reason="no flock here")
def test_two_set_ups_at_once_are_one(fresh):
    start = lambda: subprocess.Popen(
        ["bash", fresh.script], env=fresh.env(PIP_SLEEPS="1"), stdout=subprocess.PIPE, text=True
    )
    first = start()
    wait_for((fresh.folder / "pip_is_running").exists)
    second = start()
    assert "waiting for it" in second.communicate(timeout=240)[0]
    first.communicate(timeout=240)
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(fresh.calls("-m pip install")) == 1


def test_an_old_python_is_one_sentence(fresh):
    fresh.pythons(version="3.9.18", old=1)
    said = sentence(fresh.setup())
    assert "Python 3.11, 3.12 or 3.13 is needed and 3.9.18 was found: install" in said
    assert not fresh.venv.exists()


def test_a_python_without_venv_is_one_sentence(fresh):
    fresh.pythons(bare=1)
    assert "python3.11 has no venv module: install it" in sentence(fresh.setup())


# --- flavours


def test_each_device_has_its_lock_and_extras_are_kept(fresh):
    assert fresh.setup("--tpu", "--cache").returncode == 0
    assert fresh.stamp.read_text() == "--tpu --cache\none==1\nlibtpu==3\nbeam==5\n"
    (call,) = fresh.calls("-m pip install")
    wanted = "--no-deps --requirement=requirements/tpu.txt --requirement=requirements/cache.txt"
    assert call.endswith(wanted)
    fresh.setup()
    assert len(fresh.calls("-m pip install")) == 1, "the flavour that .venv has is kept"
    fresh.setup("--clean")
    assert fresh.calls("-m pip install")[-1].endswith("--requirement=requirements/clean.txt")
    fresh.setup("--dev")
    assert fresh.stamp.read_text().startswith("--tpu --cache --clean --dev\n")
    assert fresh.calls("-m pip install")[-1].endswith("--requirement=requirements.txt")


@pytest.mark.parametrize(
    ("before", "after", "cleared"),
    [("cpu", "tpu", False), ("cpu", "cuda", False), ("cuda", "cpu", True), ("tpu", "cuda", True)],
)
def test_another_device_leaves_nothing_of_the_old_one(before, after, cleared, fresh):
    fresh.setup(f"--{before}")
    assert fresh.setup(f"--{after}").returncode == 0
    assert fresh.stamp.read_text().startswith(f"--{after}\n")
    assert ("--clear" in fresh.calls("-m venv")[-1]) == cleared


def test_the_default_is_what_the_machine_has(fresh):
    fresh.gpu("570.86.15")
    fresh.setup()
    assert fresh.stamp.read_text().startswith("--cuda\n")


def test_an_unknown_flavour_is_one_sentence(fresh):
    said = sentence(fresh.setup("--gpu"))
    assert "'--gpu' is not understood: bash launch/setup.sh takes --cpu, --tpu or --cuda" in said
    assert "--tpu and --cuda are for different devices" in sentence(fresh.setup("--tpu", "--cuda"))
    assert not fresh.venv.exists()


def test_an_old_driver_is_one_sentence(fresh):
    fresh.gpu("470.256.02")
    said = sentence(fresh.setup("--cuda"))
    assert "driver is 470.256.02 and jax for CUDA 12 needs 525.60.13 or newer: update" in said
    assert "bash launch/setup.sh --cpu" in said
    assert not fresh.venv.exists()
    chosen = fresh.setup()
    assert chosen.returncode == 0, "by itself it takes the CPU, and says why"
    assert "driver is 470.256.02" in chosen.stderr
    assert fresh.stamp.read_text().startswith("--cpu\n")


# --- PyTorch's index


def torch_calls(fresh, **settings):
    fresh.lock("cpu", "one==1\ntorch==2.13.0\n")
    done = fresh.setup(**settings)
    assert done.returncode == 0, done.stderr
    return done.stdout, [call.partition("off --no-compile ")[2] for call in fresh.calls("-m pip")]


LOCK = "--no-deps --requirement=requirements/cpu.txt"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has two builds")
def test_the_cpu_build_of_torch_is_asked_for_first(fresh):
    said, calls = torch_calls(fresh, TORCH_INDEX="http://127.0.0.1/cpu")
    index = "--no-deps --retries 1 --index-url http://127.0.0.1/cpu torch==2.13.0"
    assert calls[:2] == [index, LOCK]
    assert "CUDA" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has two builds")
def test_an_index_without_an_answer_is_replaced_and_said(fresh):
    said, calls = torch_calls(fresh, INDEX_FAILS="1")
    assert calls == [LOCK, "torch==2.13.0"], "the build of pip's index, then what it needs"
    assert "https://download.pytorch.org/whl/cpu gave no torch==2.13.0 within seconds" in said


def wheel(folder, name, version, requires=""):
    """Write a wheel with one empty module, as an index has it."""
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
    tags = "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(f"{info}/WHEEL", tags)
        file.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has two builds")
@pytest.mark.parametrize("answers", [True, False])
def test_real_pip_takes_the_cpu_build_where_its_index_answers(answers, fresh):
    wheel(fresh.folder / "pypi", "one", "1")
    wheel(fresh.folder / "pypi", "cuda_libraries", "13")
    wheel(fresh.folder / "pypi", "torch", "2.13.0", "Requires-Dist: cuda-libraries\n")
    wheel(fresh.folder / "pytorch", "torch", "2.13.0+cpu")
    (fresh.folder / "pypi/cuda_libraries").rename(fresh.folder / "pypi/cuda-libraries")
    fresh.lock("cpu", "one==1\ntorch==2.13.0\n")
    shutil.rmtree(fresh.folder / "bin")
    executable(fresh.folder / "bin/python3.11", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=fresh.folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_port}"
        done = fresh.setup(
            PIP_CONFIG_FILE=os.devnull,
            PIP_INDEX_URL=f"{host}/pypi",
            TORCH_INDEX=f"{host}/pytorch" if answers else "http://127.0.0.1:9",
        )
        server.shutdown()
    assert done.returncode == 0, done.stdout + done.stderr
    found = {path.name for path in fresh.venv.glob("lib/python*/site-packages/*.dist-info")}
    cpu, cuda = {"torch-2.13.0+cpu.dist-info"}, {"cuda_libraries-13.dist-info"}
    assert "one-1.dist-info" in found
    assert (cpu <= found, cuda <= found) == (answers, not answers)
    assert ("http://127.0.0.1:9 gave no torch==2.13.0" in done.stdout) != answers
