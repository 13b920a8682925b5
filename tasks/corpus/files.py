"""Corpus files on local paths, http(s), gs:// and the hub's hf://, by name or pattern.

    files = match_files(["/data/ro/*.jsonl.zst", "https://example.org/ro.parquet"])
    files = match_files(["@https://example.org/ro.map"])       # a list of addresses
    read_range(files[0], 0, 1000)              # bytes 0..999
    with open_stream(files[1]) as stream: ...  # decompressed

A file that changes after it was listed, or that is cut short, is an error. Nothing here retries:
callers use `tasks.corpus.retry`.
"""

import contextlib
import dataclasses
import fnmatch
import functools
import glob
import io
import os
import re
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any, BinaryIO, cast

import fsspec
import fsspec.core
from fsspec.spec import AbstractBufferedFile

from common.errors import UserError, missing
from tasks.corpus import decompress, http_files
from tasks.corpus.decompress import COMPRESSIONS
from tasks.corpus.http_files import Facts

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
PARALLEL = "parallel"  # the kind of several text files read line by line together
_JOINT = "\t"  # between their addresses
LIST = "@"  # before the address of a list of addresses
SAMPLED_BYTES = 64 << 20  # of the local files of a split
_BLOCK_BYTES = (4 << 10, 64 << 10)  # minimum and maximum
_PROBES = 16  # at a time


@dataclasses.dataclass(frozen=True)
class CorpusFile:
    """One file: its address, its kind (a value of KINDS), its compression or ''.

    If a listing has reported them: `length`, its size in bytes; `version`, which changes if the
    file does (of a local file its size and time of modification, of a bucket the generation, over
    http ETag or Last-Modified); `digest`, a checksum of its contents.
    """

    url: str
    kind: str
    compression: str = ""
    length: int | None = dataclasses.field(default=None, compare=False)
    version: str | None = None
    digest: str | None = dataclasses.field(default=None, compare=False)

    @property
    def remote(self) -> bool:
        """Whether reading it crosses the network."""
        return "://" in self.url


def classify(url: str, kind: str | None = None) -> CorpusFile | None:
    """Return the file that `url` names, by its suffixes; None if it is not a corpus file.

    With a `kind`, only the suffix of a compression is looked at.
    """
    path = url.split("?")[0] if "://" in url else url  # an address may have a query
    name = path.rsplit("/", 1)[-1].lower()
    stem, _, compression = name.rpartition(".")
    if compression in COMPRESSIONS:
        name = stem
    else:
        compression = ""
    _, dot, suffix = name.rpartition(".")  # "text" and "owner/text" have none
    kind = kind or (KINDS.get(suffix) if dot else None)
    return CorpusFile(url, kind, compression) if kind else None


def join_parallel(*sides: CorpusFile) -> CorpusFile:
    """Return one file made of several text files with corresponding lines.

    Raises:
      ValueError: they are local and have different numbers of lines.
    """
    if not any(side.remote for side in sides):
        counts = [_count_lines(side) for side in sides]
        if len(set(counts)) > 1:
            found = " and ".join(f"{s.url} has {n}" for s, n in zip(sides, counts, strict=True))
            raise ValueError(f"parallel files must have the same number of lines, but {found}")
    return _join(sides)


def _join(sides: Sequence[CorpusFile]) -> CorpusFile:
    lengths = [size(side) for side in sides]
    length = None if None in lengths else sum(n or 0 for n in lengths)
    joined = lambda values: _JOINT.join(value or "" for value in values)
    versions, digests = [s.version for s in sides], [s.digest for s in sides]
    version = joined(versions) if any(versions) else None
    digest = joined(digests) if any(digests) else None
    return CorpusFile(joined(s.url for s in sides), PARALLEL, "", length, version, digest)


def split_parallel(file: CorpusFile) -> list[CorpusFile]:
    """Return the files that `join_parallel` has joined."""
    urls = file.url.split(_JOINT)
    split = lambda joined: joined.split(_JOINT) if joined else [""] * len(urls)
    return [
        dataclasses.replace(
            cast(CorpusFile, classify(url, "text")), version=version or None, digest=digest or None
        )
        for url, version, digest in zip(urls, split(file.version), split(file.digest), strict=True)
    ]


def _sides(file: CorpusFile) -> list[CorpusFile]:
    return split_parallel(file) if file.kind == PARALLEL else [file]


