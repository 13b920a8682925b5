"""The log has all output of libraries; the terminal has what a user can act on."""

import re
import signal
import subprocess
import sys

import pytest

from fakes.paths import ROOT

START = """
import logging, os, pathlib, subprocess, sys, warnings
from common import errors, log
{}
log.start()
"""
# Where tests run in the background, Ctrl-C is ignored.
HEARS = """import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
IMPORTS = """
sys.path.insert(0, os.environ["TMPDIR"])
pathlib.Path(sys.path[0], "library.py").write_text('''
import os
try:
    os.kill(os.getpid(), NUMBER)
except BaseException:  # as some libraries do
    pass
''')
sys.dont_write_bytecode = True
"""
LIBRARY = """
def library(name, text, level=logging.WARNING):
    logging.getLogger(name).log(level, text)
"""


def ran(code: str, folder, before: str = "") -> subprocess.CompletedProcess:
    """A process of its own, as there is one descriptor 2; its log is in `folder / "run"`."""
    code = code.replace("WRITE", f"log.write_to({str(folder / 'run')!r}, host=0)")
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", START.format(before) + code]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


def log(folder) -> str:
    return (folder / "run/log_0.txt").read_text()


def temporary_logs(folder) -> list:
    return list((folder / "tmp").glob("*.log"))


def test_output_of_c_and_of_children_goes_to_the_log_from_the_first_word(tmp_path):
    code = """
os.write(2, b"I0000 before there is a folder\\n")
WRITE
subprocess.run([sys.executable, "-c", "import sys; print('worker', file=sys.stderr)"])
os.write(2, b"W0000 after it, without an end of line")
print("ours", file=sys.stderr)
"""
    process = ran(code, tmp_path)
    assert (process.returncode, process.stderr) == (0, "ours\n")
    assert log(tmp_path).startswith("I0000 before there is a folder\nworker\n")
    assert log(tmp_path).endswith("W0000 after it, without an end of line")
    assert not temporary_logs(tmp_path)


@pytest.mark.parametrize(
    "code",
    [
        "errors.guarded(lambda: os.kill(os.getpid(), NUMBER))()",
        IMPORTS + "import library",
        IMPORTS + "errors.guarded(lambda: __import__('library'))()",
    ],
    ids=["running", "importing", "importing late"],
)
@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_a_signal_is_one_sentence_wherever_it_comes_and_no_log_is_left(
    tmp_path, code, number, name
):
    process = ran(code.replace("NUMBER", str(int(number))), tmp_path, before=HEARS)
    assert (process.returncode, process.stderr) == (128 + number, f"Stopped by {name}.\n")
    assert not temporary_logs(tmp_path)


def test_a_second_signal_does_not_stop_what_the_first_cleans_up(tmp_path):
    code = """
import signal
def main():
    try:
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleaned up", flush=True)
errors.guarded(main)()
"""
    process = ran(code, tmp_path, before=HEARS)
    assert (process.returncode, process.stdout) == (129, "cleaned up\n")


def test_a_fork_ends_by_the_signal(tmp_path):
    code = """
import signal
def main():
    if not (child := os.fork()):
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(1)
    print(os.waitpid(child, 0)[1])
errors.guarded(main)()
"""
    process = ran(code, tmp_path, before=HEARS)
    assert (process.returncode, process.stdout) == (0, f"{int(signal.SIGTERM)}\n")


def test_loggers_and_warnings_of_libraries_go_to_the_log(tmp_path):
    code = (
        LIBRARY
        + """
WRITE
library("their", "deprecated: use other_name")
for seconds in (1, 2):
    library("their", f"no space left, waiting for {seconds} s\\nmore")
library("their", "broken", logging.ERROR)
logging.getLogger("asyncio").error("Task exception was never retrieved")
logging.getLogger("their").info("a detail")
warnings.warn("old")
"""
    )
    process = ran(code, tmp_path, before='os.chdir("/")')  # else this code's file would be ours
    assert process.stderr.splitlines() == [
        "Warning: no space left, waiting for 1 s …",
        "Error: broken",
    ]
    for message in (
        "deprecated",
        "waiting for 2 s",
        "broken",
        "never retrieved",
        "a detail",
        "old",
    ):
        assert message in log(tmp_path), message


def test_our_own_warnings_are_shown(tmp_path):
    code = """
