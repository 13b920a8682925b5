"""Strangers at the port of the start-up check: whatever may connect to it and is no worker.

start_among(STRANGERS, secret=b"…")      # seconds until a pod of 3 workers has started among them
start_among(UNSIGNED, secret=b"")        # those that even a pod without a secret refuses

Each stranger comes again and again until the pod has started.
"""

import contextlib
import hashlib
import hmac
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable

from t5x.multihost.signed_lines import new_nonce, sign
from t5x.multihost.startup_check import Worker, wait_for_all

FACTS = {"commit": "abc"}
ESCAPES = {"commit": "\x1b[2J\x1b]0;owned\x07\r", "\x1b[31m name": "x"}


class Port:
    """The port of worker 0, as one stranger sees it."""

    def __init__(self, address: tuple[str, int], stop: threading.Event, stale: bytes):
        self.address, self.stop, self.stale = address, stop, stale
        self.came = threading.Event()

    def connect(self) -> socket.socket:
        """Return a connection, as soon as something listens."""
        while not self.stop.is_set():
            with contextlib.suppress(OSError):
                found = socket.create_connection(self.address, 5)
                self.came.set()
                return found
            time.sleep(0.01)
        raise ConnectionAbortedError

    def keep(self, connection: socket.socket, seconds: float = 60) -> None:
        """Hold a connection open until the end."""
        self.stop.wait(seconds)
        connection.close()


def silent(port: Port) -> None:
    """Connect and say nothing."""
    port.keep(port.connect())


def many_silent(port: Port) -> None:
    """Open 300 connections and say nothing."""
    with contextlib.ExitStack() as opened:
        for _ in range(300):
            opened.enter_context(port.connect())
        port.stop.wait(60)


def slow(port: Port) -> None:
    """Send one byte at a time, without an end."""
    with port.connect() as connection:
        while not port.stop.wait(0.05):
            connection.sendall(b"a")


def leaves(port: Port) -> None:
    """Connect and close at once."""
    port.connect().close()


def resets(port: Port) -> None:
    """Connect and reset the connection."""
    with port.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def half_closed(port: Port) -> None:
    """Close the direction to worker 0 and keep the other."""
    connection = port.connect()
    connection.shutdown(socket.SHUT_WR)
    port.keep(connection, 0.5)


def endless_line(port: Port) -> None:
    """Send megabytes without a line end."""
    with port.connect() as connection:
        while not port.stop.is_set():
            connection.sendall(b"1" * 65536)


def reads_nothing(port: Port) -> None:
    """Send many lines and never read an answer."""
    with port.connect() as connection:
        while not port.stop.is_set():
            connection.sendall(b"x\n" * 1000)
            time.sleep(0.01)


def sends(content: bytes) -> Callable[[Port], None]:
    """Return a stranger that sends bytes, unsigned, and waits for an answer."""

    def stranger(port: Port) -> None:
        with port.connect() as connection:
            connection.sendall(content)
            port.keep(connection, 0.5)

    return stranger


def signs(text: bytes, secret: bytes = b"") -> Callable[[Port], None]:
    """Return a stranger that knows the protocol, and signs a text with a secret of its own."""

    def stranger(port: Port) -> None:
        with port.connect() as connection:
            theirs, mine = connection.makefile("rb").readline().strip().decode(), new_nonce()
            message = f"report {theirs} {mine} ".encode() + text
            digest = hmac.new(secret, message, hashlib.sha256).hexdigest().encode()
            connection.sendall(mine.encode() + b" " + digest + b" " + text + b"\n")
            port.keep(connection, 0.5)

    return stranger


def repeats(port: Port) -> None:
    """Send a worker's signed report of an earlier start."""
    sends(port.stale)(port)


def reflects(port: Port) -> None:
    """Send worker 0's own nonce back as everything."""
    with port.connect() as connection:
        nonce = connection.makefile("rb").readline().strip()
        connection.sendall(nonce + b" " + nonce + b' [1, {"commit": "abc"}]\n')
        port.keep(connection, 0.5)


def line(*content: object) -> bytes:
    """Return a report as JSON."""
    return json.dumps(content).encode()


