"""Check, before several hosts train together, that all have started and run the same thing.

  wait_for_all(Worker("10.0.0.2:8482", count=4, index=1), facts(gin.config_str()), seconds=300)
  jax.distributed.initialize()
  ...
  assert_same("data", data_facts(stream.corpora))       # facts that are only known later

Facts are a dict of strings, such as {"commit": "3d166c2", "package jax": "0.10.2"}; workers count
from 0, as `gcloud … --worker=N` does.
"""

import asyncio
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

# jax.distributed.initialize waits for all workers, then aborts without naming the missing ones. So
# before it starts its coordinator:
# 1. Worker 0 listens on the coordinator's own port, which every firewall lets through already.
# 2. Each other worker connects and sends a line of JSON: [index, facts].
# 3. When all have reported, or the time is up, worker 0 compares the facts and sends the same
#    verdict to all: the kind of error and its message, '' where all is well.
# A line that is not such a report is ignored. Later `assert_same` compares over JAX's key-value
# store, since that port is then JAX's.

Facts = Mapping[str, str]
Verdict = tuple[str, str]
ROOT = pathlib.Path(__file__).resolve().parents[2]
_KINDS = {"ValueError": ValueError, "RuntimeError": RuntimeError}
_SPARE_SECONDS = 20.0  # for an answer on its way
_LOG_SECONDS = 30.0
_REPORT_SECONDS = 10.0  # from the connection to the last byte of its report
_MAX_REPORT = 2**24  # bytes
_METADATA = "metadata.google.internal"
_PORT = "8482"  # of JAX's coordinator on a TPU, unless JAX_COORDINATOR_PORT is set
# What to do about a difference, by the first word of the fact's name.
_ADVICE = {
    "commit": "run `git pull` on all of them, or bash launch/tpu_setup.sh NAME ZONE",
    "python": "set PYTHON alike, or run bash launch/tpu_setup.sh NAME ZONE",
    "package": "run bash launch/setup.sh on all of them, or bash launch/tpu_setup.sh NAME ZONE",
    "gin": "start all of them by the same command, with the same flags and gin files",
    "data": "let all of them read the same files, for instance from one bucket",
}


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

    @property
    def is_local(self) -> bool:
        """Whether all workers run on one machine and reach the first by its loopback."""
        return self.host_and_port[0] in ("localhost", "127.0.0.1")


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
        server = environment.get("GCE_METADATA_HOST", _METADATA)
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
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        **{f"package {name}": packages[name] for name in sorted(packages, key=str)},
        **{f"gin {name}": value for name, value in _bindings(config).items()},
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


def _bindings(config: str) -> dict[str, str]:
    """Return {'TRAIN_STEPS': '300', …} from gin's text, in which long lines are broken."""
    lines = config.replace("\\\n", "").splitlines()
    found = (line.partition(" = ") for line in lines if line.strip() and line[0] != "#")
    return {name.strip(): " ".join(value.split()) for name, _, value in found}


def wait_for_all(worker: Worker, mine: Facts, seconds: float) -> None:
    """Return once all workers have started with the same facts.

    Raise RuntimeError with those that have not reported within `seconds`, ValueError with the first
    fact that differs and all its values, or for facts of too many bytes.
    """
    if worker.count == 1:
        return
    if worker.index == 0:
        kind, message = asyncio.run(_RollCall(worker, mine).collect(seconds))
    else:
        kind, message = asyncio.run(_report(worker, mine, seconds))
    if message:
        raise _KINDS[kind](printable(message, _MAX_REPORT))
    logging.getLogger(__name__).info("All %d workers have started.", worker.count)


