"""Workers as real processes: all name the one that is missing or differs, then JAX starts."""

import http.server
import json
import socket
import subprocess
import sys
import threading
import time

import pytest

from fakes.paths import ROOT
from t5x.multihost import startup_check
from t5x.multihost.startup_check import (
    Worker,
    data_facts,
    difference,
    facts,
    find_worker,
    parse_report,
    wait_for_all,
)

_WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from t5x.multihost import startup_check

port, count, index, commit, seconds = sys.argv[2], *map(int, sys.argv[3:5]), *sys.argv[5:7]
try:
    worker = startup_check.Worker(f"127.0.0.1:{port}", count, index)
    print("started", flush=True)
    sys.stdin.readline()  # its seconds begin when all have started
    startup_check.wait_for_all(worker, {"commit": commit}, float(seconds))
    if len(sys.argv) > 7:
        import jax
        jax.distributed.initialize(worker.address, count, index)
        startup_check.assert_same("data", {"data of a_task": sys.argv[7]})
    print("all have started")
except (RuntimeError, ValueError) as error:
    print(f"{type(error).__name__}: {error}")
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


def send(address, report):
    """Report as a worker does, which then leaves."""
    with connected(address) as connection:
        connection.sendall(json.dumps(report).encode() + b"\n")


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def meet(count, commits, seconds=60, data=None):
    """Return the output of each worker by index; worker 0 starts last."""
    port, running = free_port(), {}
    for index in sorted(commits, reverse=True):
        words = [
            ROOT,
            port,
            count,
            index,
            commits[index],
            seconds,
            *([data[index]] if data else []),
        ]
        command = [sys.executable, "-c", _WORKER, *map(str, words)]
        env = {"JAX_PLATFORMS": "cpu", "PATH": ""}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert process.stdout.readline() == "started\n"
        running[index] = process
    for process in running.values():
        process.stdin.write("go\n")
        process.stdin.flush()
    return {
        index: process.communicate(timeout=240)[0].strip() for index, process in running.items()
    }


def test_workers_with_the_same_facts_continue():
    said = meet(4, dict.fromkeys(range(4), "abc"))
    assert said == dict.fromkeys(range(4), "all have started")


def test_a_missing_worker_is_named_by_all_that_have_started():
    said = meet(4, {0: "abc", 1: "abc", 2: "abc"}, seconds=6)
    assert len(set(said.values())) == 1
    sentence = said[2]
    assert sentence.startswith("RuntimeError: Worker 3 of 4 has not started within 6 s; run the ")
    assert "tpu_logs.sh NAME ZONE 3" in sentence


def test_several_missing_workers_are_named_together():
    assert "Workers 1, 2 of 3 have not started" in meet(3, {0: "abc"}, seconds=0.5)[0]


def test_without_worker_0_the_others_say_so():
    said = meet(3, {1: "abc", 2: "abc"}, seconds=1)
    assert all("Worker 0 of 3 has not answered at 127.0.0.1:" in text for text in said.values())


def test_another_commit_is_refused_by_all_with_both_values():
    said = meet(3, {0: "abc", 1: "abc", 2: "def"})
    assert len(set(said.values())) == 1
    assert said[1].startswith("ValueError: commit is abc on workers 0, 1 and def on worker 2; run ")


def test_jax_then_starts_on_the_same_port_and_compares_the_data():
    said = meet(2, {0: "abc", 1: "abc"}, data={0: "12 files", 1: "11 files"})
    assert len(set(said.values())) == 1
    expected = "ValueError: data of a_task is 12 files on worker 0 and 11 files on worker 1; let "
    assert said[0].startswith(expected)


