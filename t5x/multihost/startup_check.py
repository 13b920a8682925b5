"""Check, before several hosts train together, that all have started and run the same thing.

  wait_for_all(Worker("10.0.0.2:8482", count=4, index=1), facts(gin.config_str()), seconds=300)
  jax.distributed.initialize()
  ...
  assert_same(data_facts(stream.corpora))       # facts that are only known later

Facts are a dict of strings, such as {"commit": "3d166c2", "package jax": "0.10.2"}; workers count
from 0, as `gcloud … --worker=N` does.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import logging
import pathlib
import platform
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from jax.experimental import multihost_utils

# jax.distributed.initialize waits for all workers, then aborts without naming the missing ones. So
# before it starts its coordinator, worker 0 listens on the coordinator's port, which every firewall
# lets through already. The others send it a line of JSON, [index, facts], and get one back, the
# same for all: [kind of error, message], with '' where all is well. A line that is not such a
# report is ignored.

Facts = Mapping[str, str]
ROOT = pathlib.Path(__file__).resolve().parents[2]
_KINDS = {kind.__name__: kind for kind in (ValueError, RuntimeError)}
_SPARE_SECONDS = 20.0  # for an answer on its way
_LOG_SECONDS = 30.0
_REPORT_SECONDS = 5.0  # from the connection to the last byte of its report
_MAX_REPORT = 2**24  # bytes
_PORT = "8482"  # of JAX's coordinator on a TPU, unless JAX_COORDINATOR_PORT is set


@dataclasses.dataclass(frozen=True)
class Worker:
    """This process as number `index` of `count`, and the coordinator's host:port."""

    address: str
    count: int
    index: int

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address as sockets take it."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)


def find_worker(
    address: str | None, count: int | None, index: int | None, environment: Mapping[str, str]
) -> Worker | None:
    """Return this worker: as given, or by what its TPU slice says; None if that says nothing.

    A slice says it in the variables of GKE, or in the metadata of a TPU VM. Raise ValueError if an
    address is given without the number of processes or this one's.
    """
    if address is None:
        return _worker_of_slice(environment)
    if count is None or index is None:
        raise ValueError(
            f"--coordinator_address={address} does not say which of several processes this is; set "
            "--process_count=N and --process_index=I, too."
        )
    return Worker(address, count, index)


def _worker_of_slice(environment: Mapping[str, str]) -> Worker | None:
    hosts = environment.get("TPU_WORKER_HOSTNAMES", "")
    number = environment.get("TPU_WORKER_ID", "")
    if not (hosts and number):
        server = environment.get("GCE_METADATA_HOST", "metadata.google.internal")
        try:
            number = _metadata(server, "agent-worker-number")
            endpoints = _metadata(server, "worker-network-endpoints").split(",")
        except OSError:
            return None
        hosts = ",".join(endpoint.split(":")[-1] for endpoint in endpoints)
    if not number.strip().isdecimal():
        return None
    port = environment.get("JAX_COORDINATOR_PORT", _PORT)
    workers = [host.strip() for host in hosts.split(",")]
    return Worker(f"{workers[0]}:{port}", len(workers), int(number))


def _metadata(server: str, name: str) -> str:
    url = f"http://{server}/computeMetadata/v1/instance/attributes/{name}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


def facts(config: str) -> dict[str, str]:
    """Return the facts that must agree before JAX starts: commit, Python, packages, gin bindings.

    `config` is the text of `gin.config_str`.
    """
    packages = {p.metadata["Name"]: p.version for p in importlib.metadata.distributions()}
    lines = config.replace("\\\n", "").splitlines()  # in which long lines are broken
    bindings = (line.partition(" = ") for line in lines if line.strip() and line[0] != "#")
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        **{f"package {name}": packages[name] for name in sorted(packages, key=str)},
        **{f"gin {name.strip()}": " ".join(value.split()) for name, _, value in bindings},
    }


def _commit() -> str:
    """Return the commit that is checked out, with a hash of uncommitted changes."""

    def git(*words: str) -> bytes:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, check=True).stdout

    try:
        changes = git("diff", "HEAD")
        mark = f" with changes {hashlib.sha256(changes).hexdigest()[:8]}" if changes else ""
        return git("rev-parse", "--short=12", "HEAD").decode().strip() + mark
    except (OSError, subprocess.CalledProcessError):
        return "none, the code is not a git clone"


def wait_for_all(worker: Worker, mine: Facts, seconds: float) -> None:
    """Return once all workers have started with the same facts.

    Raise RuntimeError with those that have not reported within `seconds`, ValueError with the first
    fact that differs and all its values.
    """
    if worker.count == 1:
        return
    kind, message = (_report if worker.index else _collect)(worker, mine, seconds)
    if message:
        raise _KINDS[kind](printable(message, 2**16))
    logging.getLogger(__name__).info("All %d workers have started.", worker.count)


