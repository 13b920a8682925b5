"""All workers name the one that is missing or differs, then JAX starts."""

import concurrent.futures
import json
import socket
import subprocess
import sys
import threading
import time

import pytest

from common.errors import Failure, UserError
from fakes.loopback import free_port
from fakes.paths import ROOT
from t5x.multihost import roll_call
from t5x.multihost.roll_call import data_facts, difference, facts
from t5x.multihost.worker import Worker

_WORKER = """
import sys
import types
from t5x.cli import main
from t5x.multihost import roll_call

names = ("coordinator_address", "process_count", "process_index", "roll_call_seconds")
main.join_others(types.SimpleNamespace(**dict(zip(names, (sys.argv[1], 2, int(sys.argv[2]), 60)))))
data = sys.argv[3]
try:
    roll_call.assert_same({"data of a_task": data})
except ValueError as error:
    print(error)
"""
FACTS = {"commit": "abc"}


def connected(address):
    """Return a connection, as soon as something listens."""
    for _ in range(600):
        try:
            return socket.create_connection(address)
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(address)


def send(address, text):
    """Send something, and leave."""
    with connected(address) as connection:
        connection.sendall(text)


def post(path, body, length=None):
    """Return the bytes of a report."""
    return f"POST {path} HTTP/1.1\r\nContent-Length: {length or len(body)}\r\n\r\n{body}".encode()


def wait_for_all(worker, mine, seconds):
    """Return the error, '' if all have started."""
    try:
        roll_call.wait_for_all(worker, mine, seconds)
    except (Failure, UserError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def meet(count, commits, seconds=60.0, strangers=(), host="127.0.0.1"):
    """Return the error of each worker; the lines of strangers come before their reports."""
    address, running = f"{host}:{free_port()}", {}
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for index, commit in commits.items():
            worker = Worker(address, count, index)
            running[index] = pool.submit(wait_for_all, worker, {"commit": commit}, seconds)
            for line in strangers if index == 0 else ():
                send(worker.host_and_port, line)
        return {index: worker.result() for index, worker in running.items()}


def test_workers_with_the_same_facts_continue():
    assert meet(4, dict.fromkeys(range(4), "abc")) == dict.fromkeys(range(4), "")


def test_a_missing_worker_is_named_by_all_that_have_started():
    said = meet(4, {0: "abc", 1: "abc", 2: "abc"}, seconds=5)
    assert len(set(said.values())) == 1
    sentence = said[2]
    assert sentence.startswith("Failure: Worker 3 of 4 has not started within 5 s (")
    assert "tpu.py logs NAME ZONE 3" in sentence
    assert "Workers 1, 2 of 3 have not started" in meet(3, {0: "abc"}, seconds=0.5)[0]


def test_without_worker_0_the_others_say_so():
    said = meet(3, {1: "abc", 2: "abc"}, seconds=1)
    assert all("Worker 0 of 3 has not started" in text for text in said.values())


def test_workers_that_do_not_reach_each_other_are_told_the_port():
    """A firewall may drop what they send, and then each waits for the others."""
    ports = free_port(), free_port()  # nobody listens on the second, to which worker 1 turns
    workers = [Worker(f"127.0.0.1:{port}", 2, index) for index, port in enumerate(ports)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda worker: wait_for_all(worker, {}, 1), workers))
    for sentence, port in zip(said, ports, strict=True):
        assert f"firewall of the workers pass port {port} " in sentence


def test_another_commit_is_refused_by_all_with_both_values():
    said = meet(3, {0: "abc", 1: "abc", 2: "def"})
    assert len(set(said.values())) == 1
    assert said[1].startswith("UserError: commit is abc on workers 0, 1 and def on worker 2; ")


def test_jax_then_starts_on_the_same_port_past_a_proxy_and_compares_the_data():
    address, data = f"127.0.0.1:{free_port()}", ("12 files", "11 files")
    environment = {"JAX_PLATFORMS": "cpu", "PATH": "", "PYTHONPATH": str(ROOT)}
    environment |= {"http_proxy": "http://127.0.0.1:9", "no_proxy": "a.org"}  # reaches no cluster
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, address, str(index), data[index]],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for index in range(2)
    ]
    said = {process.communicate(timeout=240)[0].splitlines()[-1] for process in running}
    assert len(said) == 1
    expected = "data of a_task is 12 files on worker 0 and 11 files on worker 1; "
    assert said.pop().startswith(expected)


