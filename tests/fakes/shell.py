"""Calls of shell scripts, and fake interpreters that only record their calls."""

import os
import subprocess
import sys

from fakes.paths import ROOT

LAUNCH = ROOT / "launch"
ENV = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def bash(*command, env=None, cwd=None, seconds=120):
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
  *version_info*) exit {old} ;;
  *python_version*) echo {version} ;;
  *ensurepip*) exit {bare} ;;
  *urlopen*) exit "${{INDEX_FAILS:-0}}" ;;
  --version) echo "Python {version}" ;;
  "-m venv"*)
    venv="${{@: -1}}"
    if [[ "$*" == *--clear* ]]; then rm -rf "$venv"; fi
    mkdir -p "$venv/bin"
    cp "$0" "$venv/bin/python"
    ;;
  "-m pip install"*)
    printf 'Collecting one==1\\nProcessing /a/two-2.whl\\nInstalling collected packages\\n'
    touch "{folder}/pip_is_running"
    sleep "${{PIP_SLEEPS:-0}}"
    if [[ -n "${{PIP_SAYS:-}}" ]]; then echo "$PIP_SAYS" >&2; exit 1; fi
    ;;
esac
"""