def _count_lines(file: CorpusFile) -> int:
    with open_stream(file) as stream:
        return sum(1 for _ in stream)


def match_files(
    patterns: Iterable[str],
    kind: str | None = None,
    advice: str = "",
    without: Iterable[str] = (),
) -> list[CorpusFile]:
    """Return the files that match, sorted by address; all of `kind`, if it is given.

    `advice` ends the message where the folder of a pattern exists and no file matches. Files that
    match a pattern of `without` are left out.

    Raises:
      ValueError: a pattern matches nothing, or a file whose name has no known suffix, or is of
        http, where files cannot be listed; a list of addresses is empty.
    """
    found = {}
    left_out = {url for pattern in without for url in _expand(pattern)}
    for pattern in patterns:
        known = {url: facts for url, facts in _expand(pattern).items() if url not in left_out}
        if not known:
            shown = repr(_unescaped(pattern))
            raise ValueError(f"no file matches {shown}{_no_folder(pattern) or advice}")
        for url, facts in known.items():
            file = classify(url, kind)
            if file is None:
                raise ValueError(
                    f"{url!r} is of no known format: its name must end in one of "
                    f"{', '.join('.' + k for k in KINDS)}, plus .gz or .zst if compressed; of a "
                    f"list of addresses write {LIST + url!r}"
                )
            found[url] = dataclasses.replace(file, **facts)
    return [found[url] for url in sorted(found)]


def _unescaped(pattern: str) -> str:
    """Return what `glob.escape` has made a pattern of."""
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def _no_folder(pattern: str) -> str:
    """Return that the folder of a local pattern does not exist, to end a sentence, or ''."""
    literal = cast(re.Match, re.match(r"(\[[*?[]\]|[^*?[])*", os.path.expanduser(pattern)))
    folder = os.path.dirname(_unescaped(literal[0]))
    exists = "://" in pattern or os.path.isdir(folder or ".")
    return "" if exists else f", since there is no folder {folder}"


def _expand(pattern: str) -> dict[str, dict[str, Any]]:
    """Return the addresses that match, each with what is known of the file."""
    if pattern.startswith(LIST):
        return _expand_list(pattern.removeprefix(LIST))
    if "://" not in pattern:
        found = glob.glob(os.path.expanduser(pattern), recursive=True)
        paths = [os.path.abspath(path) for path in found]
        return {path: _local_facts(path) for path in paths if os.path.isfile(path)}
    if pattern.startswith("http"):
        if "*" in (path := urllib.parse.urlsplit(pattern).path) or "[" in path:
            raise ValueError(
                f"{pattern!r} is a pattern, and web servers do not list their files: name each "
                f"address, or a list of them, one a line, as '{LIST}https://…/files.txt', or copy "
                "the files to a folder or bucket"
            )
        return {pattern: {}}
    fs, path = _filesystem(pattern)
    if not glob.has_magic(pattern):
        with contextlib.suppress(FileNotFoundError):
            return {pattern: _facts_of(fs.info(path))}
        return {}
    # The hub would ask for the last commit of each file too.
    options = {"expand_info": False} if pattern.startswith("hf://") else {}
    found = fs.glob(path, detail=True, **options)
    return {fs.unstrip_protocol(p): _facts_of(info) for p, info in found.items()}


def _expand_list(url: str) -> dict[str, dict[str, Any]]:
    """Return the files that a list names, one address or pattern a line, relative to the list.

    After a "#" follow patterns, with "|" between them; then a file's name must match one of them.
    """
    url, _, wanted = url.partition("#")
    with open_stream(cast(CorpusFile, classify(url, "text"))) as stream:
        lines = [line.strip() for line in stream.read().decode("utf-8-sig").splitlines()]
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        name = line.rsplit("/", 1)[-1]
        fits = any(fnmatch.fnmatchcase(name, each) for each in (wanted or "*").split("|"))
        if line and not line.startswith("#") and fits:
            address = _relative_to(url, line)
            if not (matches := _expand(address)):
                raise ValueError(f"no file matches {address!r}, which the list {url} names")
            found |= matches
    if not found:
        which = f" that matches {wanted!r}" if wanted else ": write one address a line into it"
        raise ValueError(f"the list {url} names no file{which}")
    return found


def _relative_to(url: str, address: str) -> str:
    if url.startswith("http"):
        return urllib.parse.urljoin(url, address)
    if "://" in address or os.path.isabs(address):
        return address
    return f"{url.rpartition('/')[0] or '.'}/{address}"


