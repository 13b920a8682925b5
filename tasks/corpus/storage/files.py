"""One file of a corpus, opened where it lies: on a disk, a web server, in a bucket, on the hub.

    file = CorpusFile("https://example.org/ro.jsonl.zst", "jsonl", "zst")
    read_range(file, 0, 1000)               # bytes 0..999
    with open_stream(file) as stream: ...   # decompressed

A file that changes after it was listed, or that is cut short, is an error. Nothing here retries:
callers use `tasks.corpus.storage.retry`.
"""

import contextlib
import dataclasses
import functools
import io
import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, cast

import fsspec
import fsspec.core
from fsspec.spec import AbstractBufferedFile

from common.errors import UserError, missing
from common.secrets import public
from tasks.corpus.storage import decompress, http_files, signatures
from tasks.corpus.storage.http_files import Facts

PARALLEL = "parallel"  # the kind of several text files that are read line by line together
_REQUEST_BYTES = 8 << 20  # of a stream from a bucket or the hub


@dataclasses.dataclass(frozen=True)
class CorpusFile:
    """One file: its address, its kind (see `names.KINDS`), its compression or ''.

    If a listing has reported them: `length`, its size in bytes; `version`, which changes if the
    file does (of a local file its size and time of modification, of a bucket the generation, over
    http ETag or Last-Modified); `digest`, a checksum of its contents.
    `sides`: the text files that it joins line by line, which then have all of these themselves.
    `members`: of a tar archive, a pattern of the names that are data; '' finds them.

    As a string it is its address without what is secret.
    """

    url: str
    kind: str
    compression: str = ""
    length: int | None = dataclasses.field(default=None, compare=False)
    version: str | None = None
    digest: str | None = dataclasses.field(default=None, compare=False)
    members: str = ""
    sides: tuple["CorpusFile", ...] = ()

    def __str__(self) -> str:
        return public(self.url)

    @property
    def remote(self) -> bool:
        """Whether reading it crosses the network."""
        return "://" in self.url

    @property
    def on_web(self) -> bool:
        """Whether a web server sends it."""
        return self.url.startswith(("http://", "https://"))

    @property
    def stored(self) -> tuple["CorpusFile", ...]:
        """The files as they are stored: the sides, or the file itself."""
        return self.sides or (self,)


@functools.cache
def client_of(protocol: str) -> Any:
    """Return the client of all buckets of a protocol, or of the hub."""
    try:
        return fsspec.filesystem(protocol)
    except ImportError as error:
        why = missing("s3fs") if protocol == "s3" else f"{error} in this environment"
        raise UserError(f"{protocol}://", why=f"cannot be read: {why}") from error


def filesystem(url: str) -> tuple[Any, str]:
    """Return the client of a bucket or the hub, and the path in it that `url` names."""
    return client_of(url.split("://", 1)[0]), fsspec.core.strip_protocol(url)


def disk_facts(path: str) -> dict[str, Any]:
    """Return a local file's size and version, as fields of a CorpusFile."""
    stat = os.stat(path)
    return {"length": stat.st_size, "version": f"{stat.st_size} bytes of {stat.st_mtime_ns}"}


def facts(file: CorpusFile) -> Facts:
    """Return the facts of a stored file; request them from its server or bucket at most once."""
    if file.on_web:
        reported = http_files.probe(file.url)
        length = reported.length if file.length is None else file.length
        return dataclasses.replace(
            reported, length=length, version=file.version or reported.version
        )
    if file.length is not None:
        return Facts(file.length, file.version)
    if not file.remote:
        return Facts(**disk_facts(file.url))
    fs, path = filesystem(file.url)
    return Facts(fs.info(path).get("size"), None)


def size(file: CorpusFile) -> int | None:
    """Return the size of `file` in bytes, or None if its server does not report it."""
    sizes = [facts(part).length if part.length is None else part.length for part in file.stored]
    return None if None in sizes else sum(n or 0 for n in sizes)


def known_size(file: CorpusFile) -> int:
    """Return the size of a file that is read by byte ranges, which every such server reports."""
    if (length := size(file)) is None:
        raise UserError(
            str(file), why="is stored without its size", to_set="copy it to a disk or bucket"
        )
    return length


def has_ranges(file: CorpusFile) -> bool:
    """Return whether byte ranges of `file` can be read."""
    return facts(file).has_ranges if file.on_web else True


