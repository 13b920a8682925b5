"""Say in one sentence which worker of a pod is gone, from what JAX leaves in the log.

JAX ends the other processes in one of two ways: a collective raises, or its coordination service
notices that heartbeats are missing and aborts the process from C++. Only the second names the
worker, so after the first one waits for it: `may_be_loss`, `note`, a wait of some seconds.
"""

import datetime
import re

_LOSS = re.compile(
    r"Gloo|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED|[Cc]oordination|heartbeat|"
    r"Connection (reset|closed|refused)|Socket closed"
)
_NOTE = "Another worker may be gone since"
_TIME = "%Y-%m-%d %H:%M:%S"


def may_be_loss(error: BaseException) -> bool:
    """Return whether an exception of JAX can come from the end of another worker.

    Some calls raise what XLA reports, "UNKNOWN: Gloo …", as a ValueError. A save that waits for the
    others at a barrier has it as the cause of its own error.
    """
    cause = error.__cause__ or error.__context__
    if cause is not None and may_be_loss(cause):
        return True
    kinds, text = {kind.__name__ for kind in type(error).__mro__}, str(error)
    of_jax = {"JaxRuntimeError", "XlaRuntimeError"} & kinds
    return bool((of_jax or re.match("[A-Z_]+: ", text)) and _LOSS.search(text))


def note(now: datetime.datetime) -> str:
    """Return the line of the log from which `sentence` takes when the loss was first seen."""
    return f"{_NOTE} {now.strftime(_TIME)}"


def sentence(
    log: str, now: datetime.datetime, heartbeat_seconds: float, log_of: str | None
) -> str | None:
    """Return what has ended a process, if JAX's coordination service has.

    `log` is the end of this process's log, `now` when it ended. The service takes a worker for dead
    after `heartbeat_seconds`. `log_of` is the path of this worker's log, log_<index>.txt, None if
    it is known by no other.
    """
    _, found, fatal = log.partition("JAX distributed service detected fatal errors")
    if not found:
        return None
    _, silent, listed = fatal.partition("stopped sending heartbeats):")
    listed = listed.partition("The tasks have crashed")[0]
    workers = sorted({int(worker) for worker in re.findall(r"(\d+)(?=[\s,]|$)", listed)})
    since = now
    if silent:
        since -= datetime.timedelta(seconds=heartbeat_seconds)
    elif "Failed to send RPC to coordination service" in fatal:
        workers = [0]  # where the service runs
    if not workers:
        return unnamed(fatal.partition("absl::Status: ")[2] or "no reason is given", log_of)
    seen = re.findall(rf"{_NOTE} (\S+ \S+)", log)
    return _gone(workers, seen[-1] if seen else since.strftime(_TIME), log_of)


def unnamed(reason: str, log_of: str | None) -> str:
    """Return the sentence for a loss whose worker JAX has not named; `reason` is what it says."""
    first = next(iter(reason.strip().splitlines()), "")
    logs = re.sub(r"log_\d+\.txt$", "log_*.txt", log_of or "each worker's log")
    return (
        f"Another worker is gone or cannot be reached ({first}); find out why at the end of {logs} "
        "(bash launch/tpu_status.sh NAME ZONE shows which has ended), then start the same command "
        "on all workers, which resumes from the last checkpoint."
    )


def _gone(workers: list[int], since: str, log_of: str | None) -> str:
    several = len(workers) > 1
    names = ", ".join(map(str, workers))
    logs = [re.sub(r"log_\d+\.txt$", f"log_{worker}.txt", log_of or "") for worker in workers]
    where = f"in {', '.join(logs)} or " if log_of else ""
    return (
        f"Worker{'s' * several} {names} {'are' if several else 'is'} gone since {since}; find out "
        f"why {where}with bash launch/tpu_logs.sh NAME ZONE {workers[0]}, then start the same "
        "command on all workers, which resumes from the last checkpoint."
    )