def _local_facts(path: str) -> dict[str, Any]:
    stat = os.stat(path)
    return {"length": stat.st_size, "version": f"{stat.st_size} bytes of {stat.st_mtime_ns}"}


def _facts_of(info: dict[str, Any]) -> dict[str, Any]:
    """Return what a bucket or the hub reports of a file, as fields of a CorpusFile."""
    lfs = info.get("lfs") or {}
    names = ("md5Hash", "crc32c", "ETag", "etag", "blob_id")
    digest = lfs.get("sha256") or next((info[name] for name in names if info.get(name)), None)
    # S3 lists no generation, but an ETag; Google's changes with the metadata alone.
    version = info.get("generation") or info.get("ETag")
    return {"length": info.get("size"), "version": version and str(version), "digest": digest}


def with_facts(listed: Sequence[CorpusFile]) -> list[CorpusFile]:
    """Return the files with all that their servers report, by a request for each unknown file."""

    def complete(side: CorpusFile) -> CorpusFile:
        if not side.url.startswith("http") or None not in (side.length, side.version):
            return side
        facts = _facts(side)
        return dataclasses.replace(side, length=facts.length, version=facts.version)

    def fn(file: CorpusFile) -> CorpusFile:
        if file.kind != PARALLEL:
            return complete(file)
        return _join([complete(side) for side in split_parallel(file)]) if file.remote else file

    with futures.ThreadPoolExecutor(_PROBES) as pool:
        return list(pool.map(fn, listed))


def of_this_host(file: CorpusFile) -> CorpusFile:
    """Return a file that another host has listed; a local one with what this host has."""
    if any(side.remote or not os.path.exists(side.url) for side in _sides(file)):
        return file
    sides = [dataclasses.replace(side, **_local_facts(side.url)) for side in _sides(file)]
    return sides[0] if file.kind != PARALLEL else _join(sides)


_protocol_filesystem = functools.cache(fsspec.filesystem)


def _filesystem(url: str) -> tuple[Any, str]:
    protocol = url.split("://", 1)[0]
    try:
        fs = _protocol_filesystem(protocol)
    except ImportError as error:
        to_do = missing("s3fs") if protocol == "s3" else f"{error} in this environment."
        raise ValueError(f"{url} cannot be read: {to_do}") from error
    return fs, fsspec.core.strip_protocol(url)


def _facts(file: CorpusFile) -> Facts:
    """Return what is known of a remote file; asks its server or bucket at most once."""
    if file.url.startswith("http"):
        facts = http_files.probe(file.url)
        length = facts.length if file.length is None else file.length
        return dataclasses.replace(facts, length=length, version=file.version or facts.version)
    if file.length is not None:
        return Facts(file.length, file.version)
    fs, path = _filesystem(file.url)
    return Facts(fs.info(path).get("size"), None)


def size(file: CorpusFile) -> int | None:
    """Return the size of `file` in bytes, or None if its server does not report it."""
    if file.length is not None or file.kind == PARALLEL:
        return file.length
    return _facts(file).length if file.remote else os.path.getsize(file.url)


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
    return http_files.probe(file.url).has_ranges if file.url.startswith("http") else True


def read_range(file: CorpusFile, start: int, stop: int) -> bytes:
    """Return bytes `start`..`stop`-1 of `file`, fetching only these.

    Raises:
      ConnectionError: fewer bytes arrived over the network, or others.
      ValueError: the file has changed since it was listed, or is shorter.
    """
    if start >= stop:
        return b""
    if not file.remote:
        with _open_local(file) as f:
            f.seek(start)
            data = f.read(stop - start)
    elif file.url.startswith("http"):
        data = http_files.read_range(file.url, start, stop, _facts(file))
    else:
        fs, path = _filesystem(file.url)
        # The hub's files would read ahead, beyond the range.
        exact = {"cache_type": "none"} if file.url.startswith("hf://") else {}
        with _pinned(file) as pin:
            data = fs.cat_file(path, start=start, end=stop, **exact, **pin)
    if len(data) != stop - start:
        kind = ConnectionError if file.remote else UserError  # a retry reads no more
        raise kind(f"{file.url}: {len(data)} bytes arrived of {stop - start}")
    return data


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


def open_random(file: CorpusFile, ranges: Iterable[tuple[int, int]] = ()) -> BinaryIO:
    """Open `file` for random access without read-ahead; of a remote file, fetch `ranges` now."""
    if not file.remote:
        return _open_local(file)
    if has_ranges(file):
        return cast(BinaryIO, _RangedFile(file, ranges))
    with open_stream(file) as stream:
        return io.BytesIO(stream.read())


