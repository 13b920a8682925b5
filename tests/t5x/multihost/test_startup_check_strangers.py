"""Strangers at the port: a pod with a secret starts among all of them, one without among most."""

import socket
import threading

import pytest

from fakes.strangers import ESCAPES, FACTS, STRANGERS, UNSIGNED, Port, line, signs, start_among
from t5x.multihost import startup_check
from t5x.multihost.startup_check import Worker, difference, parse_report, wait_for_all

SECRET = b"0123456789abcdef" * 4


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def wait_in_thread(worker, errors, seconds=20.0):
    def work():
        try:
            wait_for_all(worker, FACTS, seconds)
        except (RuntimeError, ValueError) as error:
            errors[worker.index] = str(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_pod_starts_within_its_time_among_all_strangers_at_once():
    assert len(STRANGERS) > 20
    assert start_among(STRANGERS, SECRET) < 30


def test_a_pod_without_a_secret_starts_among_those_that_are_no_worker():
    assert start_among(UNSIGNED, b"") < 30


@pytest.mark.parametrize("name", ["worker 1 without the secret", "a report of an earlier start"])
def test_without_its_worker_a_pod_with_a_secret_does_not_start(name):
    """The impostor's report does not stand in for worker 1; worker 0 counts it."""
    port, errors, stop = free_port(), {}, threading.Event()
    first = wait_in_thread(Worker(f"127.0.0.1:{port}", 2, 0, SECRET), errors, 1.0)
    signed = signs(line(1, FACTS), b"")
    impostor = Port(("127.0.0.1", port), stop, b"0" * 32 + b" x\n")
    (STRANGERS[name] if name.startswith("a report") else signed)(impostor)
    first.join()
    assert errors[0].startswith("Worker 1 of 2 has not started within 1 s")
    assert (
        "1 reports had another secret: start all workers with the same T5X_POD_SECRET"
        in (errors[0])
    )


def test_workers_with_different_secrets_say_so():
    port, errors = free_port(), {}
    threads = [
        wait_in_thread(Worker(f"127.0.0.1:{port}", 2, index, secret), errors, 1.0)
        for index, secret in enumerate((SECRET, SECRET[::-1]))
    ]
    for thread in threads:
        thread.join()
    assert "reports had another secret" in errors[0]
    assert errors[1].startswith(f"Worker 0 at 127.0.0.1:{port} has another secret: start all ")


def test_a_connection_without_a_report_is_closed_after_its_time(monkeypatch):
    monkeypatch.setattr(startup_check, "_REPORT_SECONDS", 0.2)
    port, errors, stop = free_port(), {}, threading.Event()
    first = wait_in_thread(Worker(f"127.0.0.1:{port}", 2, 0, SECRET), errors)
    with Port(("127.0.0.1", port), stop, b"").connect() as slow:
        slow.settimeout(10)
        assert len(slow.recv(100)) == 33  # the nonce
        assert slow.recv(100) == b""
    wait_for_all(Worker(f"127.0.0.1:{port}", 2, 1, SECRET), FACTS, 20)
    first.join()
    assert errors == {}


@pytest.mark.parametrize("content", ["", '["ValueError", "\\u001b[2Jowned"]'])
def test_a_verdict_that_is_not_signed_is_none(content):
    """Something else listens where worker 0 should."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, errors = server.getsockname()[1], {}
        other = wait_in_thread(Worker(f"127.0.0.1:{port}", 2, 1, SECRET), errors, 1.0)
        with server.accept()[0] as connection:
            connection.sendall(b"0" * 32 + b"\n")
            connection.recv(10000)
            connection.sendall(b"0" * 64 + b" " + content.encode() + b"\n")
        other.join()
    assert errors[1].startswith("Worker 0 of 2 has not answered at 127.0.0.1:")


@pytest.mark.parametrize(
    "content",
    [
        *([index, FACTS] for index in (True, 0, 3, -1, 1.0, "1", None, [1])),
        *([1, facts] for facts in (None, [], "", 1, {"": "x"}, {" ": "x"}, {"a": 1}, {"a": None})),
        *([], [1], [1, FACTS, 1], {}, {"1": FACTS}, "1", None, 1),
    ],
)
def test_a_report_is_an_index_and_named_texts(content):
    assert parse_report([2, FACTS], 3) == (2, FACTS)
    with pytest.raises(ValueError, match=r"a fact|it is no index"):
        parse_report(content, 3)


def test_a_message_has_printable_text_only():
    said = difference([{"commit": "abc"}, ESCAPES])
    assert said.isprintable()
    assert "commit is abc on worker 0 and �[2J�]0;owned�� on worker 1" in said
    odd = difference([{}, {"weather\x1b": "\x07" + "x" * 10_000}])
    assert odd.isprintable()
    assert len(odd) < 3000
    assert odd.startswith("weather� is missing on worker 0 and �xxx")


def test_a_pod_without_a_secret_warns_unless_it_is_on_one_machine(caplog):
    for host, warned in (("127.0.0.1", False), ("localhost", False), ("127.0.0.2", True)):
        caplog.clear()
        with pytest.raises(RuntimeError, match="has not answered at"):
            wait_for_all(Worker(f"{host}:{free_port()}", 2, 1), {}, 0.1)
        assert ("This pod has no secret" in caplog.text) == warned
    caplog.clear()
    with pytest.raises(RuntimeError, match="has not answered at"):
        wait_for_all(Worker(f"127.0.0.2:{free_port()}", 2, 1, SECRET), {}, 0.1)
    assert caplog.text == ""


def test_facts_that_no_report_holds_are_one_sentence():
    with pytest.raises(ValueError, match=r"take 2,0.* bytes, and a report holds 1,048,576; bind"):
        wait_for_all(Worker("127.0.0.1:1", 2, 1), {"gin A": "x" * 2_000_000}, 1)


def test_a_secret_is_not_in_the_text_of_a_worker():
    assert "0123" not in repr(Worker("a:1", 2, 1, SECRET))
