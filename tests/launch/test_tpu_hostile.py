"""A worker that answers with anything runs no command here and writes only text to the terminal."""

import os
import re
import shutil
import signal
import threading

import pytest

from fakes.shell import bash, executable, sentence
from fakes.simulated_pod import ZONE, Pod

# Of the worker's commands, worker 1 answers those that have a file in ~/says with that file.
LIAR = """#!/usr/bin/env bash
if [[ "$TPU_WORKER_ID" == 1 && -f "$HOME/says/$1" ]]; then exec cat "$HOME/says/$1"; fi
exec bash "$(dirname "$0")/honest_worker.sh" "$@"
"""
CONTROL = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pod")
    with Pod(folder, workers=2) as pod:
        launch = folder / "origin/launch"
        (launch / "tpu_worker.sh").rename(launch / "honest_worker.sh")
        executable(launch / "tpu_worker.sh", LIAR)
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


def test_supervision_computes_only_with_numbers(pair):
    """Bash evaluates the text of an arithmetic expression, commands in it included."""
    set_answer(pair, "status", "training\ta[$(COMMAND)]\tx\n")
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh")
    deadline = threading.Timer(60, lambda: os.killpg(process.pid, signal.SIGKILL))
    deadline.start()
    try:
        said = ""
        while "answers 'training' and 'a[$(touch" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
    finally:
        deadline.cancel()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        stopped = pair.ask("stop", "ro", ZONE)
    assert stopped.returncode == 1, stopped  # what worker 1 does is not known
    assert_harmless(pair, said, stopped.stdout)


@pytest.mark.parametrize(
    "answer",
    [
        "training\ta[$(COMMAND)]\tx\n",
        "training\t$(COMMAND)\tx\n",
        "training\t007\tx\n",
        "training\t-1\tx\n",
        "training\t99999999999999999999\tx\n",
        "training\tPATH\tx\n",
        "training stopped\t1\tx\n",
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


def test_a_stop_that_a_worker_does_not_confirm_fails(pair):
    set_answer(pair, "status", "fine\n")
    process = pair.ask("stop", "ro", ZONE)
    assert process.returncode == 1
    assert "worker 1  unknown  answers 'fine'" in process.stdout


def test_a_commit_that_no_worker_reports_is_not_the_same_everywhere(pair):
    scripts = [pair.cloud.home("ro", n) / "origin/launch/tpu_worker.sh" for n in (0, 1)]
    before = scripts[0].read_text()
    for script in scripts:
        script.write_text("#!/usr/bin/env bash\n")
    try:
        process = pair.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    finally:
        for script in scripts:
            script.write_text(before)
    assert process.returncode == 2
    assert process.stderr.endswith(
        "not every worker has reported its commit: run bash launch/tpu_setup.sh ro us-central2-b.\n"
    )


def test_what_a_worker_writes_reaches_the_terminal_as_text(pair):
    hostile = "\x1b[2J\x1b]0;title\x07a\rb\x08c\x9b31m ș €"
    set_answer(pair, "status", f"training\t3\t{hostile}\n")
    set_answer(pair, "log", hostile + "\n")
    set_answer(pair, "check", f"head {hostile}\n")
    said = pair.do("status", "ro", ZONE)
    assert "[2J]0;titleabc31m ș €" in said
    log = pair.do("logs", "ro", ZONE, "1")
    assert log == "[2J]0;titleabc31m ș €\n"
    process = pair.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    assert "the workers have different commits (" in process.stderr
    assert "none worker 1" in process.stderr
    assert_harmless(pair, said, log, process.stderr)
    (pair.cloud.home("ro", 1) / "says/check").unlink()
    script = 'printf "\\033[2Jfatal\\007: no\\n" >&2; exit 3\n'
    executable(pair.cloud.home("ro", 1) / "origin/launch/honest_worker.sh", script)
    process = pair.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    assert "worker 1: [2Jfatal: no\n" in process.stderr
    assert_harmless(pair, process.stderr)


@pytest.mark.parametrize("state", ["READY;COMMAND", "READY$(COMMAND)", "\x1b[2JREADY"])
def test_a_slice_described_by_anything_else_is_refused(pair, state):
    about = pair.cloud.read("slices/ro/about")
    state = state.replace("COMMAND", f"touch${{IFS}}{pair.folder}/pwned")
    pair.cloud.write("slices/ro/about", about | {"state": state})
    process = pair.ask("supervise", "ro", ZONE, "launch/like_t5x.sh")
    assert "not by state, type, runtime, kind, reservation, queue" in sentence(process)
    assert_harmless(pair, process.stdout, process.stderr)


def test_the_worker_computes_only_with_numbers_too(tmp_path):
    """MODEL_DIR and runs/ may be a disk that others can write to."""
    launch = tmp_path / "launch"
    launch.mkdir()
    for name in ("environment.sh", "tpu_worker.sh"):
        (launch / name).symlink_to(os.path.realpath(f"launch/{name}"))
    pod = tmp_path / "runs/.pod"
    pod.mkdir(parents=True)
    numbers = {"started": "1", "ended": "1 2", "model_dir": "x", "pid": "1", "output.txt": ""}
    for name in ("started", "ended", "pid"):
        for file, text in (numbers | {name: f"a[$(touch {tmp_path}/pwned)]"}).items():
            (pod / file).write_text(f"{text}\n")
        said = sentence(bash(launch / "tpu_worker.sh", "status"))
        assert f"runs/.pod/{name} does not hold numbers" in said
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["TPU_RESTARTS", "TPU_BACKOFF_SECONDS", "TPU_STOP_SECONDS"])
def test_a_setting_that_is_no_number_is_one_sentence(name, tmp_path):
    with Pod(tmp_path, workers=2) as pod:
        said = sentence(pod.ask("status", "ro", ZONE, **{name: "a few"}))
    assert f"{name} is 'a few', not an integer" in said
