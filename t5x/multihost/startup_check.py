"""Before several hosts train together each of them reports in, and what must be alike is compared.

  hold(Place("10.0.0.2:8482", count=4, index=1), facts(gin.config_str()), seconds=300)
  jax.distributed.initialize()
  ...
  agree("data", data_facts(stream.corpora))       # later, what is only known then

A worker that is missing, or that runs another commit, is named on every one that is there. JAX
alone waits for all of them, then aborts and says nothing of who was missed: so before its
coordinator starts, worker 0 listens on the coordinator's own port (which every firewall lets
through already), until all have sent their facts or the time is up, and answers all alike.

Facts are a dict of texts, such as {"commit": "3d166c2", "package jax": "0.10.2"}; workers count
from 0, as `gcloud … --worker=N` does.
"""

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
from collections.abc import Callable, Mapping, Sequence

Facts = Mapping[str, str]
ROOT = pathlib.Path(__file__).resolve().parents[2]
_SPARE_SECONDS = 20.0  # how long an answer may take on its way
_SAY_EVERY = 30.0
# What to do about a difference, by how the fact's name begins.
_ADVICE = {
    "commit": "run `git pull` on all of them, or bash launch/tpu_setup.sh NAME ZONE",
    "python": "set PYTHON alike, or run bash launch/tpu_setup.sh NAME ZONE",
    "package": "run bash launch/setup.sh on all of them, or bash launch/tpu_setup.sh NAME ZONE",
    "gin": "start all of them by the same command, with the same flags and gin files",
    "data": "let all of them read the same files, for instance from one bucket",
}


@dataclasses.dataclass(frozen=True)
class Place:
    """Which of `count` workers this is, and where they meet: the coordinator's host:port."""

    address: str
    count: int
    index: int

    @property
    def host_and_port(self) -> tuple[str, int]:
        """As sockets want it."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)


def find_place(address: str | None, count: int | None, index: int | None, seconds: float) -> Place:
    """This worker's place; what is None the machine is asked for, as jax does it.

    Raises:
      RuntimeError: the name of worker 0 is not known within `seconds`.
      ValueError: the machine does not tell what is None.
    """
    given = (address, count, index)
    if None in given:
        from jax._src import clusters  # the only one who can ask; jax is pinned

        detect = clusters.ClusterEnv.auto_detect_unset_distributed_params
        try:
            *given, _ = detect(*given, None, None, int(seconds))
        except RuntimeError as error:
            raise RuntimeError(
                f"Worker 0 has no address within {seconds:.0f} s ({error}); {_start_it(0)}"
            ) from error
    if None in given:
        raise ValueError(
            "This machine does not tell which of several processes this is; set "
            "--coordinator_address=HOST:PORT, --process_count=N and --process_index=I."
        )
    return Place(*given)


def facts(config: str) -> dict[str, str]:
    """What must be alike before JAX starts: commit, Python, packages, gin bindings.

    Args:
      config: as gin prints it.
    """
    packages = {p.metadata["Name"]: p.version for p in importlib.metadata.distributions()}
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        **{f"package {name}": packages[name] for name in sorted(packages, key=str)},
        **{f"gin {name}": value for name, value in _bindings(config).items()},
    }


def _commit() -> str:
    """The commit that is checked out, and whether files were changed since."""
    git = ["git", "-C", str(ROOT)]
    told = lambda *words: subprocess.run([*git, *words], capture_output=True, check=True).stdout
    try:
        changed = told("diff", "HEAD")
        mark = f" with changes {hashlib.sha256(changed).hexdigest()[:8]}" if changed else ""
        return told("rev-parse", "--short=12", "HEAD").decode().strip() + mark
    except (OSError, subprocess.CalledProcessError):
        return "none, the code is no git clone"


def _bindings(config: str) -> dict[str, str]:
    """{'TRAIN_STEPS': '300', …} of gin's own text, in which long lines are broken."""
    lines = config.replace("\\\n", "").splitlines()
    found = (line.partition(" = ") for line in lines if line.strip() and line[0] != "#")
    return {name.strip(): " ".join(value.split()) for name, _, value in found}


def hold(place: Place, mine: Facts, seconds: float) -> None:
    """Returns once all workers are there and their facts are alike.

    Raises:
      RuntimeError: some have not reported within `seconds`; names them.
      ValueError: facts differ; names the first, with all its values.
    """
    if place.count == 1:
        return
    verdict = _listen(place, mine, seconds) if place.index == 0 else _report(place, mine, seconds)
    kind, sentence = verdict
    if kind:
        raise (ValueError if kind == "ValueError" else RuntimeError)(sentence)
    logging.getLogger(__name__).info("All %d workers are there.", place.count)


def _listen(place: Place, mine: Facts, seconds: float) -> tuple[str, str]:
    """Worker 0: gathers the reports, answers them, and returns the same answer."""
    said, end = time.monotonic(), time.monotonic() + seconds
    reports, waiting = {0: mine}, {}
    with _server(place) as server:
        while len(reports) < place.count and (left := end - time.monotonic()) > 0:
            server.settimeout(min(left, 1.0))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                if time.monotonic() - said > _SAY_EVERY:
                    said = time.monotonic()
                    missing = sorted(set(range(place.count)) - set(reports))
                    logging.getLogger(__name__).warning("Waiting for %s.", _workers(missing))
                continue
            index, theirs = _read_report(connection, place.count)
            if theirs is not None:  # a worker that was started again reports again
                reports[index], waiting[index] = theirs, connection
        verdict = _verdict(reports, place.count, seconds)
        for connection in waiting.values():
            _send(connection, verdict)
    return verdict


