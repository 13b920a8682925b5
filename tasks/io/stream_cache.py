"""A size-bounded disk cache of remote byte ranges, with read-ahead.

    enable("/ssd/stream", gigabytes=50.0)     # from then on `files` reads through the cache

An entry is the byte range of one read, or an entire file where only that can be read. Reads of one
part of a corpus always request the same ranges, so an entry is found by its address and range.
Readers fetch entries ahead (`Prefetcher`) until these fill half of the bound; training continues
through an outage for as long as they last. Beyond the bound the oldest entries are deleted.
Several processes may share a folder.
"""

import contextlib
import errno
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
from typing import Any, BinaryIO

from absl import logging

from tasks.io.retry import shutting_down

CHUNK_BYTES = 8 << 20  # fetched at once of an entire file


class StreamCache:
    """A folder of cached byte ranges.

    Args:
      folder: on a local disk; created if it does not exist.
      limit: maximum bytes.

    Raises:
      ValueError: the folder is not writable, or the limit is not positive.
    """

    def __init__(self, folder: str, limit: int):
        if limit <= 0:
            raise ValueError(f"STREAM_CACHE_GB must be above 0 to bound {folder}: set it to 50")
        self.limit = limit
        self.prefetchers: weakref.WeakSet[Prefetcher] = weakref.WeakSet()
        self._folder = pathlib.Path(folder)
        self._lock = threading.Lock()
        self._entry_locks: dict[pathlib.Path, threading.Lock] = {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write_temporary(b"").unlink()
        except OSError as error:
            raise ValueError(
                f"STREAM_CACHE_DIR is {folder}, which is not writable ({error}): set it to a "
                "folder on a local disk"
            ) from error
        for pattern, seconds in ((".*", 3600), ("*.part", 86400)):
            for leftover in self._folder.glob(pattern):  # of a process killed while writing
                with contextlib.suppress(FileNotFoundError):  # deleted by another process
                    if time.time() - leftover.stat().st_mtime > seconds:
                        leftover.unlink()
        self._size = sum(size for _, size, _ in self._entries())

    def _write_temporary(self, data: bytes) -> pathlib.Path:
        path = self._folder / f".{uuid.uuid4().hex}"
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return path

    def _entries(self) -> list[tuple[float, int, pathlib.Path]]:
        found = []
        for path in self._folder.glob("*.piece"):
            with contextlib.suppress(FileNotFoundError):  # deleted by another process
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        return found

    def _path(self, key: str, suffix: str) -> pathlib.Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{suffix}"

    @contextlib.contextmanager
    def _locked(self, path: pathlib.Path) -> Iterator[None]:
        """Admit one thread at a time to an entry, so that it is fetched once."""
        with self._lock:
            lock = self._entry_locks.setdefault(path, threading.Lock())
        with lock:
            yield
        with self._lock:
            self._entry_locks.pop(path, None)

    def read(self, url: str, start: int, stop: int, fetch: Callable[[], bytes]) -> bytes:
        """Return bytes `start`..`stop`-1 from the cache, or from `fetch`, which are then cached."""
        path = self._path(url, f"-{start}-{stop}.piece")
        with self._locked(path):
            with contextlib.suppress(FileNotFoundError):
                data = path.read_bytes()
                if len(data) == stop - start:
                    return data
            data = fetch()
            try:
                self._add(self._write_temporary(data), path)
            except OSError as error:  # a full disk does not stop a run
                logging.warning("STREAM_CACHE_DIR: writing an entry failed (%s)", error)
            return data

    def open_copy(self, url: str, size: int, fetch: Callable[[int, int], bytes]) -> BinaryIO | None:
        """Open a local copy of a file of `size` bytes, `fetch`ing missing bytes.

        A partial copy is kept, so the next attempt or process continues it. Return None if the disk
        is full, which does not stop a run.
        """
        path = self._path(url, "-0-end.piece")
        with self._locked(path):
            while True:
                # Opened before it may be evicted, and used, so that older entries go first.
                with contextlib.suppress(FileNotFoundError):
                    file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
                    os.utime(file.fileno())
                    return file
                try:
                    self._complete(path, size, fetch)
                except OSError as error:
                    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                        raise
                    logging.warning("STREAM_CACHE_DIR: writing an entry failed (%s)", error)
                    return None

    def _complete(self, path: pathlib.Path, size: int, fetch: Callable[[int, int], bytes]) -> None:
        """Write the copy at `path`; it may be gone again, or be another process's."""
        temporary = path.with_suffix(".part")
        with open(temporary, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another process may be writing it
            if path.exists() or not temporary.exists():
                return
            if not os.path.samestat(os.fstat(file.fileno()), temporary.stat()):
                return  # another process completed what was opened here, and a third began again
            file.seek(0, os.SEEK_END)  # the process that held the lock may have written some
            while (at := file.tell()) < size:
                file.write(fetch(at, min(at + CHUNK_BYTES, size)))
                file.flush()
            self._add(temporary, path)

    def _add(self, temporary: pathlib.Path, path: pathlib.Path) -> None:
        self._evict_for(temporary.stat().st_size)
        os.replace(temporary, path)

    def _evict_for(self, size: int) -> None:
        with self._lock:
            self._size += size
            if self._size <= self.limit:
                return
            entries = sorted(self._entries())
            self._size = size + sum(entry[1] for entry in entries)
            for _, bytes_, path in entries:
                if self._size <= self.limit:
                    return
                path.unlink(missing_ok=True)
                self._size -= bytes_

    def save_note(self, name: str, value: Any) -> None:
        """Store a JSON value under a name."""
        os.replace(self._write_temporary(json.dumps(value).encode()), self._path(name, ".json"))

    def load_note(self, name: str) -> Any | None:
        """Return the value stored under a name, or None."""
        path = self._path(name, ".json")
        return json.loads(path.read_text()) if path.exists() else None


current: StreamCache | None = None


def enable(folder: str | None, gigabytes: float = 50.0) -> None:
    """Make this process read remote files through a cache, or, with None, directly."""
    global current
    current = StreamCache(folder, int(gigabytes * 1e9)) if folder else None


# A read to come: (epoch, file, part), its size in bytes, and the function that does it.
Prefetch = tuple[tuple[int, int, int], int, Callable[[], object]]


class Prefetcher:
    """Fetches the next reads of one reader, in order.

    All prefetchers together fetch at most half of the cache's bound ahead of their readers.
    """

    def __init__(self):
        self._changed = threading.Condition()
        self._queue: Iterator[Prefetch] | None = None
        self._thread: threading.Thread | None = None
        self._fetched: set[tuple[int, int, int]] = set()
        if current:
            current.prefetchers.add(self)

    def replace_queue(self, queue: Iterator[Prefetch]) -> None:
        """Replace the reads to prefetch."""
        with self._changed:
            self._queue = queue
            self._changed.notify()
        if self._thread is None:
            # A daemon, since a hanging request must not keep the process alive.
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not shutting_down.is_set():
            with self._changed:
                while self._queue is None:
                    self._changed.wait()
                queue, self._queue = self._queue, None
            try:
                self._fetch(queue)
            except Exception:  # the reader meets the error again, and retries
                logging.info("prefetching failed", exc_info=True)

    def _fetch(self, queue: Iterator[Prefetch]) -> None:
        budget = current.limit / 2 / max(len(current.prefetchers), 1) if current else 0
        for key, size, fetch in queue:
            budget -= size
            if budget < 0 or self._queue is not None or shutting_down.is_set():
                return
            if key not in self._fetched:
                fetch()
                self._fetched = {k for k in self._fetched if k[0] == key[0]} | {key}