WRITE
place = str(errors.ROOT / "t5x/x.py")
record = logging.LogRecord("absl", logging.WARNING, place, 1, "a %s\\nand more", ("word",), None)
logging.getLogger("absl").handle(record)
"""
    process = ran(code, tmp_path)
    assert process.stderr == "Warning: a word\nand more\n"
    assert "a word" in log(tmp_path)


@pytest.mark.parametrize(
    ("place", "call"),
    [("WRITE", "errors.guarded(main)()"), ("pass", "main()"), ("WRITE", "main()")],
)
def test_an_unforeseen_error_names_the_log_with_its_traceback(tmp_path, place, call):
    code = f"""
os.write(2, b"I0000 oneDNN\\n")
def main():
    {place}
    raise TypeError("of code")
{call}
"""
    process = ran(code, tmp_path)
    assert process.returncode == 1
    (log_file,) = [tmp_path / "run/log_0.txt"] if place == "WRITE" else temporary_logs(tmp_path)
    assert process.stderr == f"Error: TypeError: of code. The traceback is in {log_file}.\n"
    assert log_file.read_text().startswith("I0000 oneDNN\nTraceback (most recent call last)")


def test_a_package_that_is_not_there_is_one_sentence(tmp_path):
    process = ran("import absent_package.part", tmp_path)
    assert process.returncode == 1
    assert re.fullmatch(
        r"Error: absent_package is not installed for \S+: bash launch/setup.sh .*\n", process.stderr
    )


@pytest.mark.parametrize(
    ("place", "end", "status"),
    [("WRITE", "os.abort()", -signal.SIGABRT), ("pass", "os._exit(1)", 1)],
    ids=str,
)
def test_the_fatal_lines_of_a_crash_are_shown_and_the_log_is_named(tmp_path, place, end, status):
    code = f'{place}\nos.write(2, b"F0000 00:00 tpu.cc:1] Check failed: no chip\\nmore\\n")\n{end}'
    (tmp_path / "run").mkdir()
    (tmp_path / "run/log_0.txt").write_text("F0000 of an earlier start\n")
    process = ran(code, tmp_path)
    assert process.returncode == status
    first, *_, last = process.stderr.splitlines()
    assert first == "F0000 00:00 tpu.cc:1] Check failed: no chip"
    assert "more" not in process.stderr
    (log_file,) = [tmp_path / "run/log_0.txt"] if place == "WRITE" else temporary_logs(tmp_path)
    assert f"is in {log_file}." in last
    assert "Check failed: no chip" in log_file.read_text()


def test_a_process_that_leaves_waits_for_no_thread_and_keeps_its_log(tmp_path):
    code = """
import threading
WRITE
threading.Thread(target=threading.Event().wait).start()
os.write(2, b"I0000 the last word")
print("out")
log.exit_now(3)
"""
    process = ran(code, tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (3, "out\n", "")
    assert log(tmp_path).endswith("I0000 the last word")


def test_a_full_disk_keeps_no_process_from_leaving(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/log_0.txt").symlink_to("/dev/full")
    process = ran("WRITE\nlogging.error('it is full')\nlog.exit_now(3)\n", tmp_path)
    assert (process.returncode, process.stderr) == (3, "Error: it is full\n")


@pytest.mark.slow
def test_a_bucket_gets_the_log_at_the_end(tmp_path):
    """A file system of TensorFlow that is no folder stands for the bucket."""
    read = "print(tensorflow.io.gfile.GFile('ram://run/log_1.txt').read())"
    code = 'import tensorflow\nos.write(2, b"I0000 oneDNN\\n")\nlog.write_to("ram://run", 1)'
    process = ran(code, tmp_path, before=f"import atexit; atexit.register(lambda: {read})")
    assert "I0000 oneDNN\n" in process.stdout, process.stderr
    assert not temporary_logs(tmp_path)


def test_without_a_start_nothing_changes(tmp_path):
    process = ran("", tmp_path, before="log.start = lambda: log.write_to('/tmp', 99)")
    assert (process.returncode, process.stderr) == (0, "")
