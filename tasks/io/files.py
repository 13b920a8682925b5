"""Corpus files on local paths, http(s), gs:// and the hub's hf://, by name or pattern.

    files = match_files(["/data/ro/*.jsonl.zst", "https://example.org/ro.parquet"])
    read_range(files[0], 0, 1000)              # bytes 0..999
    with open_stream(files[1]) as stream: ...  # decompressed

Remote files are read through the stream cache if it is enabled (`tasks.io.stream_cache`). Nothing
here retries: callers use `tasks.io.retry`.
"""

import contextlib
import dataclasses
import functools
import glob
import gzip
import io
import os
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.spec import AbstractBufferedFile

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
COMPRESSIONS = ("gz", "zst")
PARALLEL = "parallel"  # the kind of several text files read line by line together
_JOINT = "\t"  # between their addresses
TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class CorpusFile:
    """One file: its address, its kind (a value of KINDS), its compression or ''.

    `length`: its size in bytes, if a listing has reported it.
    """

    url: str
    kind: str
    compression: str = ""
    length: int | None = dataclasses.field(default=None, compare=False)

    @property
    def remote(self) -> bool:
        """Whether reading it crosses the network."""
        return "://" in self.url


def classify(url: str, kind: str | None = None) -> CorpusFile | None:
    """Return the file that `url` names, by its suffixes; None if it is not a corpus file.

    With a `kind`, only the suffix of a compression is looked at.
    """
    name = url.split("?")[0].rsplit("/", 1)[-1].lower()
    stem, _, compression = name.rpartition(".")
    if compression in COMPRESSIONS:
        name = stem
    else:
        compression = ""
    kind = kind or KINDS.get(name.rpartition(".")[2])
    return CorpusFile(url, kind, compression) if kind else None


def join_parallel(*sides: CorpusFile) -> CorpusFile:
    """Return one file that stands for several text files with corresponding lines.

    Raises:
      ValueError: they are local and have different numbers of lines.
    """
    if not any(side.remote for side in sides):
        counts = [_count_lines(side) for side in sides]
        if len(set(counts)) > 1:
            found = " and ".join(f"{s.url} has {n}" for s, n in zip(sides, counts, strict=True))
            raise ValueError(f"parallel files must have the same number of lines, but {found}")
    lengths = [size(side) for side in sides]
    length = None if None in lengths else sum(n or 0 for n in lengths)
    return CorpusFile(_JOINT.join(side.url for side in sides), PARALLEL, "", length)


def split_parallel(file: CorpusFile) -> list[CorpusFile]:
    """Return the files that `join_parallel` has joined."""
    return [cast(CorpusFile, classify(url, "text")) for url in file.url.split(_JOINT)]


def _count_lines(file: CorpusFile) -> int:
    with open_stream(file) as stream:
        return sum(1 for _ in stream)


def match_files(patterns: Iterable[str], kind: str | None = None) -> list[CorpusFile]:
    """Return the files that match, sorted by address; all of `kind`, if it is given.

    Raises:
      ValueError: a pattern matches nothing, or a file whose name has no known suffix.
    """
    found = {}
    for pattern in patterns:
        urls = _expand(pattern)
        if not urls:
            raise ValueError(f"no file matches {pattern!r}")
        for url in urls:
            file = classify(url, kind)
            if file is None:
                raise ValueError(
                    f"{url!r} is of no known format: its name must end in one of "
                    f"{', '.join('.' + k for k in KINDS)}, plus .gz or .zst if compressed"
                )
            found[url] = file
    return [found[url] for url in sorted(found)]


def _expand(pattern: str) -> list[str]:
    if "://" not in pattern:
        return [os.path.abspath(p) for p in glob.glob(pattern, recursive=True) if os.path.isfile(p)]
    if not glob.has_magic(pattern) or pattern.startswith("http"):
        return [pattern]
    fs, path = _filesystem(pattern)
    return [fs.unstrip_protocol(p) for p in fs.glob(path)]


_protocol_filesystem = functools.cache(fsspec.filesystem)


def _filesystem(url: str) -> tuple[Any, str]:
    fs = _protocol_filesystem(url.split("://", 1)[0])
    return fs, fs._strip_protocol(url)


@functools.lru_cache(maxsize=100_000)
def _probe(file: CorpusFile) -> tuple[int | None, bool]:
    """Return a remote file's size, and whether its server serves ranges, by one request."""
    if not file.url.startswith("http"):
        fs, path = _filesystem(file.url)
        return fs.info(path).get("size"), True
    with _get(file.url, 0, 1) as response:
        if response.status == 206:
            total = response.headers.get("Content-Range", "").rpartition("/")[2]
            return (int(total), True) if total.isdigit() else (None, False)
        return response.length, False


def size(file: CorpusFile) -> int | None:
    """Return the size of `file` in bytes, or None if its server does not report it."""
    if file.length is not None or file.kind == PARALLEL:
        return file.length
    return _probe(file)[0] if file.remote else os.path.getsize(file.url)


