"""The lease of MODEL_DIR: one run at a time writes there, and others learn which.

with Lease("gs://bucket/run") as lease:
    ...
    lease.check()            # before a save: raises LeaseError once another run has taken over
"""

import contextlib
import datetime
import json
import os
import pathlib
import platform
import threading
import time
import uuid

import jax
import tensorstore as ts
from absl import logging

from t5x.checkpointing.lazy_array import storage
from t5x.multihost.broadcast import broadcast_from_first

# `lease.json` names the run that holds the lease: the first host of a pod does so for all. It
# counts its renewals there, and deletes the file at its end. Each write names the generation that
# it replaces, which tensorstore compares on a disk under a lock and in a bucket by a precondition:
# of runs that start at once, one gets the lease. Clocks of two machines may differ, so a newcomer
# compares none: it watches the file, by its own clock, and takes over if nothing changes there.
# Only of this machine's processes it knows at once which are dead.

NAME = "lease.json"
RENEW_SECONDS = 10.0
STALE_SECONDS = 60.0
GIVE_UP_SECONDS = 300.0  # for a check while the storage does not answer
_POLL_SECONDS = 2.0
_ANSWER_SECONDS = 30.0  # for one request
_RELEASE_SECONDS = 5.0  # no end waits for long
_FAILED = (ValueError, TimeoutError)  # of tensorstore


class LeaseError(RuntimeError):
    """Another run holds the lease, or it cannot be written."""


class Lease:
    """The lease of `model_dir`, held from `with` to its end.

    On entry it waits if the holder may be gone. With `take_over` it is taken from any holder, which
    then stops before its next save. Raise LeaseError if another run holds it or it cannot be
    written, on the other hosts of a pod a RuntimeError with the same message.
    """

    def __init__(self, model_dir: str, take_over: bool = False):
        self.model_dir, self._take_over = model_dir, take_over
        now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
        self._run = uuid.uuid4().hex
        self._holder = f"process {os.getpid()} on {platform.node()}, since {now}"
        self._process = _process(os.getpid())
        self._store = ts.KvStore.open(storage(model_dir)).result()
        self._generation = b""  # of the file as this run has seen it last
        self._renewals = 0
        self._watched: tuple[bytes, float] | None = None  # a content, and since when
        self._lost = ""  # why
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._renewing = threading.Thread(target=self._keep_renewing, daemon=True, name="lease")

    def __enter__(self) -> "Lease":
        # The first host asks again and again, so that no collective of the others waits for long.
        while not broadcast_from_first(self._attempt):
            time.sleep(_POLL_SECONDS)
        if jax.process_index() == 0:
            self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._renewing.is_alive():  # on the first host
            self._renewing.join(_RELEASE_SECONDS)  # in C++ it would abort Python's exit
        if self._generation and not self._lost and not self._renewing.is_alive():
            with contextlib.suppress(*_FAILED):
                deleting = self._store.write(NAME, None, if_equal=self._generation)
                deleting.result(timeout=_RELEASE_SECONDS)

    def check(self) -> None:
        """Raise LeaseError, on the other hosts a RuntimeError, if another run has taken over.

        While the storage does not answer it waits, for `GIVE_UP_SECONDS` at most.
        """
        broadcast_from_first(self._check)

    def is_held(self) -> bool:
        """Return whether no other run has taken over, as far as is known; asks no other host."""
        return not self._lost

    def _attempt(self) -> bool:
        """Take the lease if it is free; return False as long as that is not known."""
        try:
            content, self._generation = self._read()
            if content and not self._take_over and not self._is_over(content):
                return False
            return self._is_written()  # if not, another run was faster
        except _FAILED as error:
            reason = (str(error).splitlines() or [""])[0][:200] or "no answer"
            raise LeaseError(
                f"MODEL_DIR is {self.model_dir}, whose {NAME} cannot be written ({reason}); once "
                "that is fixed, start the same command again."
            ) from error

    def _is_over(self, content: bytes) -> bool:
        """Return whether the run of a lease is gone; raise LeaseError if it is there."""
        _, holder, process = _owner(content)
        is_here = process[:1] == self._process[:1] != [] and process != self._process
        if is_here and _process(process[1]) != process:
            return True
        now = time.monotonic()
        watched, since = self._watched = self._watched or (content, now)
        if is_here or content != watched:
            raise LeaseError(
                f"MODEL_DIR {self.model_dir} is used by another run ({holder}), and two runs would "
                "delete each other's checkpoints; wait for its end or stop it, set another "
                "MODEL_DIR, or start with --take_over, and that run stops before its next save."
            )
        if since == now:
            logging.warning(
                "MODEL_DIR %s was last used by another run (%s). Waiting %.0f s to see whether it "
                "renews its lease; if not, this run starts.",
                *(self.model_dir, holder, STALE_SECONDS),
            )
        return now - since >= STALE_SECONDS

    def _check(self) -> None:
        end = time.monotonic() + GIVE_UP_SECONDS
        while not self._is_renewed():
            if time.monotonic() > end:
                self._lost = "it has not answered for long, so another run may use it"
            if self._lost:
                raise LeaseError(
                    f"This run writes no more to MODEL_DIR {self.model_dir}: {self._lost}; to "
                    "train beside another run, set another MODEL_DIR."
                )
            time.sleep(_POLL_SECONDS)

    def _keep_renewing(self) -> None:
        while not self._ended.wait(RENEW_SECONDS) and not self._lost:
            self._is_renewed()

    def _is_renewed(self) -> bool:
        """Renew the lease; return whether the storage says that this run holds it."""
        with self._lock, contextlib.suppress(*_FAILED):  # what does not answer may do so later
            with contextlib.suppress(*_FAILED):  # a full disk can still be read
                if not self._lost and self._is_written():
                    return True
            content, self._generation = self._read()  # an earlier write may have come late
            run, holder, _ = _owner(content)
            if run != self._run:
                by = f"{holder} has taken it over"
                self._lost = by if content else f"its {NAME} was deleted"
            return not self._lost
        return False

    def _read(self) -> tuple[bytes, bytes]:
        """Return the content, b"" without a lease, and its generation."""
        found = self._store.read(NAME).result(timeout=_ANSWER_SECONDS)
        return found.value, found.stamp.generation

    def _is_written(self) -> bool:
        """Write the lease, unless its generation is another than this run has seen."""
        self._renewals += 1
        lease = {"run": self._run, "holder": self._holder, "process": self._process}
        value = json.dumps(lease | {"renewals": self._renewals})
        writing = self._store.write(NAME, value, if_equal=self._generation)
        written = writing.result(timeout=_ANSWER_SECONDS).generation
        self._generation = written or self._generation
        return bool(written)


def _owner(content: bytes) -> tuple[str, str, list[str]]:
    """Return the run, the holder and the process of a lease; of a damaged one they are unknown."""
    with contextlib.suppress(ValueError, RecursionError):
        match json.loads(content):
            case {
                "run": str(run),
                "holder": str(holder),
                "process": [] | [str(), str(), str()] as process,
            } if holder.isprintable():
                return run, holder, process
    return "", "an unknown run", []


def _process(number: int | str) -> list[str]:
    """Return this machine and user, the number of a process there, and when it started.

    [] for a process that has ended, and where that is not known. The machine is a boot of a kernel
    and a space of process numbers; another user's processes may be hidden.
    """
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine = f"{boot} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
        fields = pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):  # not Linux, or no such process
        return []
    return [] if fields[0] in "ZX" else [machine, str(number), fields[19]]
