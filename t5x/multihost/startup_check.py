"""Check, before several hosts train together, that all have started and run the same thing.

  wait_for_all(Worker("10.0.0.2:8482", count=4, index=1), facts(gin.config_str()), seconds=300)
  jax.distributed.initialize()
  ...
  assert_same("data", data_facts(stream.corpora))       # facts that are only known later

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
from collections.abc import Callable, Collection, Mapping, Sequence

# jax.distributed.initialize waits for all workers, then aborts without naming the missing ones. So
# before it starts its coordinator:
# 1. Worker 0 listens on the coordinator's own port, which every firewall lets through already.
# 2. Each other worker connects and sends a line of JSON: [index, facts].
# 3. When all have reported, or the time is up, worker 0 compares the facts and sends the same
#    verdict to all: ["", ""], or the kind of error and its message.
# Later `assert_same` compares over JAX's key-value store, since that port is then JAX's.

Facts = Mapping[str, str]
Verdict = tuple[str, str]
ROOT = pathlib.Path(__file__).resolve().parents[2]
_SPARE_SECONDS = 20.0  # for an answer on its way
_REPORT_SECONDS = 30.0
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


def find_worker(
    address: str | None, count: int | None, index: int | None, seconds: float
) -> Worker:
    """Return this worker; arguments that are None are detected as JAX does it.

    Raises:
      RuntimeError: the name of worker 0 is not known within `seconds`.
      ValueError: an argument that is None cannot be detected.
    """
    if None in (address, count, index):
        from jax._src import clusters  # has no public name; jax is pinned

        detect = clusters.ClusterEnv.auto_detect_unset_distributed_params
        try:
            address, count, index, _ = detect(address, count, index, None, None, int(seconds))
        except RuntimeError as error:
            raise RuntimeError(
                f"Worker 0 has no address within {seconds:.0f} s ({error}); {_how_to_start(0)}"
            ) from error
    if address is None or count is None or index is None:
        raise ValueError(
            "This machine does not know which of several processes this is; set "
            "--coordinator_address=HOST:PORT, --process_count=N and --process_index=I."
        )
    return Worker(address, count, index)


def facts(config: str) -> dict[str, str]:
    """Return the facts that must agree before JAX starts: commit, Python, packages, gin bindings.

    Args:
      config: the text of `gin.config_str`.
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

    Raises:
      RuntimeError: some have not reported within `seconds`; names them.
      ValueError: facts differ; names the first, with all its values.
    """
    if worker.count == 1:
        return
    meet = _collect_reports if worker.index == 0 else _report
    kind, message = meet(worker, mine, seconds)
    if message:
        raise {"ValueError": ValueError, "RuntimeError": RuntimeError}[kind](message)
    logging.getLogger(__name__).info("All %d workers have started.", worker.count)


def _collect_reports(worker: Worker, mine: Facts, seconds: float) -> Verdict:
    """On worker 0: collect the reports, and answer all with the verdict that is returned."""
    logged, end = time.monotonic(), time.monotonic() + seconds
    reports, connections = {0: mine}, {}
    with _server(worker) as server:
        while len(reports) < worker.count and (left := end - time.monotonic()) > 0:
            server.settimeout(min(left, 1.0))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                if time.monotonic() - logged > _REPORT_SECONDS:
                    logged = time.monotonic()
                    missing = _names(set(range(worker.count)) - set(reports))
                    logging.getLogger(__name__).warning("Waiting for %s.", missing)
                continue
            if report := _read_report(connection, worker.count):
                index, theirs = report  # a worker that was restarted reports again
                reports[index], connections[index] = theirs, connection
        verdict = _verdict(reports, worker.count, seconds)
        for connection in connections.values():
            with contextlib.suppress(OSError):  # the worker has left
                _send(connection, verdict)
    return verdict


def _server(worker: Worker) -> socket.socket:
    port = worker.host_and_port[1]
    try:
        return socket.create_server(("", port), backlog=worker.count)
    except OSError as error:
        raise RuntimeError(
            f"Worker 0 cannot listen on port {port} ({error.strerror}): another run may "
            "still be active there; end it with bash launch/tpu_stop.sh NAME ZONE."
        ) from error


def _read_report(connection: socket.socket, count: int) -> tuple[int, Facts] | None:
    """Return the index and facts that a worker has sent; None for any other client."""
    connection.settimeout(_SPARE_SECONDS)
    try:
        index, theirs = json.loads(connection.makefile().readline())
        if index in range(1, count):
            return index, dict(theirs)
    except (OSError, ValueError, TypeError):
        pass
    connection.close()
    return None


def _report(worker: Worker, mine: Facts, seconds: float) -> Verdict:
    """On the other workers: send the facts once worker 0 listens, and return its verdict."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection(worker.host_and_port, min(left, 5.0)) as connection:
                connection.settimeout(seconds + _SPARE_SECONDS)
                _send(connection, (worker.index, dict(mine)))
                kind, message = json.loads(connection.makefile().readline())
                return kind, message
        except (OSError, ValueError):  # it has not started yet, or was restarted
            time.sleep(min(0.5, max(left, 0)))
    return "RuntimeError", (
        f"Worker 0 of {worker.count} has not answered at {worker.address} within {seconds:.0f} s; "
        f"{_how_to_start(0)}"
    )


def _send(connection: socket.socket, content: object) -> None:
    connection.sendall(json.dumps(content).encode() + b"\n")


def _verdict(reports: Mapping[int, Facts], count: int, seconds: float) -> Verdict:
    """Return ('', '') where all is well, else the kind of error and its message."""
    if missing := sorted(set(range(count)) - set(reports)):
        verb = "has" if len(missing) == 1 else "have"
        return "RuntimeError", (
            f"{_names(missing).capitalize()} of {count} {verb} not started within {seconds:.0f} s; "
            f"{_how_to_start(missing[0])}"
        )
    return "ValueError", difference([reports[i] for i in range(count)])


def _how_to_start(worker: int) -> str:
    return (
        "run the same command there, and look why it ended with "
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
    values = [f"{value or 'missing'} on {_names(found)}" for value, found in by_value.items()]
    more = f" (and {len(others)} more differ)" if others else ""
    return f"{name} is {' and '.join(values)}{more}; {_ADVICE[name.split()[0]]}."


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

    Raises:
      RuntimeError: a worker does not call it within `seconds`; names it.
      ValueError: facts differ; names the first, with all its values.
    """
    import jax  # here, since it takes seconds that `wait_for_all` need not wait for
    from jax._src import distributed  # its key-value store has no public name; jax is pinned

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
                f"look why with bash launch/tpu_logs.sh NAME ZONE {worker}."
            ) from error
    if message := difference(reports):
        raise ValueError(message)