def _server(place: Place) -> socket.socket:
    port = place.host_and_port[1]
    try:
        return socket.create_server(("", port), backlog=place.count)
    except OSError as error:
        raise RuntimeError(
            f"Port {port} of worker 0 cannot be listened on ({error.strerror}): another run may "
            "still be going on there; end it with bash launch/tpu_stop.sh NAME ZONE."
        ) from error


def _read_report(connection: socket.socket, count: int) -> tuple[int, Facts | None]:
    """The index and the facts that a worker has sent; None of whoever is no worker."""
    connection.settimeout(_SPARE_SECONDS)
    try:
        index, theirs = json.loads(connection.makefile().readline())
        if index in range(1, count):
            return index, dict(theirs)
    except (OSError, ValueError, TypeError):
        pass
    connection.close()
    return -1, None


def _report(place: Place, mine: Facts, seconds: float) -> tuple[str, str]:
    """The other workers: sends the facts as soon as worker 0 listens, returns its answer."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection(place.host_and_port, min(left, 5.0)) as connection:
                connection.settimeout(seconds + _SPARE_SECONDS)
                _send(connection, (place.index, dict(mine)))
                kind, sentence = json.loads(connection.makefile().readline())
                return kind, sentence
        except (OSError, ValueError):  # not there yet, or started again
            time.sleep(min(0.5, max(left, 0)))
    return "RuntimeError", (
        f"Worker 0 of {place.count} has not answered at {place.address} within {seconds:.0f} s; "
        f"{_start_it(0)}"
    )


def _send(connection: socket.socket, content: object) -> None:
    try:
        connection.sendall(json.dumps(content).encode() + b"\n")
    except OSError as error:
        logging.getLogger(__name__).warning("A worker has left before the answer: %s", error)


def _verdict(reports: Mapping[int, Facts], count: int, seconds: float) -> tuple[str, str]:
    """('', '') where all is well, else the kind of error and its sentence."""
    missing = sorted(set(range(count)) - set(reports))
    if missing:
        who = f"{_workers(missing).capitalize()} of {count} ha{'s' if len(missing) == 1 else 've'}"
        return "RuntimeError", (
            f"{who} not started within {seconds:.0f} s; {_start_it(missing[0])}"
        )
    sentence = difference([reports[i] for i in range(count)])
    return ("ValueError", sentence) if sentence else ("", "")


def _start_it(worker: int) -> str:
    return (
        "run the same command there, and look why it ended with "
        f"bash launch/tpu_logs.sh NAME ZONE {worker} (--roll_call_seconds bounds the wait)."
    )


def difference(reports: Sequence[Facts]) -> str | None:
    """Names the first fact in which the workers differ, with its values; None where all agree."""
    names = list(dict.fromkeys(name for report in reports for name in report))
    differing = [n for n in names if len({report.get(n) for report in reports}) > 1]
    if not differing:
        return None
    name, *others = differing
    by_value: dict[str | None, list[int]] = {}
    for index, report in enumerate(reports):
        by_value.setdefault(report.get(name), []).append(index)
    values = [f"{value or 'missing'} on {_workers(who)}" for value, who in by_value.items()]
    more = f" (and {len(others)} more differ)" if others else ""
    return f"{name} is {' and '.join(values)}{more}; {_ADVICE[name.split()[0]]}."


def _workers(indices: Sequence[int]) -> str:
    return f"worker{'s' * (len(indices) > 1)} {', '.join(map(str, indices))}"


def data_facts(corpora: Callable[[], Mapping[str, object]]) -> dict[str, str]:
    """What each task reads on this worker; `corpora` says it, and may fail to read a file."""
    try:
        return {f"data of {name}": json.dumps(about) for name, about in corpora().items()}
    except OSError as error:
        return {"data on the disk": f"unreadable ({error})"}


def agree(topic: str, mine: Facts, seconds: float = 300.0) -> None:
    """Compares more facts, once JAX has started; every worker must come here.

    Raises:
      RuntimeError: a worker does not come within `seconds`; names it.
      ValueError: facts differ; names the first, with all its values.
    """
    import jax
    from jax._src import distributed  # its key-value store has no public name; jax is pinned

    count, client, reports = jax.process_count(), distributed.global_state.client, []
    if count == 1 or client is None:
        return
    key = f"roll_call/{topic}/{jax.process_index()}"
    client.key_value_set(key, json.dumps(dict(mine)), allow_overwrite=True)
    end = time.monotonic() + seconds
    for worker in range(count):
        left = max(int(1000 * (end - time.monotonic())), 1)
        try:
            told = client.blocking_key_value_get(f"roll_call/{topic}/{worker}", left)
        except jax.errors.JaxRuntimeError as error:
            raise RuntimeError(
                f"Worker {worker} of {count} has not told its {topic} within {seconds:.0f} s; "
                f"look why with bash launch/tpu_logs.sh NAME ZONE {worker}."
            ) from error
        reports.append(json.loads(told))
    if sentence := difference(reports):
        raise ValueError(sentence)