def test_a_restarted_worker_reports_again():
    """Its second report replaces the first."""
    worker = Worker(f"127.0.0.1:{free_port()}", 3, 2)
    words = (ROOT, worker.host_and_port[1], 3, 0, "abc", 60)
    command = [sys.executable, "-c", _WORKER, *map(str, words)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    first = subprocess.Popen(command, text=True, **pipes)
    for commit in ("old", "abc"):
        send(worker.host_and_port, [1, {"commit": commit}])
    wait_for_all(worker, {"commit": "abc"}, 60)
    assert first.communicate(timeout=240)[0] == "started\nall have started\n"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_lines_that_are_no_report_are_ignored(name):
    port, errors = free_port(), []
    workers = [Worker(f"{name}:{port}", 2, index) for index in range(2)]

    def first():
        try:
            wait_for_all(workers[0], {"commit": "abc"}, 30)
        except (RuntimeError, ValueError) as error:
            errors.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    silent = connected(workers[0].host_and_port)
    for line in (b"GET / HTTP/1.1\r\n\r\n", b"\xff\n", b"[" * 100_000 + b"\n", b"[1, {"):
        with connected(workers[0].host_and_port) as stranger:
            stranger.sendall(line)
    wait_for_all(workers[1], {"commit": "abc"}, 30)
    thread.join()
    silent.close()
    assert errors == []


@pytest.mark.parametrize("line", [b"", b"\n", b'["SystemExit", "x"]\n', b"{}\n"])
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
        with pytest.raises(RuntimeError, match="Worker 0 of 2 has not answered"):
            wait_for_all(worker, {}, 1)
        thread.join()


@pytest.mark.parametrize(
    "content",
    [
        *([index, FACTS] for index in (True, 0, 3, -1, 1.0, "1", None, [1])),
        *([1, facts] for facts in (None, [], "", 1, {"": "x"}, {" ": "x"}, {"a": 1}, {"a": None})),
        *([], [1], [1, FACTS, 1], {}, {"1": FACTS}, "1", None, 1),
    ],
)
def test_a_report_is_an_index_and_named_texts(content):
    assert parse_report(json.dumps([2, FACTS]).encode(), 3) == (2, FACTS)
    with pytest.raises(ValueError, match=r"no index of a worker"):
        parse_report(json.dumps(content).encode(), 3)


def test_a_message_has_printable_text_only():
    said = difference([FACTS, {"commit": "\x1b[2J\x1b]0;owned\x07\r"}])
    assert said.isprintable()
    odd = difference([{}, {"weather\x1b": "\x07" + "x" * 10_000}])
    assert odd.isprintable()
    assert len(odd) < 3000


def test_a_port_in_use_is_a_clear_error():
    with socket.create_server(("", 0)) as server:
        worker = Worker(f"127.0.0.1:{server.getsockname()[1]}", 2, 0)
        with pytest.raises(RuntimeError, match="another run may still be active there"):
            wait_for_all(worker, {}, 1)


def test_a_single_worker_opens_no_connection(monkeypatch):
    opened = []
    for name in ("create_server", "create_connection"):
        monkeypatch.setattr(socket, name, lambda *args, **kwargs: opened.append(args))
    wait_for_all(Worker("nowhere:1", 1, 0), {}, 0)
    assert opened == []


def test_a_worker_is_given_by_flags():
    assert find_worker("a:1", 4, 2, {}) == Worker("a:1", 4, 2)
    with pytest.raises(ValueError, match="set --process_count=N and --process_index=I"):
        find_worker("a:1", None, None, {})


def test_a_worker_of_gke_is_known_by_its_variables():
    given = {"TPU_WORKER_HOSTNAMES": "a.svc,b.svc", "TPU_WORKER_ID": "1"}
    assert find_worker(None, None, None, given) == Worker("a.svc:8482", 2, 1)
    given["JAX_COORDINATOR_PORT"] = "99"
    assert find_worker(None, None, None, given) == Worker("a.svc:99", 2, 1)


@pytest.mark.parametrize("endpoints", ["10.0.0.2,10.0.0.3", "n:1:10.0.0.2,n:2:10.0.0.3", None])
def test_a_worker_of_a_tpu_vm_is_known_by_its_metadata(endpoints):
    known = {"agent-worker-number": "1", "worker-network-endpoints": endpoints}

    class Metadata(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = known[self.path.rpartition("/")[2]] if endpoints else None
            is_asked = self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if text and is_asked else 404)
            self.end_headers()
            self.wfile.write((text or "").encode())

    with http.server.HTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given = {"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"}
        expected = Worker("10.0.0.2:8482", 2, 1) if endpoints else None
        assert find_worker(None, None, None, given) == expected
        server.shutdown()


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
    assert difference(reports).startswith("data of a_task is 2 files on worker 0 and missing on ")
    assert "/data/a.jsonl" in data_facts(corpora)["data on the disk"]


def test_code_outside_a_git_clone_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(startup_check, "ROOT", tmp_path)
    assert facts("")["commit"] == "none, the code is not a git clone"


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([{"commit": "a"}, {"commit": "a"}], ""),
        (
            [{"commit": "a", "gin A": "1"}, {"commit": "a", "gin A": "2"}],
            "gin A is 1 on worker 0 and 2 on worker 1; start all of them by the same command, ",
        ),
        (
            [{"package jax": "1"}, {"package jax": "1"}, {"package jax": "1", "package x": "2"}],
            "package x is missing on workers 0, 1 and 2 on worker 2; run bash launch/setup.sh ",
        ),
        (
            [{"commit": "a", "python": "3.11.7"}, {"commit": "b", "python": "3.12.1"}],
            "commit is a on worker 0 and b on worker 1 (and 1 more differ); run `git pull` ",
        ),
    ],
)
def test_the_first_difference_is_named_with_all_its_values(reports, expected):
    found = difference(reports)
    assert found.startswith(expected) if expected else found == ""
