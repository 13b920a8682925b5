"""The lease of MODEL_DIR: one run at a time writes there, and others learn which.

    with held("gs://bucket/run", take_over=False) as lease:
        ...
        lease.check()        # before a save: raises LostLease once another run has taken over

The lease is `lease.json` in MODEL_DIR: {"run", "host", "machine", "process", "started", "since",
"renewed"}. The first host of a pod holds it for all, renews it in the background, and deletes it at
the end of the run.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import threading
import time
import uuid
from collections.abc import Iterator

import jax
import tensorstore as ts
from absl import logging

from t5x.checkpointing.lazy_array import storage
from t5x.multihost.broadcast import broadcast_from_first

# Two runs that started at once must not both get it. So each write names the generation that it
# replaces, which tensorstore compares on a disk under a lock and in a bucket by a precondition.
# Clocks of two machines may differ, so a lease of another machine is stale once it was not renewed
# while this host watched; only one that is very old is stale at once. On the same machine the
# process that holds it is looked up instead.

NAME = "lease.json"
RENEW_SECONDS = 10.0
STALE_SECONDS = 60.0
_VERY_OLD_SECONDS = 600.0
_POLL_SECONDS = 2.0
_ANSWER_SECONDS = 30.0  # for one request to a bucket that refuses or does not answer
_RELEASE_SECONDS = 5.0  # no end waits for long
_held_here: set[str] = set()  # the runs that hold a lease in this process


class LeaseError(RuntimeError):
    """Another run holds the lease, or it cannot be written."""


class LostLease(RuntimeError):
    """Another run has taken over the lease that this one held."""


@dataclasses.dataclass(frozen=True)
class Owner:
    """Who holds a lease."""

    run: str  # its identity
    host: str  # name of the host
    machine: str  # the boot of the kernel and the process namespace in which `process` counts
    process: int  # its number
    started: str  # by the kernel, in its own unit; a later process of that number differs
    since: float  # when it took the lease, in seconds since 1970 of its clock
    renewed: float  # when it last renewed it

    def __str__(self):
        ago = max(0.0, time.time() - self.renewed)
        since = datetime.datetime.fromtimestamp(self.since, datetime.UTC)
        return (
            f"process {self.process} on {self.host}, since {since:%Y-%m-%d %H:%M:%S} UTC, renewed "
            f"{ago:.0f} s ago"
        )


class Lease:
    """The lease of one MODEL_DIR for one run; see the module docstring."""

    def __init__(self, model_dir: str):
        self.model_dir, now = model_dir, time.time()
        self._me = Owner(
            run=uuid.uuid4().hex,
            host=platform.node(),
            machine=_machine(),
            process=os.getpid(),
            started=_started(os.getpid()) or "",
            since=now,
            renewed=now,
        )
        self._generation = b""  # of the file as this run wrote it
        self._watched: tuple[bytes, float] | None = None  # a generation, and since when
        self._lost: str | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()

    def acquire(self, take_over: bool = False) -> None:
        """Take the lease, after a wait if its holder on another host may be gone.

        With `take_over` also if another run holds it, which then stops before its next save. Raise
        LeaseError if another run holds it, or it cannot be written; on the other hosts of a pod a
        RuntimeError with the same message.
        """
        # The first host asks again and again, so that no collective of the others waits for long.
        while waiting := broadcast_from_first(lambda: self._attempt(take_over)):
            if jax.process_index() == 0 and waiting != "still":
                logging.warning("%s", waiting)
            time.sleep(_POLL_SECONDS)
        if jax.process_index() == 0:
            _held_here.add(self._me.run)
            self._renewing = threading.Thread(target=self._keep_renewing, daemon=True, name="lease")
            self._renewing.start()

    def check(self) -> None:
        """Raise LostLease, on all hosts a RuntimeError, if another run has taken over."""
        broadcast_from_first(self._check)

    def is_held(self) -> bool:
        """Return whether no other run has taken over, as far as is known; asks no other host."""
        return self._lost is None

    def release(self) -> None:
        """Give the lease back, unless another run has taken over."""
        self._ended.set()
        if self._me.run not in _held_here:
            return
        _held_here.discard(self._me.run)
        self._renewing.join(_RELEASE_SECONDS)  # a thread in C++ at the exit of Python aborts it
        if not self._lock.acquire(timeout=_RELEASE_SECONDS):  # a renewal hangs
            return
        with contextlib.suppress(ValueError, TimeoutError):
            if self._lost is None:
                self._write(None, self._generation, _RELEASE_SECONDS)

    def _attempt(self, take_over: bool) -> str | None:
        """Take the lease if it is free; return what is waited for if that is not known yet.

        That is None if it is taken, the message for the user, and after that "still".
        """
        first = self._watched is None
        try:
            owner, generation = self._read()
            if owner and not take_over and not self._is_over(owner, generation):
                return "still" if not first else self._waiting(owner)
            self._me = dataclasses.replace(self._me, since=time.time(), renewed=time.time())
            written = self._write(self._me, generation)
        except (ValueError, TimeoutError) as error:
            reason = (str(error).splitlines() or [""])[0][:200] or "no answer"
            raise LeaseError(
                f"MODEL_DIR is {self.model_dir}, whose {NAME} cannot be written ({reason}); once "
                "that is fixed, start the same command again."
            ) from error
        if not written:
            return "still"  # another run was faster, and is looked at in the next attempt
        if owner:
            logging.warning("Taking %s over from %s.", self.model_dir, owner)
        self._generation = written
        return None

    def _is_over(self, owner: Owner, generation: bytes) -> bool:
        """Return whether an owner is gone, False if that is not known yet; raise if it is there."""
        if owner.machine == self._me.machine:
            mine = owner.process == os.getpid()
            if mine and owner.run not in _held_here:
                return True  # of a run of this process that was not ended in order
            if owner.started != _started(owner.process):
                return True
            raise self._refused(owner)
        if time.time() - owner.renewed > _VERY_OLD_SECONDS:
            return True
        if self._watched is None:
            self._watched = generation, time.monotonic()
        watched, since = self._watched
        if watched != generation:
            raise self._refused(owner)
        return time.monotonic() - since >= STALE_SECONDS

    def _refused(self, owner: Owner) -> LeaseError:
        return LeaseError(
            f"MODEL_DIR {self.model_dir} is used by another run ({owner}), and two runs would "
            "delete each other's checkpoints; wait for its end or stop it, set another MODEL_DIR, "
            "or start with --take_over, and that run stops before its next save."
        )

    def _waiting(self, owner: Owner) -> str:
        return (
            f"MODEL_DIR {self.model_dir} was last used by a run on another machine ({owner}). "
            f"Waiting {STALE_SECONDS:.0f} s to see whether it is renewed; if not, this run starts."
        )

    def _check(self) -> None:
        self._renew()
        if self._lost:
            raise LostLease(self._lost)

    def _keep_renewing(self) -> None:
        while not self._ended.wait(RENEW_SECONDS) and self.is_held():
            self._renew()

    def _renew(self) -> None:
        """Write the time; find out here whether another run has taken over."""
        with self._lock:
            if self._ended.is_set() or self._lost:
                return
            now = dataclasses.replace(self._me, renewed=time.time())
            try:
                written = self._write(now, self._generation)
                if not written:
                    owner, generation = self._read()
                    unwatched = now.renewed - self._me.renewed > STALE_SECONDS
                    if unwatched if owner is None else owner.run != now.run:
                        self._lost = self._taken(owner)
                        return
                    written = self._write(now, generation)  # a retry was late, or it was deleted
            except (ValueError, TimeoutError) as error:  # what cannot be reached can pass
                logging.info("The lease of %s was not renewed: %s", self.model_dir, error)
                return
            if written:
                self._me, self._generation = now, written

    def _taken(self, owner: Owner | None) -> str:
        by = owner or "a run that has ended since"
        return (
            f"MODEL_DIR {self.model_dir} was taken over by another run ({by}), so this one writes "
            "no more checkpoints; set another MODEL_DIR to train both."
        )

    def _read(self) -> tuple[Owner | None, bytes]:
        """Return the owner, None without a lease or for one that no run has written."""
        found = self._store().read(NAME).result(timeout=_ANSWER_SECONDS)
        try:
            return Owner(**json.loads(found.value)), found.stamp.generation
        except (ValueError, TypeError):
            return None, found.stamp.generation

    def _write(
        self, owner: Owner | None, generation: bytes, seconds: float = _ANSWER_SECONDS
    ) -> bytes | None:
        """Replace the file of that generation, with None by nothing; return None if it changed."""
        value = json.dumps(dataclasses.asdict(owner)).encode() if owner else None
        writing = self._store().write(NAME, value, if_equal=generation)
        return writing.result(timeout=seconds).generation or None

    def _store(self) -> ts.KvStore:
        return ts.KvStore.open(storage(self.model_dir)).result(timeout=_ANSWER_SECONDS)


@contextlib.contextmanager
def held(model_dir: str, take_over: bool = False) -> Iterator[Lease]:
    """Yield the lease of `model_dir`, and release it at the end; raises as `Lease.acquire`."""
    lease = Lease(model_dir)
    lease.acquire(take_over)
    try:
        yield lease
    finally:
        lease.release()


def _machine() -> str:
    """Return what only processes that can see each other's numbers have in common."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return f"{platform.node()} {uuid.getnode()}"


def _started(process: int) -> str | None:
    """Return when a process of this machine started, None if there is none, "" if unknown."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]  # ended, and its parent has not looked
    except OSError:
        pass
    if os.path.exists("/proc/self/stat"):
        return None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return ""