UNSIGNED: dict[str, Callable[[Port], None]] = {
    "silent": silent,
    "300 silent connections": many_silent,
    "a byte at a time": slow,
    "leaves at once": leaves,
    "resets": resets,
    "half-closed": half_closed,
    "a line without an end": endless_line,
    "reads nothing": reads_nothing,
    "http": sends(b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n"),
    "tls": sends(bytes.fromhex("16030100c8010000c40303") + os.urandom(190)),
    "grpc": sends(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
    "random bytes": sends(os.urandom(4096) + b"\n"),
    "zero bytes": sends(b"\0" * 4096 + b"\n"),
    "empty lines": sends(b"\n" * 100),
    "no utf-8": signs(b'[1, {"commit": "\xff\xfe"}]'),
    "a report of 0.2.0": sends(line(1, FACTS) + b"\n"),
    "a line of 8 MB": sends(b"0" * 32 + b" " + b"1" * 2**23 + b"\n"),
    "nested 100,000 times": signs(b"[" * 100_000 + b"]" * 100_000),
    "no JSON": signs(b"{'a': 1"),
    "a number of 100,000 digits": signs(b"1" * 100_000),
    "true for an index": signs(line(True, FACTS)),
    "1.0 for an index": signs(line(1.0, FACTS)),
    "a list for an index": signs(line([1], FACTS)),
    "an index below 1": signs(line(0, FACTS)),
    "a negative index": signs(line(-1, FACTS)),
    "an index too high": signs(line(3, FACTS)),
    "a list for facts": signs(line(1, ["commit"])),
    "lists in facts": signs(line(1, {"commit": [1]})),
    "a fact without a name": signs(line(1, {"": "x"})),
    "one part": signs(line(1)),
    "three parts": signs(line(1, FACTS, 1)),
    "a string": signs(b'"all"'),
    "NaN": signs(b'[NaN, {"commit": "abc"}]'),
    "the nonce sent back": reflects,
}
# Well-formed: only a pod with a secret can tell them from a worker.
IMPOSTORS: dict[str, Callable[[Port], None]] = {
    "worker 1 without the secret": signs(line(1, {"commit": "evil"})),
    "worker 1 with another secret": signs(line(1, {"commit": "evil"}), b"0" * 64),
    "escape codes": signs(line(1, ESCAPES)),
    "unknown facts": signs(line(1, {"weather": "fine"})),
    "a report of an earlier start": repeats,
}
STRANGERS = UNSIGNED | IMPOSTORS


def _haunt(port: Port, stranger: Callable[[Port], None]) -> None:
    while not port.stop.is_set():
        with contextlib.suppress(OSError, UnicodeDecodeError):
            stranger(port)
        port.stop.wait(0.02)


def start_among(
    strangers: Iterable[str], secret: bytes, count: int = 3, seconds: float = 30.0
) -> float:
    """Start a pod among strangers that have all connected before the workers do.

    Args:
      strangers: names in STRANGERS.
      secret: of the pod.
      count: workers, threads of this process.
      seconds: the pod's time.

    Returns:
      The seconds from the start of the other workers until all have started.

    Raises:
      Exception: the one of a worker that has not started.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    stale = sign(secret, "report", (new_nonce(), "0" * 32), [1, {"commit": "old"}])
    stop, errors = threading.Event(), []

    def work(index: int) -> None:
        try:
            worker = Worker(f"127.0.0.1:{address[1]}", count, index, secret)
            wait_for_all(worker, FACTS, seconds)
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=[index]) for index in range(count)]
    ports = [Port(address, stop, b"0" * 32 + b" " + stale) for _ in strangers]
    others = [
        threading.Thread(target=_haunt, args=[port, STRANGERS[name]], daemon=True)
        for port, name in zip(ports, strangers, strict=True)
    ]
    try:
        for thread in (workers[0], *others):
            thread.start()
        assert all(port.came.wait(seconds) for port in ports), "a stranger has not come"
        began = time.monotonic()
        for thread in workers[1:]:
            thread.start()
        for thread in workers:
            thread.join()
        took = time.monotonic() - began
    finally:
        stop.set()
        for thread in others:
            thread.join(10)
    if errors:
        raise errors[0]
    return took
