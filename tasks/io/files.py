"""Where a corpus's bytes lie: local paths, http(s), gs:// and the hub's hf://, by name or pattern.

    files = find(["/data/ro/*.jsonl.zst", "https://example.org/ro.parquet"])
    read_range(files[0], 0, 1000)            # bytes 0..999
    with open_stream(files[1]) as stream: ...  # decompressed

Where there is a spool (`tasks.io.stream_cache`), remote files are read through it. Nothing here
retries; `patience.patiently` goes around the callers.
"""

import contextlib
import dataclasses
import functools
import glob
import gzip
import io
import os
import urllib.request
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from tasks.io import stream_cache

KINDS = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "json",
    "csv": "csv",
    "tsv": "tsv",
    "txt": "text",
    "text": "text",
    "parquet": "parquet",
}
PACKINGS = ("gz", "zst")
PARALLEL = "parallel"  # the kind of files side by side, their addresses joined
_BESIDE = "\t"
TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class File:
    """One file of a corpus: its address, its kind (a value of KINDS), its compression or ''.

    `length`: its bytes, where a listing has told them.
    """

    url: str
    kind: str
    packing: str = ""
    length: int | None = dataclasses.field(default=None, compare=False)

    @property
    def remote(self) -> bool:
        """Whether reading it crosses the network."""
        return "://" in self.url


def classify(url: str, kind: str | None = None) -> File | None:
    """Returns the file that `url` names by its endings, or None if it is no corpus file.

    With a `kind` only the ending of a compressed one is looked at.
    """
    name = url.split("?")[0].rsplit("/", 1)[-1].lower()
    stem, _, packing = name.rpartition(".")
    if packing in PACKINGS:
        name = stem
    else:
        packing = ""
    kind = kind or KINDS.get(name.rpartition(".")[2])
    return File(url, kind, packing) if kind else None


def side_by_side(*sides: File) -> File:
    """Returns one file for several whose lines belong together.

    Raises:
      ValueError: they are local and have different numbers of lines.
    """
    if not any(side.remote for side in sides):
        counts = [_count_lines(side) for side in sides]
        if len(set(counts)) > 1:
            told = " and ".join(f"{s.url} {n}" for s, n in zip(sides, counts, strict=True))
            raise ValueError(f"lines that belong together stand at one place, but {told} lines")
    lengths = [size(side) for side in sides]
    length = None if None in lengths else sum(lengths)
    return File(_BESIDE.join(side.url for side in sides), PARALLEL, "", length)


def sides_of(file: File) -> list[File]:
    """Returns the files that `side_by_side` made one of."""
    return [classify(url, "text") for url in file.url.split(_BESIDE)]


def _count_lines(file: File) -> int:
    with open_stream(file) as stream:
        return sum(1 for _ in stream)


def find(patterns: Iterable[str], kind: str | None = None) -> list[File]:
    """Returns the files that match, sorted by address, each once.

    Args:
      patterns: paths or addresses.
      kind: what all of them are, whatever their names say.

    Raises:
      ValueError: a pattern matches nothing, or something whose format its name does not tell.
    """
    found = {}
    for pattern in patterns:
        urls = _expand(pattern)
        if not urls:
            raise ValueError(f"no file matches {pattern!r}")
        for url in urls:
            found[url] = classify(url, kind)
            if found[url] is None:
                raise ValueError(
                    f"{url!r} is of no known format: its name must end in one of "
                    f"{', '.join('.' + k for k in KINDS)}, with .gz or .zst behind it if compressed"
                )
    return [found[url] for url in sorted(found)]


def _expand(pattern: str) -> list[str]:
    if "://" not in pattern:
        return [os.path.abspath(p) for p in glob.glob(pattern, recursive=True) if os.path.isfile(p)]
    if not glob.has_magic(pattern) or pattern.startswith("http"):
        return [pattern]
    fs, path = _filesystem(pattern)
    return [fs.unstrip_protocol(p) for p in fs.glob(path)]


@functools.cache
def _protocol_filesystem(protocol: str):
    import fsspec

    return fsspec.filesystem(protocol)


def _filesystem(url: str):
    fs = _protocol_filesystem(url.split("://", 1)[0])
    return fs, fs._strip_protocol(url)


@functools.lru_cache(maxsize=100_000)
def _probe(file: File) -> tuple[int | None, bool]:
    """Asks for a remote file's bytes and whether ranges of them can be had, in one request."""
    if not file.url.startswith("http"):
        fs, path = _filesystem(file.url)
        return fs.info(path).get("size"), True
    with _get(file.url, 0, 1) as response:
        if response.status == 206:
            total = response.headers.get("Content-Range", "").rpartition("/")[2]
            return (int(total), True) if total.isdigit() else (None, False)
        return response.length, False


def size(file: File) -> int | None:
    """Returns the bytes of `file` as it lies, or None where its server does not tell."""
    if file.length is not None:
        return file.length
    return _probe(file)[0] if file.remote else os.path.getsize(file.url)


def listed_lengths(some: list[File]) -> list[File]:
    """Returns the files with their lengths, where one question tells those of a whole folder."""
    lengths = {}
    for folder in {f.url.rpartition("/")[0] for f in some if f.url.startswith("hf://")}:
        fs, path = _filesystem(folder)
        lengths |= {entry["name"]: entry.get("size") for entry in fs.ls(path, detail=True)}
    told = lambda f: lengths.get(f.url.removeprefix("hf://"), f.length)
    return [dataclasses.replace(f, length=told(f)) for f in some]