def with_lengths(listed: Sequence[CorpusFile]) -> list[CorpusFile]:
    """Return the files with their lengths, by one request for each folder on the hub."""
    lengths: dict[str, int | None] = {}
    for folder in {f.url.rpartition("/")[0] for f in listed if f.url.startswith("hf://")}:
        fs, path = _filesystem(folder)
        lengths |= {entry["name"]: entry.get("size") for entry in fs.ls(path, detail=True)}
    length = lambda f: lengths.get(f.url.removeprefix("hf://"), f.length)
    return [dataclasses.replace(f, length=length(f)) for f in listed]


def prime_hub_listing(listed: Iterable[CorpusFile]) -> None:
    """Enter files that another host has listed into the hub client's directory cache.

    The client would otherwise list their folders before the first read: once on every host.
    """
    for file in listed:
        if file.url.startswith("hf://") and file.length is not None:
            fs, path = _filesystem(file.url)
            folder = fs.dircache.setdefault(path.rpartition("/")[0], [])
            if all(entry["name"] != path for entry in folder):
                unknown = dict.fromkeys(("blob_id", "lfs", "last_commit", "security"))
                folder.append({"name": path, "size": file.length, "type": "file", **unknown})


def has_ranges(file: CorpusFile) -> bool:
    """Return whether byte ranges of `file` can be read."""
    return _probe(file)[1] if file.url.startswith("http") else True


def published_sha256(file: CorpusFile) -> str | None:
    """Return the SHA-256 that the hub publishes for a large file, None elsewhere."""
    if not file.url.startswith("hf://"):
        return None
    fs, path = _filesystem(file.url)
    return (fs.info(path).get("lfs") or {}).get("sha256")


def read_range(file: CorpusFile, start: int, stop: int) -> bytes:
    """Return bytes `start`..`stop`-1 of `file`, fetching only these.

    Raises:
      ConnectionError: fewer bytes arrived.
    """
    fetch = lambda: _read_range(file, start, stop)
    if file.remote and stream_cache.current:
        return stream_cache.current.read(file.url, start, stop, fetch)
    return fetch()


def _read_range(file: CorpusFile, start: int, stop: int) -> bytes:
    if not file.remote:
        with open(file.url, "rb") as f:
            f.seek(start)
            data = f.read(stop - start)
    elif file.url.startswith("http"):
        with _get(file.url, start, stop) as response:
            data = response.read() if response.status == 206 else b""
    else:
        fs, path = _filesystem(file.url)
        # The hub's files would read ahead, beyond the range.
        exact = {"cache_type": "none"} if file.url.startswith("hf://") else {}
        data = fs.cat_file(path, start=start, end=stop, **exact)
    if len(data) != stop - start:
        raise ConnectionError(f"{file.url}: {len(data)} bytes arrived of {stop - start}")
    return data


def fits_in_cache(file: CorpusFile) -> bool:
    """Return whether the stream cache is enabled and can hold all of `file`, read by ranges."""
    most = stream_cache.current.limit / 4 if stream_cache.current else 0
    if not most or file.kind == PARALLEL or not file.remote or not has_ranges(file):
        return False
    return (size(file) or most + 1) <= most


def cached_copy(file: CorpusFile) -> str:
    """Return the path of a complete copy in the stream cache, fetching it if necessary."""
    assert stream_cache.current  # see `fits_in_cache`
    fetch = functools.partial(_read_range, file)
    return str(stream_cache.current.copy_of(file.url, size(file) or 0, fetch))


def _get(url: str, start: int = 0, stop: int | None = None):
    headers = {} if stop is None else {"Range": f"bytes={start}-{stop - 1}"}
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)


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


class _CompleteBody(io.RawIOBase):
    """An HTTP body that raises ConnectionError if it ends early.

    `http.client` reports a lost connection as the end of the file where it is read in pieces.
    """

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
                raise ConnectionError(f"{self._response.url}: {self._missing} bytes are missing")
        return n

    def close(self):
        self._response.close()
        super().close()


def open_random(file: CorpusFile, ranges: Iterable[tuple[int, int]] = ()) -> BinaryIO:
    """Open `file` for random access without read-ahead; of a remote file, fetch `ranges` now."""
    if not file.remote:
        return open(file.url, "rb")
    if has_ranges(file):
        return cast(BinaryIO, _RangedFile(file, ranges))
    with open_stream(file) as stream:
        return io.BytesIO(stream.read())


@contextlib.contextmanager
def open_stream(file: CorpusFile) -> Iterator[BinaryIO]:
    """Open `file` for sequential reading, decompressed."""
    with open_raw(file) as raw:
        if file.compression == "gz":
            with gzip.open(raw) as stream:
                yield cast(BinaryIO, stream)
        elif file.compression == "zst":
            import zstandard

            reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
            with io.BufferedReader(cast(io.RawIOBase, reader)) as stream:
                yield stream
        else:
            yield raw


def open_raw(file: CorpusFile) -> BinaryIO:
    """Open `file` for sequential reading, still compressed."""
    if not file.remote:
        return open(file.url, "rb")
    if fits_in_cache(file):
        return open(cached_copy(file), "rb")
    if file.url.startswith("http"):
        return io.BufferedReader(_CompleteBody(_get(file.url)), 1 << 20)
    fs, path = _filesystem(file.url)
    return fs.open(path, "rb")
