"""The output of libraries stays out of a command's terminal, what a user can act on does not."""

import logging
import re
import subprocess
import sys

import pytest

from command_line import quiet
from fakes.paths import ROOT

PROGRAM = """
from command_line import quiet
quiet.start()
import logging, os, subprocess, sys
from command_line import guard

def noise():
    os.write(2, b"I0000 port.cc: oneDNN custom operations are on\\n")
    subprocess.run([sys.executable, "-c", "import sys; print('worker', file=sys.stderr)"])
    logging.getLogger("library").warning("deprecated")

@guard.guarded
def main():
    noise()
    logging.getLogger("library").warning("no space left\\nmore")
    print("reading", file=sys.stderr)
    {end}

main()
"""


IMPORTS = """
import os, pathlib, sys
from command_line import guard, quiet
quiet.start()
sys.path.insert(0, os.environ["TMPDIR"])
pathlib.Path(sys.path[0], "library.py").write_text('''
import os
try:
    os.kill(os.getpid(), 2)
except BaseException:  # as some libraries do
    pass
''')
sys.dont_write_bytecode = True
{}import library
"""


def run(folder, end: str) -> subprocess.CompletedProcess:
    return execute(folder, PROGRAM.format(end=end))


def execute(folder, program: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_only_what_a_user_can_act_on_is_printed_and_no_log_is_left(tmp_path):
    done = run(tmp_path, "pass")
    assert done.stderr == "Warning: no space left …\nreading\n"
    assert done.returncode == 0
    assert not list(tmp_path.iterdir())


def test_what_is_retried_is_named(tmp_path):
    warning = 'logging.getLogger("huggingface_hub.utils._http").warning'
    said = ("'timed out' thrown while requesting GET https://example.org/a", "Retrying in 1s")
    done = run(tmp_path, "; ".join(f"{warning}({text!r})" for text in said))
    assert done.stderr.splitlines()[-2:] == [f"Warning: {text}" for text in said]


def test_the_repeats_of_a_retry_are_not_printed(capsys):
    def warn(text, at):
        record = logging.LogRecord("hub", logging.WARNING, "/lib.py", 1, text, (), None)
        record.created = at
        handler.emit(record)

    handler = quiet.TerminalHandler()
    for i in range(5):
        warn("refused; thrown while requesting HEAD https://example.org/a", 100.0 + i)
        warn(f"Retrying in {2**i}s [Retry {i}/5].", 100.0 + i)
    warn("refused; thrown while requesting HEAD https://example.org/b", 105.0)
    warn("refused; thrown while requesting HEAD https://example.org/a", 1000.0)
    said = capsys.readouterr().err.splitlines()
    assert [text.rpartition(" ")[2] for text in said] == [
        "https://example.org/a",
        "0/5].",
        "https://example.org/b",
        "https://example.org/a",
    ]


def test_errors_of_saving_threads_are_not_printed_beside_ours(capsys):
    handler = quiet.TerminalHandler()
    for library in ("orbax/checkpoint/threads.py", "asyncio/events.py", "jax/core.py"):
        path = f"/venv/site-packages/{library}"
        name = "asyncio" if "asyncio" in library else "absl"
        handler.emit(logging.LogRecord(name, logging.ERROR, path, 1, library, (), None))
    assert capsys.readouterr().err == "Error: jax/core.py\n"


@pytest.mark.parametrize(
    "program",
    [
        PROGRAM.format(end="os.kill(os.getpid(), 2)"),
        IMPORTS.format(""),
        IMPORTS.format("@guard.guarded\ndef main():\n    ") + "main()\n",
    ],
    ids=["running", "importing", "importing late"],
)
def test_ctrl_c_is_one_sentence_wherever_it_comes_and_no_log_is_left(tmp_path, program):
    done = execute(tmp_path, program)
    assert (done.stderr.splitlines()[-1:], done.returncode) == (["Stopped by Ctrl-C."], 130)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.log"))


def test_an_unforeseen_error_keeps_the_log(tmp_path):
    done = run(tmp_path, "{}['a']")
    (log,) = tmp_path.iterdir()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"Error: KeyError: 'a'. The traceback is in {log}."
    text = log.read_text()
    assert "oneDNN" in text
    assert "worker" in text
    assert "Traceback" in text


def test_a_package_that_is_not_there_is_one_sentence():
    code = "from command_line import quiet; quiet.start(); import absent_package.part"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(
        r"Error: absent_package is not installed for \S+: bash launch/setup.sh .*\n", done.stderr
    )


def test_a_crash_is_not_silent(tmp_path):
    done = run(tmp_path, "os.abort()")
    assert "Fatal Python error: Aborted" in done.stderr
    assert done.returncode == -6