class _RollCall:
    """On worker 0: collects the reports, and answers all of them with one verdict.

    Each connection has `_REPORT_SECONDS` for its report, and waits for no other.
    """

    def __init__(self, worker: Worker, mine: Facts):
        self._worker = worker
        self._reports: dict[int, Facts] = {0: mine}
        self._reporters: dict[int, asyncio.StreamWriter] = {}
        self._complete = asyncio.Event()

    async def collect(self, seconds: float) -> Verdict:
        """Listen until all have reported, for at most `seconds`, and return the verdict."""
        server = await asyncio.start_server(
            self._meet, sock=_listening(self._worker), limit=_MAX_REPORT
        )
        try:
            await self._wait(seconds)
            verdict = _verdict(self._reports, self._worker.count, seconds)
            await self._answer(verdict)
        finally:
            server.close()
        return verdict

    async def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._complete.is_set() and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._complete.wait(), min(left, _LOG_SECONDS))
                return
            missing = _names(set(range(self._worker.count)) - set(self._reports))
            logging.getLogger(__name__).warning("Waiting for %s.", missing)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Receive the report of one connection, or close it."""
        try:
            async with asyncio.timeout(_REPORT_SECONDS):
                line = await _line_of(reader)
            index, theirs = parse_report(line, self._worker.count)
        except (OSError, ValueError, EOFError) as error:
            logging.getLogger(__name__).info("A connection is no worker's: %s", error)
            writer.transport.abort()
            return
        if index in self._reporters:  # a worker that was restarted reports again
            self._reporters[index].transport.abort()
        self._reports[index], self._reporters[index] = theirs, writer
        if len(self._reports) == self._worker.count:
            self._complete.set()

    async def _answer(self, verdict: Verdict) -> None:
        """Send the verdict to all that have reported; one that has left does not matter."""
        for writer in self._reporters.values():
            writer.write(json.dumps(verdict).encode() + b"\n")
            writer.close()
        closed = [writer.wait_closed() for writer in self._reporters.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REPORT_SECONDS):
                await asyncio.gather(*closed, return_exceptions=True)


async def _line_of(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; raise EOFError if there is none, ValueError if it is too long."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the other side has left")
    return line


def _listening(worker: Worker) -> socket.socket:
    """Return a socket on the coordinator's port, on this machine's loopback if that is its host."""
    host, port = worker.host_and_port
    try:
        return socket.create_server((host if worker.is_local else "", port), backlog=worker.count)
    except OSError as error:
        raise RuntimeError(
            f"Worker 0 cannot listen on port {port} ({error.strerror}): another run may "
            "still be active there; end it with bash launch/tpu_stop.sh NAME ZONE."
        ) from error


def parse_report(line: bytes, count: int) -> tuple[int, Facts]:
    """Return the index and the facts of a worker's report.

    Raise ValueError for anything but JSON of [index from 1 to count - 1, {name: text, …}].
    """
    match _parsed(line):
        case [int(index), dict(theirs)] if type(index) is int and 0 < index < count:
            if all(name.strip() and isinstance(text, str) for name, text in theirs.items()):
                return index, theirs
    raise ValueError("it sends no index of a worker with its facts")


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("the line is nested too deeply") from error


async def _report(worker: Worker, mine: Facts, seconds: float) -> Verdict:
    """On the other workers: send the facts once worker 0 listens, and return its verdict."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            return await _report_once(worker, mine, seconds + _SPARE_SECONDS)
        except (OSError, ValueError, EOFError):  # it has not started yet, or was restarted
            await asyncio.sleep(min(0.5, max(left, 0)))
    return "RuntimeError", (
        f"Worker 0 of {worker.count} has not answered at {worker.address} within {seconds:.0f} s; "
        f"{_how_to_start(0)}"
    )


async def _report_once(worker: Worker, mine: Facts, patience: float) -> Verdict:
    """Send the facts, and return the verdict.

    Raise OSError, ValueError or EOFError if what listens there sends none within `patience`.
    """
    reader, writer = await asyncio.open_connection(*worker.host_and_port, limit=_MAX_REPORT)
    try:
        writer.write(json.dumps([worker.index, dict(mine)]).encode() + b"\n")
        async with asyncio.timeout(patience):
            line = await _line_of(reader)
        match _parsed(line):
            case [str(kind), str(message)] if kind in _KINDS:
                return kind, message
        raise ValueError("it sends no verdict")
    finally:
        writer.transport.abort()


def _verdict(reports: Mapping[int, Facts], count: int, seconds: float) -> Verdict:
    """Return ('ValueError', '') where all is well, else the kind of error and its message."""
    if missing := sorted(set(range(count)) - set(reports)):
        verb = "has" if len(missing) == 1 else "have"
        return "RuntimeError", (
            f"{_names(missing).capitalize()} of {count} {verb} not started within {seconds:.0f} s; "
            f"{_how_to_start(missing[0])}"
        )
    return "ValueError", difference([reports[i] for i in range(count)])


def _how_to_start(worker: int) -> str:
    return (
        "run the same command there, or find out why it ended with "
        f"bash launch/tpu_logs.sh NAME ZONE {worker} (--roll_call_seconds bounds the wait)."
    )


def difference(reports: Sequence[Facts]) -> str:
    """Describe the first fact in which the workers differ, with its values; '' for none."""
    names = list(dict.fromkeys(name for report in reports for name in report))
    differing = [n for n in names if len({report.get(n) for report in reports}) > 1]
    if not differing:
        return ""
    name, *others = differing
    by_value: dict[str | None, list[int]] = {}
    for index, report in enumerate(reports):
        by_value.setdefault(report.get(name), []).append(index)
    values = [f"{printable(v or 'missing')} on {_names(found)}" for v, found in by_value.items()]
    more = f" (and {len(others)} more differ)" if others else ""
    advice = _ADVICE.get(name.split()[0], _ADVICE["commit"])
    return f"{printable(name)} is {' and '.join(values)}{more}; {advice}."


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


def assert_same(topic: str, mine: Facts, seconds: float = 300.0) -> None:
    """Compare more facts after JAX has started; every worker must call this.

    Raise RuntimeError with a worker that does not call it within `seconds`, ValueError with the
    first fact that differs and all its values.
    """
    import jax  # here, since it takes seconds that `wait_for_all` need not wait for
    from jax._src import distributed  # its key-value store has no public name

    count, client, reports = jax.process_count(), distributed.global_state.client, []
    if count == 1 or client is None:
        return
    key = f"startup_check/{topic}"
    client.key_value_set(f"{key}/{jax.process_index()}", json.dumps(mine), allow_overwrite=True)
    end = time.monotonic() + seconds
    for worker in range(count):
        left = max(int(1000 * (end - time.monotonic())), 1)
        try:
            reports.append(json.loads(client.blocking_key_value_get(f"{key}/{worker}", left)))
        except jax.errors.JaxRuntimeError as error:
            raise RuntimeError(
                f"Worker {worker} of {count} has not reported its {topic} within {seconds:.0f} s; "
                f"find out why with bash launch/tpu_logs.sh NAME ZONE {worker}."
            ) from error
    if message := difference(reports):
        raise ValueError(message)