def test_a_restarted_worker_reports_again():
    """Its second report replaces the first, which a worker starts long before the second."""
    address = f"127.0.0.1:{free_port()}"
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        first = pool.submit(wait_for_all, Worker(address, 3, 0), FACTS, 60)
        send(Worker(address, 3, 0).host_and_port, post("/1", json.dumps({"commit": "old"})))
        others = []
        for index in (1, 2):  # the last one, with which the call ends
            time.sleep(3)  # each report has its own thread, and nothing shows that one is read
            others.append(pool.submit(wait_for_all, Worker(address, 3, index), FACTS, 60))
        assert {first.result(), *(other.result() for other in others)} == {""}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_what_is_no_report_is_ignored(host, monkeypatch, capfd):
    monkeypatch.setattr(roll_call, "_CONNECTION_SECONDS", 0.5)
    mine = json.dumps(FACTS)
    sent = [
        b"",
        b"\xff\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /1 HTTP/1.1\r\n\r\n",
        post("/1", "{", 9),
    ]
    sent += [
        post(path, mine) for path in ("/0", "/3", "/-1", "/1.0", "/", "/x", "/999999999999999")
    ]
    sent += [post("/1", body) for body in ("[" * 100_000, "[]", "null", "1", '"x"', "\xff")]
    said = meet(3, dict.fromkeys(range(3), "abc"), strangers=sent, host=host)
    assert said == dict.fromkeys(range(3), "")
    assert capfd.readouterr().err == ""


def test_a_silent_connection_delays_the_others_for_a_bounded_time(monkeypatch):
    monkeypatch.setattr(roll_call, "_CONNECTION_SECONDS", 0.5)
    address = f"127.0.0.1:{free_port()}"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(wait_for_all, Worker(address, 2, 0), FACTS, 60)
        with connected(Worker(address, 2, 0).host_and_port):
            assert wait_for_all(Worker(address, 2, 1), FACTS, 60) == first.result() == ""


@pytest.mark.parametrize("line", [b"", b"\n", b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 x\r\n\r\n"])
def test_what_is_no_verdict_is_none(line):
    """Something else listens where worker 0 should."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as connection:
                connection.recv(10000)
                connection.sendall(line)
            server.close()

        thread = threading.Thread(target=serve)
        thread.start()
        worker = Worker(f"127.0.0.1:{server.getsockname()[1]}", 2, 1)
        assert "Worker 0 of 2 has not started" in wait_for_all(worker, {}, 1)
        thread.join()


def test_a_message_has_printable_text_only():
    escapes = difference([FACTS, {"commit": "\x1b[2J\x1b]0;owned\x07\r"}])
    long = difference([{}, {"weather\x1b": "\x07" + "x" * 10_000}, {" ": ""}])
    assert all(str(error).isprintable() for error in (escapes, long))
    assert len(str(long)) < 3000


def test_a_port_in_use_is_a_clear_error():
    with socket.create_server(("", 0)) as server:
        worker = Worker(f"127.0.0.1:{server.getsockname()[1]}", 2, 0)
        assert "another run may still be active there" in wait_for_all(worker, {}, 1)


def test_a_single_worker_opens_no_connection(monkeypatch):
    opened = []
    monkeypatch.setattr(socket, "socket", lambda *args, **kwargs: opened.append(args))
    roll_call.wait_for_all(Worker("nowhere:1", 1, 0), {}, 0)
    assert opened == []


# --- facts


def test_facts_are_commit_python_packages_and_bindings():
    long = "TASK_FEATURE_LENGTHS = \\\n    {'inputs': 512,\\\n     'targets': 114}\n"
    found = facts(f"import tasks.romanian\n\n# A comment\nTRAIN_STEPS = 300\n{long}")
    assert next(iter(found)) == "commit"
    assert len(found["commit"].split()[0]) == 12
    assert found["python"].startswith("3.")
    assert found["package jax"]
    assert found["gin TRAIN_STEPS"] == "300"
    assert found["gin TASK_FEATURE_LENGTHS"] == "{'inputs': 512, 'targets': 114}"
    assert "gin import tasks.romanian" in found


def test_a_worker_that_cannot_read_its_files_says_so():
    assert data_facts(lambda: {"a_task": {"files": 2}}) == {"data of a_task": '{"files": 2}'}

    def corpora():
        raise FileNotFoundError(2, "No such file or directory", "/data/a.jsonl")

    reports = [{"data of a_task": "2 files"}, data_facts(corpora)]
    assert str(difference(reports)).startswith(
        "data of a_task is 2 files on worker 0 and missing on "
    )
    assert "/data/a.jsonl" in data_facts(corpora)["data on the disk"]


def test_code_outside_a_git_clone_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(roll_call, "ROOT", tmp_path)
    assert facts("")["commit"] == "none, the code is not a git clone"


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([{"commit": "a"}, {"commit": "a"}], ""),
        (
            [{"commit": "a", "gin A": "1"}, {"commit": "a", "gin A": "2"}],
            "gin A is 1 on worker 0 and 2 on worker 1; ",
        ),
        (
            [{"package jax": "1"}, {"package jax": "1"}, {"package jax": "1", "package x": "2"}],
            "package x is missing on workers 0, 1 and 2 on worker 2; ",
        ),
        (
            [{"commit": "a", "python": "3.11.7"}, {"commit": "b", "python": "3.12.1"}],
            "commit is a on worker 0 and b on worker 1 (and 1 more differ); ",
        ),
    ],
)
def test_the_first_difference_is_named_with_all_its_values(reports, expected):
    error = difference(reports)
    assert str(error).startswith(expected) if expected else error is None
