"""A worker that answers with anything runs no command here and writes only text to the terminal."""

import os
import re
import shutil
import signal
import threading

import pytest

from fakes.shell import sentence
from fakes.simulated_pod import ZONE, Pod

# Of the worker's commands, worker 1 answers those that have a file in ~/says with that file.
LIAR = """import os, sys
says = os.path.join(os.environ["HOME"], "says", sys.argv[1])
if os.environ["TPU_WORKER_ID"] == "1" and os.path.exists(says):
    os.execvp("cat", ["cat", says])
honest = os.path.join(os.path.dirname(__file__), "honest_worker.py")
os.execv(sys.executable, [sys.executable, honest, *sys.argv[1:]])
"""
CONTROL = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pod")
    with Pod(folder, workers=2) as pod:
        launch = folder / "origin/launch"
        (launch / "tpu_worker.py").rename(launch / "honest_worker.py")
        (launch / "tpu_worker.py").write_text(LIAR)
        pod.commit("hostile")
        pod.make()
        yield pod


@pytest.fixture
def pair(shared):
    """A pod of two workers; the second one says what `set_answer` gave it."""
    about = shared.cloud.read("slices/ro/about")
    yield shared
    shared.cloud.write("slices/ro/about", about)
    shutil.rmtree(shared.cloud.home("ro", 1) / "says", ignore_errors=True)


def set_answer(pod, command, answer):
    path = pod.cloud.home("ro", 1) / "says" / command
    path.parent.mkdir(exist_ok=True)
    path.write_text(answer.replace("COMMAND", f"touch {pod.folder}/pwned"))


def assert_harmless(pod, *texts):
    assert not (pod.folder / "pwned").exists()
    assert not any(CONTROL.search(text) for text in texts), texts


def test_supervision_goes_on_without_the_words_of_a_liar(pair):
    set_answer(pair, "status", "training\ta[$(COMMAND)]\tx\n")
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh")
    deadline = threading.Timer(240, lambda: os.killpg(process.pid, signal.SIGKILL))
    deadline.start()
    try:
        output = ""
        while "answers 'training\\ta[$(touch" not in output:
            line = process.stdout.readline()
            assert line, output
            output += line
    finally:
        deadline.cancel()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        stopped = pair.ask("stop", "ro", ZONE)
    assert stopped.returncode == 1, stopped  # what worker 1 does is not known
    assert "worker 1   unknown   answers" in stopped.stdout
    assert_harmless(pair, output, stopped.stdout)


@pytest.mark.parametrize(
    "answer",
    [
        "training\ta[$(COMMAND)]\tx\n",
        "training\t99999999999999999999\tx\n",
        "*\t1\tx\n",
        "\x1b]52;c;Y3VybA==\x07\t1\tx\n",
        "",
        "x" * 1_000_000,
    ],
)
def test_an_answer_that_is_no_state_counts_as_unknown(pair, answer):
    set_answer(pair, "status", answer)
    process = pair.ask("status", "ro", ZONE)
    assert process.returncode == 1, process
    assert re.search("worker 1 +unknown +answers '.*', not a state and a step", process.stdout)
    assert_harmless(pair, process.stdout, process.stderr)


def test_a_commit_that_no_worker_reports_is_not_the_same_everywhere(pair):
    scripts = [pair.cloud.home("ro", n) / "origin/launch/tpu_worker.py" for n in (0, 1)]
    before = scripts[0].read_text()
    for script in scripts:
        script.write_text("")
    try:
        process = pair.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    finally:
        for script in scripts:
            script.write_text(before)
    assert process.returncode == 2
    assert "none on worker [0, 1]): python3 launch/tpu.py setup ro" in process.stderr


def test_what_a_worker_writes_reaches_the_terminal_as_text(pair):
    hostile = "\x1b[2J\x1b]0;title\x07a\rb\x08c\x9b31m ș €"
    set_answer(pair, "status", f"training\t3\t{hostile}\n")
    set_answer(pair, "log", hostile + "\n")
    set_answer(pair, "check", f"head {hostile}\n")
    output = pair.do("status", "ro", ZONE)
    assert "[2J]0;titlea" in output
    log = pair.do("logs", "ro", ZONE, "1")
    assert log == "[2J]0;titlea\nbc31m ș €\n"
    process = pair.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    assert "the workers have different commits (" in process.stderr
    assert "none on worker [1]" in process.stderr
    assert_harmless(pair, output, log, process.stderr)
    (pair.cloud.home("ro", 1) / "says/check").unlink()
    honest = pair.cloud.home("ro", 1) / "origin/launch/honest_worker.py"
    before = honest.read_text()
    honest.write_text('import sys; sys.exit("\\033[2Jfatal\\007: no")')
    process = pair.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    honest.write_text(before)
    assert "worker 1: [2Jfatal: no\n" in process.stderr
    assert_harmless(pair, process.stderr)


@pytest.mark.parametrize("state", ["READY;COMMAND", "READY$(COMMAND)", "\x1b[2JREADY"])
def test_a_slice_in_any_other_state_is_not_ready(pair, state):
    about = pair.cloud.read("slices/ro/about")
    state = state.replace("COMMAND", f"touch${{IFS}}{pair.folder}/pwned")
    pair.cloud.write("slices/ro/about", about | {"state": state})
    process = pair.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    assert "so not READY" in sentence(process)
    assert_harmless(pair, process.stdout, process.stderr)


def test_a_damaged_record_on_a_worker_is_one_sentence(pair):
    record = pair.cloud.home("ro", 1) / "origin/runs/.pod/run.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("[1")
    output = pair.ask("status", "ro", ZONE).stdout
    record.unlink()
    assert f"worker 1   unknown   does not answer: {record} is damaged: delete" in output
