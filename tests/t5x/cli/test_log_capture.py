"""The log has all output of libraries; the terminal has what a user can act on."""

import pathlib
import re
import signal
import subprocess
import sys

import pytest

from fakes.paths import ROOT
from t5x.cli import log_capture

START = "import os, sys, logging, warnings\nfrom t5x.cli import log_capture\nlog_capture.start()\n"


def ran(code, folder):
    """A process of its own: there is one descriptor 2."""
    code = START + code.replace("WRITE", f"log_capture.write_to({str(folder)!r}, host=0)")
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def log(folder):
    return (folder / "log_0.txt").read_text()


LIBRARY = """
def library(name, text, level=logging.WARNING):
    logger = logging.getLogger(name)
    logger.addHandler(logging.StreamHandler())     # as some do
    logger.propagate = False
    logger.log(level, text)
"""


def test_output_of_c_goes_to_the_log_from_the_first_word(tmp_path):
    code = """
os.write(2, b"I0000 before there is a folder\\n")
WRITE
os.write(2, b"W0000 after it, without an end of line")
print("ours", file=sys.stderr)
"""
    process = ran(code, tmp_path)
    assert process.returncode == 0
    assert process.stderr == "ours\n"
    assert "I0000 before there is a folder\n" in log(tmp_path)
    assert log(tmp_path).endswith("W0000 after it, without an end of line")


@pytest.mark.parametrize(
    ("then", "status", "said"),
    [
        ("", 130, "Stopped before anything began.\n"),
        ("log_capture.end_of_imports()", 5, "caught\n"),
    ],
)
def test_ctrl_c_ends_an_import_at_once(then, status, said):
    # Where tests run in the background it is ignored.
    before = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = f"""
{then}
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("caught", file=sys.stderr)
    sys.exit(5)
"""
    command = [sys.executable, "-c", before + START + code]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stderr) == (status, said)


def test_loggers_and_warnings_of_libraries_go_to_the_log(tmp_path):
    code = (
        LIBRARY
        + """
WRITE
library("their", "deprecated: use other_name")
library("jax", "An NVIDIA GPU may be present. Falling back to cpu.")
library("their", "broken", logging.ERROR)
logging.getLogger("asyncio").error("Task exception was never retrieved")  # adds no handler
logging.getLogger("their").info("a detail")
warnings.warn("old")
"""
    )
    process = ran(code, tmp_path)
    shown = process.stderr.splitlines()
    assert shown == [
        "Warning: An NVIDIA GPU may be present. Falling back to cpu.",
        "Error: broken",
    ]
    for said in (
        "deprecated: use other_name",
        "a detail",
        "old",
        "Falling back",
        "broken",
        "never retrieved",
    ):
        assert said in log(tmp_path), said


def test_our_own_warnings_are_shown(tmp_path):
    code = "WRITE\nfrom command_line.guard import ROOT\n"
    code += (
        "record = logging.LogRecord('absl', logging.WARNING, str(ROOT / 't5x/x.py'), 1, 'a %s', "
    )
    code += "('word',), None)\nlogging.getLogger('absl').handle(record)\n"
    process = ran(code, tmp_path)
    assert process.stderr == "Warning: a word\n"
    assert "a word" in log(tmp_path)


def test_a_second_start_writes_after_the_first(tmp_path):
    for word in ("first", "second"):
        ran(f'os.write(2, b"{word}\\n")\nWRITE\n', tmp_path)
    assert log(tmp_path).index("first") < log(tmp_path).index("second")


def test_a_traceback_is_seen_and_kept(tmp_path):
    process = ran("WRITE\nraise RuntimeError('of a library')", tmp_path)
    assert process.returncode == 1
    lines = process.stderr.splitlines()
    assert "RuntimeError: of a library" in lines
    assert lines[-1] == f"The output of the libraries is in {tmp_path}/log_0.txt."
    assert "RuntimeError: of a library" in log(tmp_path)


@pytest.mark.parametrize("place", ["WRITE", "pass"])
def test_of_an_error_that_a_command_reports_the_traceback_is_kept(tmp_path, place):
    code = f"""
from command_line import guard
def main():
    {place}
    raise TypeError("of code")
guard.guarded(main)()
"""
    process = ran(code, tmp_path)
    assert process.returncode == 1
    said = re.fullmatch(
        r"Error: TypeError: of code\. The traceback is in (\S+)\.\n", process.stderr
    )
    assert (said[1] == f"{tmp_path}/log_0.txt") == (place == "WRITE")
    kept = pathlib.Path(said[1])
    assert "Traceback (most recent call last)" in kept.read_text()
    kept.unlink()


def test_the_fatal_lines_of_an_aborted_process_are_shown_and_kept(tmp_path):
    code = 'WRITE\nos.write(2, b"F0000 00:00 tpu.cc:1] Check failed: no chip\\n")\nos.abort()'
    (tmp_path / "log_0.txt").write_text("F0000 of an earlier start\n")
    process = ran(code, tmp_path)
    assert process.returncode == -signal.SIGABRT
    assert "Check failed: no chip" in process.stderr
    assert "earlier" not in process.stderr
    assert f"the output of its libraries is in {tmp_path}/log_0.txt" in process.stderr
    assert "Check failed: no chip" in log(tmp_path)


def test_a_process_that_leaves_waits_for_no_thread_and_keeps_its_log(tmp_path):
    code = """
import threading
WRITE
threading.Thread(target=threading.Event().wait).start()
os.write(2, b"I0000 the last word")
print("out")
log_capture.exit_now(3)
"""
    process = ran(code, tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (3, "out\n", "")
    assert log(tmp_path).endswith("I0000 the last word")


def test_a_full_disk_keeps_no_process_from_leaving(tmp_path):
    code = "WRITE\nlogging.error('it is full')\nlog_capture.exit_now(3)\n"
    (tmp_path / "log_0.txt").symlink_to("/dev/full")
    process = ran(code, tmp_path)
    assert (process.returncode, process.stderr) == (3, "Error: it is full\n")


def test_an_orderly_end_before_a_folder_is_known_leaves_no_file(tmp_path):
    process = ran('os.write(2, b"I0000\\n")\nprint(log_capture._State.temporary)', tmp_path)
    assert process.stderr == ""
    assert not pathlib.Path(process.stdout.strip()).exists()


def test_a_pod_of_several_processes_has_a_file_a_host(tmp_path):
    for host in (0, 1):
        ran(
            f'os.write(2, b"host {host}\\n")\nlog_capture.write_to({str(tmp_path)!r}, {host})',
            tmp_path,
        )
    assert {p.name for p in tmp_path.iterdir()} == {"log_0.txt", "log_1.txt"}


def test_without_a_start_nothing_changes(tmp_path):
    log_capture.redirect_loggers()
    log_capture.write_to(str(tmp_path), 0)
    assert not list(tmp_path.iterdir())
