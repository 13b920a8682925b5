"""Set-up runs for real, with interpreters and a uv that only record how they were called."""

import functools
import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from fakes.shell import ENV, LAUNCH, bash, executable, fake_pythons, sentence
from launch import pip_settings


@pytest.fixture
def fresh(tmp_path):
    """A clone with only its launch scripts and small lists, and an inert Python of every name."""
    shutil.copytree(LAUNCH, tmp_path / "clone/launch")
    return Clone(tmp_path)


class Clone:
    def __init__(self, folder):
        self.folder = folder
        self.venv = folder / "clone/.venv"
        self.stamp = self.venv / "installed"
        self.script = folder / "clone/launch/setup.sh"
        self.write("pyproject.toml", "wanted\n")
        self.write("requirements/lock.txt", "one==1\n")
        fake_pythons(folder / "bin", folder)

    def write(self, name, text):
        path = self.folder / "clone" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def gpu(self, driver):
        path = self.folder / "bin/nvidia-smi"
        path.write_text(f"#!/bin/sh\necho {driver}\n")
        path.chmod(0o755)

    def env(self, **settings):
        home = {"HOME": str(self.folder)}
        return ENV | home | {"PATH": f"{self.folder}/bin:{ENV['PATH']}"} | settings

    def setup(self, *flags, **settings):
        return bash(self.script, *flags, env=self.env(**settings), cwd="/")

    def calls(self, beginning="uv pip install"):
        text = (self.folder / "calls").read_text()
        return [line for line in text.splitlines() if line.startswith(beginning)]

    def extras(self):
        words = self.calls()[-1].split()
        return [word.removeprefix("--extra=") for word in words if word.startswith("--extra=")]


def test_setup_installs_the_lock_once_and_another_lock_or_list_anew(fresh):
    first = fresh.setup()
    assert first.returncode == 0, first.stderr
    assert "--constraint requirements/lock.txt" in fresh.calls()[-1]
    again = fresh.setup()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(fresh.calls()) == 1
    for number, name in enumerate(("pyproject.toml", "requirements/lock.txt"), start=2):
        (fresh.venv / "old").touch()
        fresh.write(name, "one==2\n")
        assert fresh.setup().returncode == 0
        assert len(fresh.calls()) == number
        assert not (fresh.venv / "old").exists()


def test_an_error_of_uv_is_shown_and_nothing_counts_as_installed(fresh):
    failed = fresh.setup(UV_SAYS="no version of two")
    assert failed.returncode == 1, "another try may succeed, whereas 2 is never tried again"
    assert "no version of two" in failed.stderr
    assert not fresh.stamp.exists()
    assert fresh.setup().returncode == 0


def test_a_stamp_that_a_full_disk_left_empty_counts_as_nothing_installed(fresh):
    assert fresh.setup("--tpu").returncode == 0
    fresh.stamp.write_text("")
    again = fresh.setup("--tpu")
    assert again.returncode == 0, again.stderr
    assert len(fresh.calls()) == 2
    assert fresh.stamp.read_text().startswith("--tpu\n")


def test_an_environment_of_the_user_is_never_erased(fresh):
    """`uv pip install -e` puts the packages into ./.venv, if there is one."""
    fresh.venv.mkdir()
    (fresh.venv / "pyvenv.cfg").touch()
    for flags in ([], ["--dev"], ["--cuda"]):
        assert "PYTHON=.venv/bin/python" in sentence(fresh.setup(*flags))
    assert (fresh.venv / "pyvenv.cfg").exists()


def wait_for(condition):
    for _ in range(4800):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the condition did not hold within 240 s")


