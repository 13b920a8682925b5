"""Call the roll before several hosts train together: all have started, and run the same thing.

  wait_for_all(Worker("10.0.0.2:8482", count=4, index=1), facts(gin.config_str()), seconds=300)
  jax.distributed.initialize()
  ...
  assert_same(data_facts(stream.corpora.identities))   # facts that are only known later

Facts are a dict of strings, such as {"commit": "3d166c2", "package jax": "0.10.2"}.
"""

import contextlib
import hashlib
import http.client
import http.server
import importlib.metadata
import json
import logging
import platform
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from common.errors import ROOT, CommandError, Failure, UserError
from t5x.multihost.broadcast import gather
from t5x.multihost.worker import Worker

# jax.distributed.initialize waits for all workers, then aborts without naming the missing ones. So
# before it starts its coordinator, worker 0 listens on the coordinator's port, which a firewall
# must let through anyway. The others POST their facts there, as JSON to the path /INDEX. Once all
# have reported, or the time is over, all get the same verdict: a status of HTTP, and the fields of
# an error. What is no report is ignored.

Facts = Mapping[str, str]
_ALL_WELL = 200
_STATUS: dict[type[CommandError], int] = {Failure: 408, UserError: 409}  # of the other verdicts
_SPARE_SECONDS = 20.0  # for an answer on its way
_CONNECTION_SECONDS = 5.0  # for a connection, and for each part of a report
_LOG_SECONDS = 30.0


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
    git = lambda *words: subprocess.check_output(
        ["git", "-C", ROOT, *words], stderr=subprocess.DEVNULL
    )
    try:
        changes = git("diff", "HEAD")
        mark = f" with changes {hashlib.sha256(changes).hexdigest()[:8]}" if changes else ""
        return git("rev-parse", "--short=12", "HEAD").decode().strip() + mark
    except (OSError, subprocess.CalledProcessError):
        return "none, the code is not a git clone"


def wait_for_all(worker: Worker, mine: Facts, seconds: float) -> None:
    """Return once all workers have started with the same facts.

    Raise Failure with those that have not reported within `seconds`, UserError with the first fact
    that differs and all its values.
    """
    if worker.count == 1:
        return
    error = (_report if worker.index else _collect)(worker, mine, seconds)
    if error:
        raise error
    logging.getLogger(__name__).info("All %d workers have started.", worker.count)


class _Server(socketserver.ThreadingTCPServer):
    """Serves each connection in a thread, and waits for all of them when it is closed."""

    allow_reuse_address, request_queue_size, timeout = True, 2**10, 0.1

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore what is no report, and a worker that has left."""


def _collect(worker: Worker, mine: Facts, seconds: float) -> CommandError | None:
    """On worker 0: collect the reports for at most `seconds`, and give all the same verdict."""
    reports, is_known = {0: dict(mine)}, threading.Event()
    error: CommandError | None = None

    class Report(http.server.BaseHTTPRequestHandler):
        timeout = _CONNECTION_SECONDS

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            theirs = {str(name): str(value) for name, value in content.items()}
            if (index := int(self.path.removeprefix("/"))) in range(1, worker.count):
                reports[index] = theirs
                is_known.wait()
                self.send_response(_STATUS[type(error)] if error else _ALL_WELL)
                self.end_headers()
                self.wfile.write(json.dumps(error.as_fields if error else {}).encode())

        def log_message(self, *_: object) -> None:
            pass

    host, port = worker.host_and_port
    try:
        server = _Server((host if host in ("localhost", "127.0.0.1") else "", port), Report)
    except OSError as refused:
        raise Failure(
            why=f"Worker 0 cannot listen on port {port} ({refused.strerror}): another run may "
            "still be active there",
            to_set="end it with python3 launch/tpu.py stop NAME ZONE",
        ) from refused
    end, log_at = time.monotonic() + seconds, time.monotonic() + _LOG_SECONDS
    with server:
        while (missing := {*range(worker.count)} - {*reports}) and time.monotonic() < end:
            server.handle_request()
            if time.monotonic() > log_at:
                logging.getLogger(__name__).warning("Waiting for %s.", _names(missing))
                log_at += _LOG_SECONDS
        if missing:
            error = _absent(missing, worker, seconds)
        else:
            error = difference([reports[index] for index in range(worker.count)])
        is_known.set()
    return error


def _report(worker: Worker, mine: Facts, seconds: float) -> CommandError | None:
    """On the other workers: report as soon as worker 0 listens, and return its verdict."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection = http.client.HTTPConnection(*worker.host_and_port, _CONNECTION_SECONDS)
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            connection.connect()
            connection.sock.settimeout(seconds + _SPARE_SECONDS)
            connection.request("POST", f"/{worker.index}", json.dumps(dict(mine)))
            answer = connection.getresponse()
            if answer.status == _ALL_WELL:
                return None
            for kind, status in _STATUS.items():
                if answer.status == status:
                    fields = json.loads(answer.read())
                    return kind(**{name: _shown(text) for name, text in fields.items()})
        time.sleep(0.5)
    return _absent([0], worker, seconds)


def _absent(workers: Collection[int], worker: Worker, seconds: float) -> Failure:
    """Return the error that names workers which have not started."""
    verb = "has" if len(workers) == 1 else "have"
    return Failure(
        why=f"{_names(workers).capitalize()} of {worker.count} {verb} not started within "
        f"{seconds:.0f} s (all meet at {worker.address})",
        to_set="run the same command there, or find out why it ended with python3 launch/tpu.py "
        f"logs NAME ZONE {min(workers)}; if it waits there for the others, let the firewall of the "
        f"workers pass port {worker.host_and_port[1]} (--roll_call_seconds bounds the wait)",
    )


def difference(reports: Sequence[Facts]) -> UserError | None:
    """Return the error that tells the first fact in which the workers differ; None for none."""
    names = dict.fromkeys(name for report in reports for name in report)
    differing = [n for n in names if len({report.get(n) for report in reports}) > 1]
    if not differing:
        return None
    name, *others = differing
    workers: dict[str, list[int]] = {}  # by value
    for index, report in enumerate(reports):
        workers.setdefault(report.get(name, "missing"), []).append(index)
    values = " and ".join(
        f"{_shown(value)} on {_names(indices)}" for value, indices in workers.items()
    )
    more = f" (and {len(others)} more differ)" if others else ""
    return UserError(
        _shown(name),
        why=f"is {values}{more}",
        to_set="give all of them the same code and packages (python3 launch/tpu.py setup NAME "
        "ZONE), flags and data",
    )


def _shown(text: str) -> str:
    """Return a line that a terminal may show of another worker's text."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:2000])


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

    Raise UserError with the first fact that differs and all its values.
    """
    if error := difference(gather(dict(mine))):
        raise error
