"""The lease of MODEL_DIR.

    with Lease("gs://bucket/run") as lease:
        ...
        lease.check()            # before a save: raises LeaseError once another run has taken over

One run at a time writes there; others learn which run it is.
"""

import contextlib
import datetime
import json
import os
import platform
import threading
import time
import uuid

import jax
import tensorstore as ts
from absl import logging

from common.errors import Failure
from common.small_files import parse_json
from t5x.checkpointing.lazy_array import storage
from t5x.multihost.broadcast import broadcast_from_first

# `lease.json` names the run that holds the lease: the first host of a pod does so for all. It
# counts its renewals there, and deletes the file at its end.
# 1. Each write names the generation that it replaces, which tensorstore compares on a disk under a
#    lock and in a bucket by a precondition: of runs that start at once, one gets the lease.
# 2. Clocks of two machines may differ, so a newcomer compares none: it watches the file, by its own
#    clock. If the file changes, it is refused. If nothing changes there, the holder is dead, and it
#    takes over.

NAME = "lease.json"
RENEW_SECONDS = 10.0
STALE_SECONDS = 30.0
GIVE_UP_SECONDS = 300.0  # limit for a check while the storage does not respond
_POLL_SECONDS = 2.0
_ANSWER_SECONDS = 30.0  # limit for one request
_RELEASE_SECONDS = 5.0  # no end waits for long
_FAILED = (ValueError, TimeoutError)  # errors of tensorstore


class LeaseError(Failure):
    """Another run holds the lease, or it cannot be written."""


class Lease:
    """The lease of `model_dir`, held from `with` to its end.

    On entry it waits if the holder may be gone. With `take_over` it is taken from any holder, which
    then stops before its next save. Raise LeaseError if another run holds it or it cannot be
    written, on the other hosts of a pod a Failure with the same message.
    """

    def __init__(self, model_dir: str, take_over: bool = False):
        now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
        self.model_dir, self._take_over = model_dir, take_over
        self._run, self._renewals = uuid.uuid4().hex, 0
        self._holder = f"process {os.getpid()} on {platform.node()}, since {now}"
        self._store = ts.KvStore.open(storage(model_dir)).result()
        self._generation = b""  # generation of the file when this run last saw it
        self._watched: tuple[bytes, float] | None = None  # a content, and since when
        self._lost = ""  # why
        self._one_at_a_time, self._ended = threading.Lock(), threading.Event()
        self._renewing = threading.Thread(target=self._keep_renewing, daemon=True, name="lease")

    def __enter__(self) -> "Lease":
        # The first host asks again and again, so that no collective of the others waits for long.
        while not broadcast_from_first(self._is_taken):
            time.sleep(_POLL_SECONDS)
        if jax.process_index() == 0:
            self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        if jax.process_index():
            return
        self._ended.set()
        self._renewing.join(_RELEASE_SECONDS)  # a renewal in C++ would abort Python's exit
        if not self._lost and not self._renewing.is_alive():
            with contextlib.suppress(*_FAILED):
                deleting = self._store.write(NAME, None, if_equal=self._generation)
                deleting.result(timeout=_RELEASE_SECONDS)

    def check(self) -> None:
        """Raise LeaseError (on other hosts a Failure) if another run has taken the lease over.

        While the storage does not answer it waits, for `GIVE_UP_SECONDS` at most.
        """
        broadcast_from_first(self._check)

    def is_held(self) -> bool:
        """Return whether no other run has taken over, as far as this host has seen."""
        return not self._lost

    def _is_taken(self) -> bool:
        """Take the lease if it is free; return False as long as that is not known."""
        try:
            content = self._read()
            is_free = not content or self._take_over or self._is_over(content)
            return is_free and self._is_written()  # if not written, another run was faster
        except _FAILED as error:
            reason = (str(error).splitlines() or [""])[0][:200] or "no answer"
            raise LeaseError(
                "MODEL_DIR",
                self.model_dir,
                f"whose {NAME} cannot be written ({reason})",
                "once that is fixed, start the same command again",
            ) from error

    def _is_over(self, content: bytes) -> bool:
        """Return whether a lease is not renewed any more; raise LeaseError if it is."""
        (_, holder), now = _owner(content), time.monotonic()
        watched, since = self._watched = self._watched or (content, now)
        if content != watched:
            raise LeaseError(
                "MODEL_DIR",
                self.model_dir,
                f"which another run uses ({holder}), and two runs would delete each other's "
                "checkpoints",
                "wait for its end or stop it, set another MODEL_DIR, or start with --take_over, "
                "and that run stops before its next save",
            )
        if since == now:
            logging.warning(
                "MODEL_DIR %s was last used by another run (%s). Waiting %.0f s to see whether it "
                "renews its lease; if not, this run starts.",
                *(self.model_dir, holder, STALE_SECONDS),
            )
        return now - since >= STALE_SECONDS

    def _keep_renewing(self) -> None:
        while not self._ended.wait(RENEW_SECONDS) and not self._lost:
            self._is_renewed()

    def _check(self) -> None:
        end = time.monotonic() + GIVE_UP_SECONDS
        while not self._is_renewed():
            if time.monotonic() > end:
                self._lost = "it has not answered for long, so another run may use it"
            if self._lost:
                raise LeaseError(
                    "MODEL_DIR",
                    self.model_dir,
                    f"to which this run writes no more: {self._lost}",
                    "to train beside another run, set another MODEL_DIR",
                )
            time.sleep(_POLL_SECONDS)

    def _is_renewed(self) -> bool:
        """Renew the lease; return whether the storage says that this run holds it."""
        with self._one_at_a_time, contextlib.suppress(*_FAILED):  # the storage may respond later
            with contextlib.suppress(*_FAILED):  # a full disk can still be read
                if not self._lost and self._is_written():
                    return True
            content = self._read()  # this run's, if an earlier write has come late
            run, holder = _owner(content)
            if run != self._run:
                taken = f"{holder} has taken it over"
                self._lost = taken if content else f"its {NAME} was deleted"
            return not self._lost
        return False

    def _read(self) -> bytes:
        """Return the content, b"" without a lease, and remember its generation."""
        answer = self._store.read(NAME).result(timeout=_ANSWER_SECONDS)
        self._generation = answer.stamp.generation
        return answer.value

    def _is_written(self) -> bool:
        """Write the lease, unless its generation is another than this run has seen."""
        self._renewals += 1
        lease = {"run": self._run, "holder": self._holder, "renewals": self._renewals}
        writing = self._store.write(NAME, json.dumps(lease), if_equal=self._generation)
        written = writing.result(timeout=_ANSWER_SECONDS).generation
        self._generation = written or self._generation
        return bool(written)


def _owner(content: bytes) -> tuple[str, str]:
    """Return the run and the holder of a lease; of a damaged one they are unknown."""
    with contextlib.suppress(ValueError):
        match parse_json(content):
            case {"run": str(run), "holder": str(holder)} if run.isalnum() and holder.isprintable():
                return run, holder
    return "", "an unknown run"