def know(some: list[File]) -> None:
    """Spares the hub's client to list the folders of these files, which another host has listed."""
    for file in some:
        if file.url.startswith("hf://") and file.length is not None:
            fs, path = _filesystem(file.url)
            folder = fs.dircache.setdefault(path.rpartition("/")[0], [])
            if all(entry["name"] != path for entry in folder):
                about = {"blob_id": None, "lfs": None, "last_commit": None, "security": None}
                folder.append({"name": path, "size": file.length, "type": "file", **about})


def has_ranges(file: File) -> bool:
    """Says whether any range of bytes can be read without those before it."""
    return _probe(file)[1] if file.url.startswith("http") else True


def told_sha256(file: File) -> str | None:
    """Returns the SHA-256 that the hub notes for a large file, None where nothing is noted."""
    if not file.url.startswith("hf://"):
        return None
    fs, path = _filesystem(file.url)
    return (fs.info(path).get("lfs") or {}).get("sha256")


def read_range(file: File, start: int, stop: int) -> bytes:
    """Returns bytes `start`..`stop`-1 of `file`, fetching these alone.

    Raises:
      ConnectionError: fewer came.
    """
    if file.remote and stream_cache.current:
        fetch = lambda: _read_range(file, start, stop)
        return stream_cache.current.read(file.url, start, stop, fetch)
    return _read_range(file, start, stop)


def _read_range(file: File, start: int, stop: int) -> bytes:
    if not file.remote:
        with open(file.url, "rb") as f:
            f.seek(start)
            data = f.read(stop - start)
    elif file.url.startswith("http"):
        with _get(file.url, start, stop) as response:
            data = response.read() if response.status == 206 else b""
    else:
        fs, path = _filesystem(file.url)
        exact = {"cache_type": "none"} if file.url.startswith("hf://") else {}
        data = fs.cat_file(path, start=start, end=stop, **exact)
    if len(data) != stop - start:
        raise ConnectionError(f"{file.url}: {len(data)} bytes came of {stop - start}")
    return data


def fits_spool(file: File) -> bool:
    """Says whether there is a spool that can hold all of `file`, fetched by ranges."""
    room = stream_cache.current.limit / 4 if stream_cache.current else 0
    if not room or file.kind == PARALLEL:
        return False
    return file.remote and has_ranges(file) and (size(file) or room + 1) <= room


def spooled(file: File) -> str:
    """Returns where a whole copy of `file` lies, fetched now if need be; see `fits_spool`."""
    fetch = functools.partial(_read_range, file)
    return str(stream_cache.current.whole(file.url, size(file), fetch))


def _get(url: str, start: int = 0, stop: int | None = None):
    ranged = {} if stop is None else {"Range": f"bytes={start}-{stop - 1}"}
    return urllib.request.urlopen(urllib.request.Request(url, headers=ranged), timeout=TIMEOUT_S)


class _Ranges(io.RawIOBase):
    """A remote file whose every read is one request for just the bytes asked for.

    Args:
      file: it.
      ranges: (start, stop) of bytes that are fetched first, each by one request.
    """

    def __init__(self, file: File, ranges: Iterable[tuple[int, int]] = ()):
        self._file = file
        self._fetched = [(a, b, read_range(file, a, b)) for a, b in ranges]
        self._end = size(file)
        self._at = 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=io.SEEK_SET):
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer):
        stop = min(self._at + len(buffer), self._end)
        data = self._read(self._at, stop) if stop > self._at else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read(self, start: int, stop: int) -> bytes:
        for a, b, data in self._fetched:
            if a <= start and stop <= b:
                return data[start - a : stop - a]
        return read_range(self._file, start, stop)


class _Whole(io.RawIOBase):
    """An HTTP body that does not pass off a broken connection as its end."""

    def __init__(self, response):
        self._response = response
        self._missing = response.length

    def readable(self):
        return True

    def readinto(self, buffer):
        n = self._response.readinto(buffer)
        if self._missing is not None:
            self._missing -= n
            if n == 0 and self._missing > 0:
                raise ConnectionError(f"{self._response.url}: {self._missing} bytes did not come")
        return n

    def close(self):
        self._response.close()
        super().close()


def open_random(file: File, ranges: Iterable[tuple[int, int]] = ()) -> BinaryIO:
    """Opens `file` for reads here and there, with no read-ahead.

    Args:
      file: it.
      ranges: (start, stop) of bytes that will be needed; of a remote file they are fetched now.
    """
    if not file.remote:
        return open(file.url, "rb")
    if has_ranges(file):
        return _Ranges(file, ranges)
    with open_stream(file) as stream:
        return io.BytesIO(stream.read())


@contextlib.contextmanager
def open_stream(file: File) -> Iterator[BinaryIO]:
    """Opens `file` for reading from its beginning, decompressed."""
    with open_raw(file) as raw:
        if file.packing == "gz":
            with gzip.open(raw) as stream:
                yield stream
        elif file.packing == "zst":
            import zstandard

            reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
            with io.BufferedReader(reader) as stream:
                yield stream
        else:
            yield raw


def open_raw(file: File) -> BinaryIO:
    """Opens `file` for reading from its beginning, as it lies."""
    if not file.remote:
        return open(file.url, "rb")
    if fits_spool(file):
        return open(spooled(file), "rb")
    if file.url.startswith("http"):
        return io.BufferedReader(_Whole(_get(file.url)), 1 << 20)
    fs, path = _filesystem(file.url)
    return fs.open(path, "rb")