@contextlib.contextmanager
def open_stream(file: CorpusFile) -> Iterator[BinaryIO]:
    """Open `file` for sequential reading, decompressed.

    Raises:
      ValueError: while it is read: it is damaged or cut short, or has changed.
      ConnectionError: while it is read: the connection was lost.
    """
    with open_raw(file, needs_end=not file.compression) as raw:
        if not file.compression:
            yield raw
        else:
            try:
                with decompress.decompressed(raw, file.compression) as stream:
                    yield stream
            except decompress.ERRORS as error:
                if isinstance(error, EOFError) and not http_files.has_end(raw):
                    raise ConnectionError(f"{file.url}: the connection ended early") from error
                raise damaged(file, error) from error
        _assert_unchanged(file)


def damaged(file: CorpusFile, error: Exception) -> ValueError:
    """Return the error to raise for a file that is damaged or cut short."""
    return ValueError(
        f"{file.url} is damaged or cut short ({error}): write or fetch it again, or leave it out"
    )


def open_raw(file: CorpusFile, needs_end: bool = True) -> BinaryIO:
    """Open `file` for sequential reading, still compressed.

    Raises:
      ValueError: the file has changed since it was listed; or it `needs_end`, so that a lost
        connection is noticed, and its server marks none.
    """
    if not file.remote:
        return _open_local(file)
    if not file.url.startswith("http"):
        fs, path = _filesystem(file.url)
        with _pinned(file) as pin:
            return io.BufferedReader(fs.open(path, "rb", **pin))
    body = http_files.open_body(file.url, _facts(file))
    if needs_end and not http_files.has_end(body):
        body.close()
        raise ValueError(
            f"{file.url} is sent without its length, so a lost connection would look like its end: "
            "copy it to a disk or bucket, or compress it with gzip or zstd, which mark their end"
        )
    return body


def _open_local(file: CorpusFile) -> BinaryIO:
    _assert_unchanged(file)
    return open(file.url, "rb")


def _assert_unchanged(file: CorpusFile) -> None:
    if file.remote or file.version is None:
        return
    if _local_facts(file.url)["version"] != file.version:
        raise ValueError(
            f"{file.url} changed after it was listed, so a part of the old and a part of the new "
            "file would be mixed: start the run again, which compares it with the saved position"
        )


@contextlib.contextmanager
def _pinned(file: CorpusFile) -> Iterator[dict[str, str]]:
    """Yield the arguments by which a Google bucket gives the listed version, or none at all."""
    is_google = file.url.startswith(("gs://", "gcs://"))
    pin = {"generation": file.version} if file.version and is_google else {}
    try:
        yield pin
    except FileNotFoundError as error:
        if not pin:
            raise
        raise ValueError(
            f"{file.url} was replaced or deleted after it was listed: restore it, or start the "
            "corpus over"
        ) from error


def contents(listed: Iterable[CorpusFile]) -> int:
    """Return a checksum of what the files hold; a copy of them has the same.

    Of local files it is computed from SAMPLED_BYTES, spread over all of them. Of remote files it
    is of what their servers report: lengths, and checksums, ETag or Last-Modified. Files of a
    commit on the hub cannot change, so they add nothing.
    """
    sides = [side for file in listed for side in _sides(file)]
    most = SAMPLED_BYTES // max(sum(not side.remote for side in sides), 1)
    lines = []
    for side in sides:
        if not side.remote:
            lines.append(f"{size(side)} {_sampled(side, most)}")
        elif side.digest or not side.url.startswith("hf://"):
            lines.append(f"{side.length} {side.digest or side.version}")
    return zlib.crc32("\n".join(lines).encode())


def _sampled(file: CorpusFile, most: int) -> int:
    """Return the CRC-32 of a file, or of blocks at equal distances, about `most` bytes in all."""
    low, high = _BLOCK_BYTES
    block = min(max(most // 16, low), high)
    length, n = size(file) or 0, max(most // block, 2)
    spread = [(length - block) * i // (n - 1) for i in range(n)]
    checksum = 0
    with _open_local(file) as opened:
        for start in range(0, length, block) if length <= n * block else spread:
            opened.seek(start)
            checksum = zlib.crc32(opened.read(block), checksum)
    return checksum
