"""Calls of scripts and of ruff, and fake interpreters that only record their calls."""

import os
import subprocess
import sys

from fakes.paths import ROOT

LAUNCH = ROOT / "launch"
ENV = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def bash(*command, env=None, cwd=None, seconds=300):
    return subprocess.run(
        ["bash", *map(str, command)],
        env=ENV | (env or {}),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def python(program):
    """Return the words that a program prints in a process of its own, which must succeed."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def check_style(file):
    """Run ruff on a file, as if it were the repository's."""
    for words in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--config", ROOT / "pyproject.toml", file]
        subprocess.run(command, check=True)


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def sentence(process):
    """Return the one line that a script prints when it fails with status 2."""
    assert process.returncode == 2, process
    lines = process.stderr.splitlines()
    assert len(lines) == 1, process.stderr
    return lines[0]


FAKE_PYTHON = """#!/usr/bin/env bash
# {version}, {folder}
echo "$*" >> "{folder}/calls"
case "$*" in
  *tpu_worker.py*) exec {real} "$@" ;;
  *version_info*) exit {unfit} ;;
  *python_version*) echo {version} ;;
  *urlopen*) exit "${{INDEX_FAILS:-0}}" ;;
  *pip_settings*) echo "UV_INDEX=${{PIP_EXTRA_INDEX_URL:-}}" ;;
  --version) echo "Python {version}" ;;
  "-m venv"*)
    venv="${{@: -1}}"
    mkdir -p "$venv/bin"
    cp "$0" "$venv/bin/python"
    ;;
esac
"""

FAKE_UV = """#!/usr/bin/env bash
if [[ "$1" == python ]]; then exit 1; fi
echo "uv $* index=${{UV_INDEX:-}}" >> "{folder}/calls"
touch "{folder}/uv_is_running"
while [[ -n "${{UV_WAITS_FOR:-}}" && ! -e "${{UV_WAITS_FOR:-}}" ]]; do sleep 0.05; done
if [[ -n "${{UV_SAYS:-}}" ]]; then echo "$UV_SAYS" >&2; exit 1; fi
"""


def fake_pythons(folder, calls, version="3.13.0", unfit=0):
    """Write to `folder` interpreters and a uv that only note their calls in `calls`/calls."""
    text = FAKE_PYTHON.format(version=version, unfit=unfit, folder=calls, real=sys.executable)
    for name in ("python3.13", "python3.12", "python3.11", "python3"):
        executable(folder / name, text)
    executable(folder / "uv", FAKE_UV.format(folder=calls))