def test_ctrl_c_half_way_leaves_nothing_that_counts_as_done(fresh):
    process = subprocess.Popen(
        ["bash", fresh.script],
        env=fresh.env(UV_WAITS_FOR="/never"),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for((fresh.folder / "uv_is_running").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert "the same command starts again" in process.communicate(timeout=240)[0]
    assert process.returncode == 2
    assert not fresh.stamp.exists()
    assert fresh.setup().returncode == 0
    assert fresh.stamp.exists()


@pytest.mark.skipif(not shutil.which("flock"), reason="no flock here")
def test_two_set_ups_at_once_are_one(fresh):
    env = fresh.env(UV_WAITS_FOR=str(fresh.folder / "go"))
    start = lambda: subprocess.Popen(
        ["bash", fresh.script], env=env, stdout=subprocess.PIPE, text=True
    )
    first = start()
    wait_for((fresh.folder / "uv_is_running").exists)
    second = start()
    assert "waiting for it" in second.stdout.readline()
    (fresh.folder / "go").touch()
    second.communicate(timeout=240)
    first.communicate(timeout=240)
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(fresh.calls()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows how a file is open")
def test_the_lock_is_one_that_nfs_grants(fresh):
    """There, as flock(2) says, only a file that is open for writing can be locked."""
    asks = "import os; print(os.readlink('/proc/self/fd/9'), fcntl.fcntl(9, fcntl.F_GETFL) & 3)"
    text = f'#!/bin/sh\nexec {sys.executable} -c "import fcntl; {asks}" >> {fresh.folder}/locks\n'
    executable(fresh.folder / "bin/flock", text)
    assert fresh.setup().returncode == 0
    lock = fresh.folder / "clone/requirements/lock.txt"
    assert (fresh.folder / "locks").read_text() == f"{lock} {os.O_RDWR}\n"
    assert lock.read_text() == "one==1\n"


# --- the Python


def test_the_newest_python_is_taken_on_the_path_or_in_the_folder_of_pyenv(fresh):
    bin, pyenv = fresh.folder / "bin", fresh.folder / ".pyenv/versions/3.13.2/bin"
    for minor in (11, 12, 13):
        fake_pythons(fresh.folder / "all", fresh.folder, version=f"3.{minor}.0")
        shutil.move(fresh.folder / f"all/python3.{minor}", bin / f"python3.{minor}")

    def taken(**settings):
        shutil.rmtree(fresh.venv, ignore_errors=True)
        return re.search(r"\(Python (3\.\d+)", fresh.setup(**settings).stdout)[1]

    assert taken() == "3.13"
    assert taken(UV_PYTHON="3.11") == "3.11"
    pyenv.mkdir(parents=True)
    shutil.move(bin / "python3.13", pyenv / "python")
    (bin / "python3.13").symlink_to("/bin/false")  # as pyenv's shims of other versions fail
    assert taken() == "3.13"
    (pyenv / "python").unlink()
    assert taken() == "3.12"


def test_another_python_makes_the_environment_anew(fresh):
    assert fresh.setup().returncode == 0
    fake_pythons(fresh.folder / "old", fresh.folder, version="3.12.4")
    shutil.move(fresh.folder / "old/python3.12", fresh.folder / "bin/python3.12")
    for version, installs in ((None, 1), ("3.13", 1), ("3.12", 2), ("3.12", 2), (None, 2)):
        done = fresh.setup(**({"UV_PYTHON": version} if version else {}))
        assert done.returncode == 0, done.stderr
        assert len(fresh.calls()) == installs


# --- devices


def test_extras_are_added_and_kept_and_another_device_leaves_nothing_of_the_old_one(fresh):
    fresh.gpu("570.86.15")
    fresh.setup()
    assert fresh.extras() == ["cuda"], "what the machine has"
    assert fresh.setup("--tpu", "--cache").returncode == 0
    assert fresh.extras() == ["tpu", "cache"]
    fresh.setup()
    assert len(fresh.calls()) == 2, "the device that .venv is for is kept"
    fresh.setup("--s3")
    assert fresh.extras() == ["tpu", "cache", "s3"]
    (fresh.venv / "libtpu").touch()
    fresh.setup("--cpu", "--dev")
    assert not (fresh.venv / "libtpu").exists()
    assert set(fresh.extras()) >= {"cpu", "dev", "tpu", "cache"}, "what every test needs"
    assert {"--cpu", "--dev"} <= {*fresh.stamp.read_text().splitlines()[0].split()}


def test_what_cannot_be_installed_is_one_sentence(fresh):
    assert "'--gpu'" in sentence(fresh.setup("--gpu"))
    assert "--tpu and --cuda" in sentence(fresh.setup("--tpu", "--cuda"))
    fresh.gpu("470.256.02")
    refusal = sentence(fresh.setup("--cuda"))
    assert "470.256.02" in refusal
    assert "525.60.13" in refusal
    fake_pythons(fresh.folder / "bin", fresh.folder, unfit=1)
    assert "3.13, 3.12 or 3.11" in sentence(fresh.setup("--cpu"))
    assert "3.12" in sentence(fresh.setup("--cpu", UV_PYTHON="3.12"))
    assert not fresh.venv.exists()


# --- where packages come from


def test_settings_of_pip_become_those_of_uv():
    listed = """global.find-links='/wheels /more'
global.index-url='https://slow.test/simple'
install.index-url='https://mirror.test/simple'
:env:.extra-index-url='https://a.test\\nhttps://b.test'
global.cert='/etc/ca.pem'
freeze.user='true'
"""
    variables = pip_settings.translate(listed, {"SSL_CERT_FILE": "/mine.pem"})
    assert variables == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_DEFAULT_INDEX": "https://mirror.test/simple",
        "UV_INDEX": "https://a.test https://b.test",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has two builds")
@pytest.mark.parametrize("answers", [True, False])
def test_the_cpu_build_of_torch_is_looked_for_after_the_indexes_of_pip(answers, fresh):
    done = fresh.setup(
        PIP_EXTRA_INDEX_URL="http://127.0.0.1/mine",
        TORCH_INDEX="http://127.0.0.1/cpu",
        INDEX_FAILS="" if answers else "1",
    )
    index = "http://127.0.0.1/mine" + " http://127.0.0.1/cpu" * answers
    assert fresh.calls()[-1].endswith(f"index={index}")
    assert ("http://127.0.0.1/cpu" in done.stdout) != answers


def wheel(folder, name, version, requires=""):
    """Write a wheel with one empty module, as an index has it."""
    folder = folder / name.replace("_", "-")
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
def test_real_uv_takes_the_cpu_build_where_its_index_answers(answers, fresh):
    wheel(fresh.folder / "pypi", "one", "1")
    wheel(fresh.folder / "pypi", "cuda_libraries", "13")
    wheel(fresh.folder / "pypi", "torch", "2.13.0", "Requires-Dist: cuda-libraries\n")
    wheel(fresh.folder / "pytorch", "torch", "2.13.0+cpu")
    lists = """[project]
name = "a"
version = "1"
dependencies = ["one", "torch"]
optional-dependencies = { cpu = [] }
[dependency-groups]
linux = []
"""
    fresh.write("pyproject.toml", lists)
    fresh.write("requirements/lock.txt", "one==1\ntorch==2.13.0\n")
    shutil.rmtree(fresh.folder / "bin")
    (fresh.folder / "bin").mkdir()
    (fresh.folder / "bin/uv").symlink_to(
        shutil.which("uv") or f"{os.path.dirname(sys.executable)}/uv"
    )
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=fresh.folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_port}"
        done = fresh.setup(
            HOME=os.environ["HOME"],
            PIP_CONFIG_FILE=os.devnull,
            PIP_INDEX_URL=f"{host}/pypi",
            UV_CACHE_DIR=str(fresh.folder / "cache"),
            TORCH_INDEX=f"{host}/pytorch" if answers else "http://127.0.0.1:9",
        )
        server.shutdown()
    assert done.returncode == 0, done.stdout + done.stderr
    installed = {path.name for path in fresh.venv.glob("lib/python*/site-packages/*.dist-info")}
    cpu, cuda = {"torch-2.13.0+cpu.dist-info"}, {"cuda_libraries-13.dist-info"}
    assert "one-1.dist-info" in installed
    assert (cpu <= installed, cuda <= installed) == (answers, not answers)
