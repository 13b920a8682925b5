"""Trials of an experiment: each is run once, also by several machines that share a folder.

    class Trial(NamedTuple):
        text: str
        seed: int

    pending = lambda results: [trial for trial in trials if trial not in results]
    results = run_all(Trial, pending, run, clean, work, work / "results.jsonl")

`run` returns what a trial measures, which becomes a line of the results, and `clean` then removes
what it has left. The machine that creates WORK/claims/TRIAL runs the trial, and the others take the
next one. A worker that fails or ends gives its claim back; one that is killed with -9 leaves it,
see `run_all`.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T", bound=NamedTuple)
Result = dict[str, Any]
POLL_S = 60.0  # between two looks at what other workers have finished


def name_of(trial: tuple) -> str:
    """Return the name of a trial's folder and claim."""
    return re.sub(r"[^\w.]+", "_", "_".join(map(str, trial)))


def read(path: pathlib.Path, kind: type[T]) -> dict[T, Result]:
    """Return the results by trial, without a line that is not yet written, or was cut short."""
    results = {}
    for text in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            line = json.loads(text)
            results[kind(*(line[name] for name in kind._fields))] = line
    return results


def run_claimed(
    trial: T,
    run: Callable[[T], Result],
    clean: Callable[[T], None],
    work: pathlib.Path,
    path: pathlib.Path,
) -> bool:
    """Run a trial and add its line to the results; return False if another worker has it."""
    claim = work / "claims" / name_of(trial)
    owner = f"{socket.gethostname()} {os.getpid()} {time.ctime()}\n"
    try:
        with claim.open("x") as file:
            file.write(owner)
    except FileExistsError:
        return False
    try:
        if trial not in read(path, type(trial)):  # it may have finished before it was claimed
            line = json.dumps(trial._asdict() | run(trial)) + "\n"
            is_whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
            with path.open("a") as file:
                file.write(line if is_whole else f"\n{line}")
        clean(trial)
    finally:
        with contextlib.suppress(FileNotFoundError):  # it was released meanwhile
            if claim.read_text() == owner:  # and else another worker's since then
                claim.unlink()
    return True


def run_all(
    kind: type[T],
    pending: Callable[[Mapping[T, Result]], Sequence[T]],
    run: Callable[[T], Result],
    clean: Callable[[T], None],
    work: pathlib.Path,
    path: pathlib.Path,
    ended: str | None = None,
) -> dict[T, Result]:
    """Run trials until none is `pending`, which is asked again after each; return all results.

    `ended` is a machine whose workers have ended: its claims are taken away.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # gives the claim back
    (work / "claims").mkdir(parents=True, exist_ok=True)
    for claim in (work / "claims").iterdir() if ended else ():
        with contextlib.suppress(FileNotFoundError):  # another worker has ended its trial
            if claim.read_text().split()[:1] == [ended]:
                claim.unlink()
    while trials := pending(results := read(path, kind)):
        if not any(run_claimed(trial, run, clean, work, path) for trial in trials):
            time.sleep(POLL_S)
    return results