def read_range(file: CorpusFile, start: int, stop: int) -> bytes:
    """Return bytes `start`..`stop`-1 of `file`, fetching only these.

    Raises:
      ConnectionError: fewer bytes arrived over the network, or others.
      UserError: the file has changed since it was listed, or is shorter.
    """
    if start >= stop:
        return b""
    if not file.remote:
        with _open_local(file) as f:
            f.seek(start)
            data = f.read(stop - start)
    elif file.on_web:
        data = http_files.read_range(file.url, start, stop, facts(file))
    else:
        fs, path = filesystem(file.url)
        # The hub's files would read ahead, beyond the range.
        exact = {"cache_type": "none"} if file.url.startswith("hf://") else {}
        with _pinned(file) as pin:
            data = fs.cat_file(path, start=start, end=stop, **exact, **pin)
    if len(data) != stop - start:
        why = f": {len(data)} bytes arrived of {stop - start}"
        if file.remote:
            raise ConnectionError(f"{file}{why}")
        raise UserError(str(file), why=why)  # a retry reads no more
    return data


def open_random(file: CorpusFile, ranges: Iterable[tuple[int, int]] = ()) -> BinaryIO:
    """Open `file` for random access without read-ahead; of a remote file, fetch `ranges` now."""
    if not file.remote:
        return _open_local(file)
    if has_ranges(file):
        return cast(BinaryIO, _RangedFile(file, ranges))
    with open_stream(file) as stream:
        return io.BytesIO(stream.read())


class _RangedFile(AbstractBufferedFile):
    """A remote file in which every read is one request, for exactly the requested bytes.

    `ranges`: (start, stop) of bytes to fetch at once, by one request each.
    """

    def __init__(self, file: CorpusFile, ranges: Iterable[tuple[int, int]] = ()):
        self._file = file
        self._fetched = [(a, b, read_range(file, a, b)) for a, b in ranges]
        super().__init__(None, file.url, cache_type="none", size=size(file))

    def _fetch_range(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        for a, b, data in self._fetched:
            if a <= start and end <= b:
                return data[start - a : end - a]
        return read_range(self._file, start, end)


@contextlib.contextmanager
def open_stream(file: CorpusFile) -> Iterator[BinaryIO]:
    """Open `file` for sequential reading, decompressed.

    Raises:
      UserError: while it is read: it is damaged or cut short, or has changed.
      ConnectionError: while it is read: the connection was lost.
    """
    with open_raw(file, needs_end=not file.compression) as raw:
        try:
            if file.compression:
                with decompress.decompressed(raw, file.compression) as stream:
                    yield stream
            else:
                yield raw
        except decompress.ERRORS as error:
            if isinstance(error, EOFError) and not http_files.has_end(raw):
                raise ConnectionError(f"{file}: the connection ended early") from error
            raise damaged(file, error) from error
        _assert_unchanged(file)


def open_raw(file: CorpusFile, needs_end: bool = True) -> BinaryIO:
    """Open `file` for sequential reading, still compressed.

    Raises:
      UserError: the file has changed since it was listed; or it `needs_end`, so that a lost
        connection is noticed, and its server marks none.
    """
    if not file.remote:
        return _open_local(file)
    if not file.on_web:
        # Not the client's own file: that of gcsfs reads ranges of the newest generation.
        return io.BufferedReader(_RangedFile(file), _REQUEST_BYTES)
    body = http_files.open_body(file.url, facts(file))
    if needs_end and not http_files.has_end(body):
        body.close()
        raise UserError(
            str(file),
            why="is sent without its length, so a lost connection would look like its end",
            to_set="copy it to a disk or bucket, or compress it, which marks its end",
        )
    return body


def damaged(file: CorpusFile, error: Exception) -> UserError:
    """Return the error to raise for a file that is damaged or cut short."""
    with contextlib.suppress(Exception):  # its real content only adds to the message
        with open_raw(file, needs_end=False) as raw:
            if other := signatures.what_else(
                raw.read(signatures.BYTES), file.compression or file.kind
            ):
                return UserError(str(file), why=f"is {other.what}", to_set=other.to_set)
    return UserError(
        str(file),
        why=f"is damaged or cut short ({error})",
        to_set="write or fetch it again, or leave it out",
    )


def _open_local(file: CorpusFile) -> BinaryIO:
    _assert_unchanged(file)
    return open(file.url, "rb")


def _assert_unchanged(file: CorpusFile) -> None:
    if file.remote or file.version is None:
        return
    with _listed(file):
        if file.version == disk_facts(file.url)["version"]:
            return
    raise UserError(
        str(file),
        why="changed after it was listed, so a part of the old and a part of the new file would be "
        "mixed",
        to_set="start the run again, which compares it with the saved position",
    )


@contextlib.contextmanager
def _pinned(file: CorpusFile) -> Iterator[dict[str, str]]:
    """Yield the arguments by which a Google bucket gives the listed version, or none at all."""
    is_google = file.url.startswith(("gs://", "gcs://"))
    with _listed(file):
        yield {"generation": file.version} if file.version and is_google else {}


@contextlib.contextmanager
def _listed(file: CorpusFile) -> Iterator[None]:
    """Raise UserError if a file that was listed is not there any more."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(
            str(file),
            why="was replaced or deleted after it was listed",
            to_set="restore it, or start the corpus over",
        ) from error