def _collect(worker: Worker, mine: Facts, seconds: float) -> tuple[str, str]:
    """On worker 0: collect the reports for at most `seconds`, and send all the same verdict."""
    host, port = worker.host_and_port
    is_local = host in ("localhost", "127.0.0.1")
    everyone, reports, connections = set(range(worker.count)), {0: mine}, {}
    end, log_at = time.monotonic() + seconds, time.monotonic() + _LOG_SECONDS
    try:
        server = socket.create_server((host if is_local else "", port), backlog=2**10)
    except OSError as error:
        raise RuntimeError(
            f"Worker 0 cannot listen on port {port} ({error.strerror}): another run may "
            "still be active there; end it with python3 launch/tpu.py stop NAME ZONE."
        ) from error
    with server, contextlib.ExitStack() as opened:
        server.settimeout(0.5)
        while (missing := everyone - set(reports)) and time.monotonic() < end:
            if time.monotonic() > log_at:
                logging.getLogger(__name__).warning("Waiting for %s.", _names(missing))
                log_at += _LOG_SECONDS
            with contextlib.suppress(OSError, ValueError, RecursionError):  # it is no worker's
                connection = opened.enter_context(server.accept()[0])
                match json.loads(_line_of(connection, _REPORT_SECONDS)):
                    case [int(index), dict(theirs)] if 0 < index < worker.count:
                        if all(isinstance(text, str) for text in theirs.values()):
                            reports[index], connections[index] = theirs, connection
        if missing:
            verdict = "RuntimeError", _absent(missing, worker, seconds)
        else:
            verdict = "ValueError", difference([reports[index] for index in sorted(reports)])
        for connection in connections.values():
            with contextlib.suppress(OSError):  # it has left
                connection.sendall(json.dumps(verdict).encode() + b"\n")
    return verdict


def _report(worker: Worker, mine: Facts, seconds: float) -> tuple[str, str]:
    """On the other workers: send the facts once worker 0 listens, and return its verdict."""
    end = time.monotonic() + seconds
    report = json.dumps([worker.index, dict(mine)]).encode() + b"\n"
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError, RecursionError):  # it is not there yet
            with socket.create_connection(worker.host_and_port, _REPORT_SECONDS) as connection:
                connection.sendall(report)
                match json.loads(_line_of(connection, seconds + _SPARE_SECONDS)):
                    case [str(kind), str(message)] if kind in _KINDS:
                        return kind, message
        time.sleep(0.5)
    return "RuntimeError", _absent([0], worker, seconds)


def _line_of(connection: socket.socket, seconds: float) -> bytes:
    """Return a line; raise OSError or ValueError if it does not come in time, or is too long."""
    end, line = time.monotonic() + seconds, bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(max(end - time.monotonic(), 0.001))
        part = connection.recv(2**16)
        if not part or len(line) > _MAX_REPORT:
            raise ValueError("the line has no end")
        line += part
    return bytes(line)


def _absent(workers: Collection[int], worker: Worker, seconds: float) -> str:
    """Describe workers that have not started, and what to do."""
    verb = "has" if len(workers) == 1 else "have"
    return (
        f"{_names(workers).capitalize()} of {worker.count} {verb} not started within {seconds:.0f} "
        f"s (all meet at {worker.address}); run the same command there, or find out why it ended "
        f"with python3 launch/tpu.py logs NAME ZONE {min(workers)} (--roll_call_seconds bounds the "
        "wait)."
    )


def difference(reports: Sequence[Facts]) -> str:
    """Describe the first fact in which the workers differ, with its values; '' for none."""
    names = dict.fromkeys(name for report in reports for name in report)
    differing = [n for n in names if len({report.get(n) for report in reports}) > 1]
    if not differing:
        return ""
    name, *others = differing
    by_value: dict[str, list[int]] = {}
    for index, report in enumerate(reports):
        by_value.setdefault(report.get(name, "missing"), []).append(index)
    values = [f"{printable(value)} on {_names(found)}" for value, found in by_value.items()]
    more = f" (and {len(others)} more differ)" if others else ""
    return (
        f"{printable(name)} is {' and '.join(values)}{more}; give all of them the same code and "
        "packages (python3 launch/tpu.py setup NAME ZONE), flags and data."
    )


def printable(text: str, limit: int = 2000) -> str:
    """Return the text for a terminal: nothing but printable characters, at most `limit` of them."""
    shown = text if len(text) <= limit else f"{text[:limit]}…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)


def _names(workers: Collection[int]) -> str:
    return f"worker{'s' * (len(workers) > 1)} {', '.join(map(str, sorted(workers)))}"


def data_facts(corpora: Callable[[], Mapping[str, object]]) -> dict[str, str]:
    """Return the files of each task on this worker, or the reason why they cannot be read."""
    try:
        return {f"data of {name}": json.dumps(about) for name, about in corpora().items()}
    except OSError as error:
        return {"data on the disk": f"unreadable ({error})"}


def assert_same(mine: Facts) -> None:
    """Compare more facts once JAX has started with several workers, all of which must call this.

    Raise ValueError with the first fact that differs and all its values.
    """
    text = json.dumps(mine).encode()
    size = int(multihost_utils.process_allgather(np.int32(len(text))).max())
    padded = np.frombuffer(text.ljust(size), np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(padded), np.uint8)
    if message := difference([json.loads(bytes(row)) for row in rows]):
        raise ValueError(message)
