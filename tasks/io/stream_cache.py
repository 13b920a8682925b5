"""Bytes of remote files kept on this machine: what was read is there, and what will be read.

    keep("/ssd/stream", gigabytes=50.0)       # from then on `files` reads through the spool

A *piece* is the range of bytes that one read asks for, or a whole file where only that can be read.
Reads of one part of a corpus ask for the same ranges every time, so a piece is found again by its
address and range. Readers fetch pieces ahead (`Runner`) until these fill half of the bound; the
hub may then be away for as long as they last. Beyond the bound the oldest pieces go first.
Several processes may share a folder.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from tasks.io.retry import closing

PIECE_BYTES = 8 << 20  # of a whole file, fetched at once


class Spool:
    """A folder of pieces.

    Args:
      folder: made if it is not there; on a disk of this machine.
      limit: bytes it may hold.

    Raises:
      ValueError: nothing can be written there, or the limit is no positive number.
    """

    def __init__(self, folder: str, limit: int):
        if limit <= 0:
            raise ValueError(f"STREAM_CACHE_GB must be above 0 to bound {folder}: set it to 50")
        self.limit = limit
        self.runners: weakref.WeakSet[Runner] = weakref.WeakSet()
        self._folder = pathlib.Path(folder)
        self._lock = threading.Lock()
        self._busy: dict[pathlib.Path, threading.Lock] = {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            probe = self._folder / f".probe-{uuid.uuid4().hex}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ValueError(
                f"STREAM_CACHE_DIR is {folder}, which cannot be written ({error}): set it to a "
                "folder on a disk of this machine"
            ) from error
        for left in self._folder.glob(".*"):  # by a process that was killed while writing
            if time.time() - left.stat().st_mtime > 3600:
                left.unlink(missing_ok=True)
        self._size = sum(size for _, size, _ in self._pieces())

    def _pieces(self) -> list[tuple[float, int, pathlib.Path]]:
        found = []
        for path in self._folder.glob("*.piece"):
            try:
                stat = path.stat()
            except FileNotFoundError:  # another process has thrown it away
                continue
            found.append((stat.st_mtime, stat.st_size, path))
        return found

    def _path(self, url: str, start: int, stop: int | None) -> pathlib.Path:
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        return self._folder / f"{name}-{start}-{'end' if stop is None else stop}.piece"

    def has(self, url: str, start: int, stop: int | None) -> bool:
        """Says whether bytes `start`..`stop`-1 are here (None: to the end)."""
        return self._path(url, start, stop).exists()

    @contextlib.contextmanager
    def _alone(self, path: pathlib.Path) -> Iterator[None]:
        """Lets one thread at a time see to a piece, so that no two fetch the same."""
        with self._lock:
            lock = self._busy.setdefault(path, threading.Lock())
        with lock:
            yield
        with self._lock:
            self._busy.pop(path, None)

    def read(self, url: str, start: int, stop: int, fetch: Callable[[], bytes]) -> bytes:
        """Returns bytes `start`..`stop`-1: from here, or `fetch`ed and kept."""
        path = self._path(url, start, stop)
        with self._alone(path):
            try:
                data = path.read_bytes()
                if len(data) == stop - start:
                    return data
            except FileNotFoundError:
                pass
            data = fetch()
            temporary = self._folder / f".{uuid.uuid4().hex}"
            try:
                temporary.write_bytes(data)
                self._keep(temporary, path)
            except OSError as error:  # a full disk does not end a run
                temporary.unlink(missing_ok=True)
                logging.warning("STREAM_CACHE_DIR cannot keep a piece (%s)", error)
            return data

    def whole(self, url: str, size: int, fetch: Callable[[int, int], bytes]) -> pathlib.Path:
        """Returns where a copy of a file of `size` bytes lies, having `fetch`ed what was missing.

        What has come stays, so that after a failure, or in the next process, it goes on behind it.
        """
        path = self._path(url, 0, None)
        temporary = path.with_suffix(".part")
        with self._alone(path):
            while not path.exists():
                with open(temporary, "ab") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)  # another process may be at it
                    if not temporary.exists() or path.exists():
                        continue
                    while (at := file.tell()) < size:
                        file.write(fetch(at, min(at + PIECE_BYTES, size)))
                        file.flush()
                    self._keep(temporary, path)
        return path

    def _keep(self, temporary: pathlib.Path, path: pathlib.Path) -> None:
        self._make_room(temporary.stat().st_size)
        os.replace(temporary, path)

    def _make_room(self, size: int) -> None:
        with self._lock:
            self._size += size
            if self._size <= self.limit:
                return
            pieces = sorted(self._pieces())
            self._size = size + sum(piece[1] for piece in pieces)
            for _, bytes_, path in pieces:
                if self._size <= self.limit:
                    return
                path.unlink(missing_ok=True)
                self._size -= bytes_

    def remember(self, what: str, value: Any) -> None:
        """Keeps `value` (of what JSON can hold) under the name `what`."""
        temporary = self._folder / f".{uuid.uuid4().hex}"
        temporary.write_text(json.dumps(value))
        os.replace(temporary, self._note(what))

    def remembered(self, what: str) -> Any | None:
        """Returns what was kept under the name `what`."""
        path = self._note(what)
        return json.loads(path.read_text()) if path.exists() else None

    def _note(self, what: str) -> pathlib.Path:
        return self._folder / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.json"


current: Spool | None = None


def keep(folder: str | None, gigabytes: float = 50.0) -> None:
    """Lets this process read remote files through a spool, or, with None, through none."""
    global current
    current = Spool(folder, int(gigabytes * 1e9)) if folder else None


@dataclasses.dataclass(frozen=True)
class Piece:
    """What a reader will ask for: (epoch, file, part), how many bytes, and how to have them."""

    key: tuple[int, int, int]
    size: int
    fetch: Callable[[], object]


class Runner:
    """Fetches what a reader will ask for, in its order.

    All runners together fetch at most half of the bound ahead of their readers.
    """

    def __init__(self):
        self._moved = threading.Condition()
        self._coming: Iterator[Piece] | None = None
        self._thread: threading.Thread | None = None
        self._fetched: set[tuple] = set()
        if current:
            current.runners.add(self)

    def move(self, coming: Iterator[Piece]) -> None:
        """Says what comes from now on."""
        with self._moved:
            self._coming = coming
            self._moved.notify()
        if self._thread is None:
            # A daemon, since a request that hangs must not keep the process alive.
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not closing.is_set():
            with self._moved:
                while self._coming is None:
                    self._moved.wait()
                coming, self._coming = self._coming, None
            try:
                self._fetch(coming)
            except Exception:  # whoever needs the piece meets the error again, and waits it out
                logging.info("reading ahead failed", exc_info=True)

    def _fetch(self, coming: Iterator[Piece]) -> None:
        budget = current.limit / 2 / max(len(current.runners), 1) if current else 0
        for piece in coming:
            budget -= piece.size
            if budget < 0 or self._coming is not None or closing.is_set():
                return
            if piece.key not in self._fetched:
                piece.fetch()
                self._fetched = {k for k in self._fetched if k[0] == piece.key[0]} | {piece.key}
