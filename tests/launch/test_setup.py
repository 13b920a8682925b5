"""Set-up runs for real, with Python interpreters that only record how they were called."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from fakes.paths import ROOT
from fakes.shell import ENV, FAKE_PYTHON, LAUNCH, bash, executable, sentence


@pytest.fixture
def fresh(tmp_path):
    """A clone with only its launch scripts, and an inert Python of every name."""
    shutil.copytree(LAUNCH, tmp_path / "clone/launch")
    (tmp_path / "clone/requirements.txt").write_text("one==1\ntwo==2\n")
    return Clone(tmp_path)


class Clone:
    def __init__(self, folder):
        self.folder = folder
        self.venv = folder / "clone/.venv"
        self.stamp = self.venv / "installed.txt"
        self.script = folder / "clone/launch/setup.sh"
        self.pythons()

    def pythons(self, version="3.11.7", old=0, bare=0):
        text = FAKE_PYTHON.format(version=version, old=old, bare=bare, folder=self.folder)
        for name in ("python3.11", "python3", "python3.12", "python3.13"):
            executable(self.folder / "bin" / name, text)

    def env(self, **settings):
        return ENV | {"PATH": f"{self.folder}/bin:{ENV['PATH']}"} | settings

    def setup(self, **settings):
        return bash(self.script, env=self.env(**settings), cwd="/")

    def calls(self, beginning):
        text = (self.folder / "calls").read_text()
        return [line for line in text.splitlines() if line.startswith(beginning)]


def test_setup_installs_the_lock_once(fresh):
    first = fresh.setup()
    assert first.returncode == 0, first.stderr
    assert "2 packages are installed" in first.stdout
    assert fresh.stamp.read_text() == "one==1\ntwo==2\n"
    again = fresh.setup()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(fresh.calls("-m pip install")) == 1


def test_another_lock_is_installed_over_the_old(fresh):
    fresh.setup()
    (fresh.folder / "clone/requirements.txt").write_text("one==1\ntwo==3\n")
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
    assert "Python 3.11 or newer is needed and 3.9.18 was found" in said
    assert not fresh.venv.exists()


def test_a_python_without_venv_is_one_sentence(fresh):
    fresh.pythons(bare=1)
    assert "python3.11 has no venv module: install it" in sentence(fresh.setup())


def test_the_lock_pins_every_requirement_and_names_no_index():
    pins = dict(
        line.split("==")
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    assert not [version for version in pins.values() if not version[0].isdigit() or "+" in version]
    wanted = [(ROOT / f"requirements{kind}.in").read_text() for kind in ("", "-dev")]
    for line in "".join(wanted).splitlines():
        if line.startswith("#"):
            continue
        name, _, version = line.partition("==")
        found = {n.replace("_", "-"): v for n, v in pins.items()}[name.partition("[")[0]]
        assert found == version or (found + ".").startswith(version.rstrip("*")), line
