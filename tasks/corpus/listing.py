"""The files of a split, listed once, with what their disk or server reports of each.

    listing = Listing(match_files(["/data/ro/*.jsonl.zst", "https://example.org/ro.parquet"]))
    listing = Listing(match_files(["@https://example.org/ro.map"]))     # a list of addresses
    listing.text_bytes()
    listing = listing.complete()            # what servers report of each file
    listing.identity()                      # what a data position depends on
    Listing.from_json(json.loads(json.dumps(listing.as_json())))

Nothing here retries: callers use `tasks.corpus.storage.retry`. In a pod the first host lists for
all: the trainer broadcasts its JSON (`Corpora` in t5x/input_pipeline/corpora.py).
"""

import contextlib
import dataclasses
import fnmatch
import functools
import glob
import itertools
import os
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from typing import Any, NamedTuple, cast

from common.errors import UserError
from common.secrets import public
from common.tables import counted
from tasks.corpus.storage import files, hub, names
from tasks.corpus.storage.files import PARALLEL, CorpusFile
from tasks.corpus.storage.names import LIST

SAMPLED_BYTES = 64 << 20  # bytes read of a split's local files
_BLOCK_BYTES = (4 << 10, 64 << 10)  # minimum and maximum
_PROBES = 16  # requests at a time
MOST_PROBES = 64  # remote files whose sizes are requested to choose an order
# Bytes of text in a byte of a file, roughly.
EXPANSION = {"gz": 4.0, "zst": 4.0, "xz": 5.0, "bz2": 5.0, "parquet": 2.0}
# Schemes that a list from a server may contain. Local paths are excluded: the list's author could
# make us read any file of this machine.
_REMOTE = ("http", "https", "gs", "s3", "hf")
_SIGNED = re.compile(r"(?i)(x-amz-|x-goog-|^|&)(signature|sig|credential|expires)=")


def too_many_to_ask(listing: Sequence[CorpusFile]) -> bool:
    """Return whether so many file sizes are unknown that asking the servers would take too long."""
    return sum(file.remote and file.length is None for file in listing) > MOST_PROBES


@dataclasses.dataclass(frozen=True)
class Listing:
    """The files of a split, sorted by address.

    `passed_over`: (address, reason) of neighbouring files that are not read. `is_complete`: whether
    all servers were asked.
    """

    files: tuple[CorpusFile, ...]
    passed_over: tuple[tuple[str, str], ...] = ()
    is_complete: bool = False

    @property
    def commit(self) -> str | None:
        """The hub's commit that the files are of."""
        return hub.commit_of(self.files[0].url)

    def complete(self) -> "Listing":
        """Return the listing with all that servers report; unknown files take a request each."""
        report = functools.partial(_map_sides, _with_server_facts)
        with futures.ThreadPoolExecutor(_PROBES) as pool:
            files_reported = tuple(pool.map(report, self.files))
        return dataclasses.replace(self, files=files_reported, is_complete=True)

    def text_bytes(self) -> int | None:
        """Return roughly how many bytes of text the files have, None if it is unknown."""
        if too_many_to_ask(self.files):
            return None
        total = 0.0
        for file in self.files:
            if (size := files.size(file)) is None:
                return None
            total += size * EXPANSION.get(file.compression or file.kind, 1.0)
        return int(total)

    def identity(self) -> dict[str, Any]:
        """Return the state of the files, as JSON: the hub's commit, names, sizes and contents."""
        name = lambda file: _unsigned(file.url).rsplit("/", 1)[-1]
        shown = [f"{name(f)} {'' if f.remote else files.size(f)}" for f in self.files]
        return {
            "revision": self.commit,
            "files": len(self.files),
            "names": zlib.crc32("\n".join(shown).encode()),
            "remote": self.files[0].remote,
            "contents": self.contents,
        }

    @functools.cached_property
    def contents(self) -> int:
        """A checksum of what the files hold; a copy of them has the same.

        For local files it is computed from SAMPLED_BYTES, spread over all of them. For remote files
        it is computed from what their servers report: lengths, and checksums, ETag or
        Last-Modified. Files at a commit of the hub cannot change, so they add nothing.
        """
        stored = [file_stored for file in self.files for file_stored in file.stored]
        most = SAMPLED_BYTES // max(sum(not file_stored.remote for file_stored in stored), 1)
        lines = []
        for file_stored in stored:
            if not file_stored.remote:
                lines.append(f"{files.size(file_stored)} {_sampled(file_stored, most)}")
            elif file_stored.digest or not file_stored.url.startswith("hf://"):
                lines.append(f"{file_stored.length} {file_stored.digest or file_stored.version}")
        return zlib.crc32("\n".join(lines).encode())

    def as_json(self) -> list[list]:
        """Return the files as JSON, for `from_json`."""
        return [list(dataclasses.astuple(file)) for file in self.files]

    @classmethod
    def from_json(cls, listed: list[list]) -> "Listing":
        """Return the listing of another host; local files get the facts of this host's disk."""
        look_here = functools.partial(_map_sides, _with_disk_facts)
        files_here = tuple(look_here(_from_json(fields)) for fields in listed)
        hub.know_files(files_here)
        return cls(files_here, is_complete=True)


def _unsigned(url: str) -> str:
    """Return an address without its query if the query is a signature, which expires."""
    address, _, query = url.partition("?")
    return address if "://" in url and _SIGNED.search(query) else url


def _map_sides(fn: Callable[[CorpusFile], CorpusFile], file: CorpusFile) -> CorpusFile:
    return join([fn(side) for side in file.sides]) if file.sides else fn(file)


def _with_server_facts(file: CorpusFile) -> CorpusFile:
    if not file.on_web or None not in (file.length, file.version):
        return file
    facts = files.facts(file)
    return dataclasses.replace(file, length=facts.length, version=facts.version)


def _with_disk_facts(file: CorpusFile) -> CorpusFile:
    if file.remote or not os.path.exists(file.url):
        return file
    return dataclasses.replace(file, **files.disk_facts(file.url))


def _from_json(fields: list) -> CorpusFile:
    *values, sides = fields
    return dataclasses.replace(CorpusFile(*values), sides=tuple(map(_from_json, sides)))


def _sampled(file: CorpusFile, most: int) -> int:
    """Return the CRC-32 of a file, or of blocks at equal distances, about `most` bytes in all."""
    low, high = _BLOCK_BYTES
    block = min(max(most // 16, low), high)
    length, n = files.size(file) or 0, max(most // block, 2)
    spread = [(length - block) * i // (n - 1) for i in range(n)]
    checksum = 0
    with files.open_random(file) as opened:
        for start in range(0, length, block) if length <= n * block else spread:
            opened.seek(start)
            checksum = zlib.crc32(opened.read(block), checksum)
    return checksum


def join(sides: Sequence[CorpusFile]) -> CorpusFile:
    """Return one file made of several text files with corresponding lines."""
    return CorpusFile(" and ".join(side.url for side in sides), PARALLEL, sides=tuple(sides))


def join_parallel(*sides: CorpusFile) -> CorpusFile:
    """Return `join` of the sides.

    Raises:
      UserError: they are local and have different numbers of lines.
    """
    if not any(side.remote for side in sides):
        counts = [_count_lines(side) for side in sides]
        if len(set(counts)) > 1:
            numbers = " and ".join(f"{s} has {n}" for s, n in zip(sides, counts, strict=True))
            why = f"must have the same number of lines, but {numbers}"
            raise UserError("parallel files", why=why)
    return join(sides)


class Parallel(NamedTuple):
    """Files, or patterns of them, whose lines correspond to each other."""

    sources: str
    targets: str

    def __str__(self) -> str:
        return " and ".join(self)


def match_parallel(pair: Parallel) -> Listing:
    """Return the files that match, each pair joined by `join_parallel`.

    Raises:
      UserError: see there; or the numbers of sources and targets differ.
    """
    sources, targets = (match_files([pattern], "text") for pattern in pair)
    if len(sources) != len(targets):
        raise UserError(
            str(pair),
            why=f"are {counted(len(sources), 'file')} of sources and {len(targets)} of targets",
            to_set="give each source file its target file",
        )
    return Listing(tuple(itertools.starmap(join_parallel, zip(sources, targets, strict=True))))


def _count_lines(file: CorpusFile) -> int:
    with files.open_stream(file) as stream:
        return sum(1 for _ in stream)


def match_files(patterns: Iterable[str], kind: str | None = None) -> tuple[CorpusFile, ...]:
    """Return the files that match, sorted by address; with `kind`, all are of that kind.

    Raises:
      UserError: a pattern matches nothing; a file has no known suffix; an http address is a
        pattern, although servers do not list their files; or a list of addresses is empty.
    """
    matches: dict[str, CorpusFile] = {}
    for pattern in patterns:
        if not (facts_by_url := expand(pattern)):
            raise no_match(pattern)
        for url, facts in facts_by_url.items():
            if (file := names.recognize(url, kind)) is None:
                raise names.not_read(url)
            matches[url] = dataclasses.replace(file, **facts)
    return tuple(matches[url] for url in sorted(matches))


def no_match(pattern: str) -> UserError:
    """Return the error for a pattern without a file; it says if the folder does not exist."""
    literal = re.match(r"(\[[*?[]\]|[^*?[])*", os.path.expanduser(pattern))
    folder = os.path.dirname(re.sub(r"\[([*?[])\]", r"\1", cast(re.Match, literal)[0]))
    exists = "://" in pattern or os.path.isdir(folder or ".")
    why = "no file matches it" if exists else f"there is no folder {folder}"
    return UserError(public(re.sub(r"\[([*?[])\]", r"\1", pattern)), why=f": {why}")


def expand(pattern: str) -> dict[str, dict[str, Any]]:
    """Return the addresses that match a pattern, each with fields of its CorpusFile."""
    if pattern.startswith(LIST):
        return _expand_list(pattern.removeprefix(LIST))
    archive, _, members = pattern.partition("#")
    if members and (file := names.recognize(archive)) and file.kind == "tar":
        return {url: {**facts, "members": members} for url, facts in expand(archive).items()}
    if "://" not in pattern:
        paths_matched = glob.glob(os.path.expanduser(pattern), recursive=True)
        paths = [os.path.abspath(path) for path in paths_matched]
        return {p: files.disk_facts(p) for p in paths if os.path.isfile(p)}
    if pattern.startswith("http"):
        if "*" in (path := urllib.parse.urlsplit(pattern).path) or "[" in path:
            raise UserError(
                public(pattern),
                why="is a pattern, and web servers do not list their files",
                to_set="name each address, or a list of them, one a line, as "
                f"'{LIST}https://…/files.txt', or copy the files to a folder or bucket",
            )
        return {pattern: {}}
    fs, path = files.filesystem(pattern)
    if not glob.has_magic(pattern):
        with contextlib.suppress(FileNotFoundError):
            return {pattern: bucket_facts(fs.info(path))}
        return {}
    # The hub would look up the last commit of each file too.
    options = {"expand_info": False} if pattern.startswith("hf://") else {}
    paths_matched = fs.glob(path, detail=True, **options)
    return {fs.unstrip_protocol(p): bucket_facts(info) for p, info in paths_matched.items()}


def _expand_list(url: str) -> dict[str, dict[str, Any]]:
    """Return the files that a list names, one address or pattern a line, relative to the list.

    Patterns may follow after "#", separated by "|"; a file's name must then match one of them.
    """
    url, _, name_patterns = url.partition("#")
    with files.open_stream(cast(CorpusFile, names.recognize(url, "text"))) as stream:
        lines = [line.strip() for line in stream.read().decode("utf-8-sig").splitlines()]
    facts_by_url: dict[str, dict[str, Any]] = {}
    for line in lines:
        name = line.rsplit("/", 1)[-1]
        fits = any(
            fnmatch.fnmatchcase(name, pattern) for pattern in (name_patterns or "*").split("|")
        )
        if line and not line.startswith("#") and fits:
            address = _relative_to(url, line)
            scheme = address.partition("://")[0] if "://" in address else "file"
            if "://" in url and scheme not in (*_REMOTE, url.partition("://")[0]):
                raise UserError(
                    public(url),
                    why=f"is a list from a server, which may name {', '.join(_REMOTE)} only, and "
                    f"names {public(address)!r}",
                    to_set="copy the list to a disk if you trust it",
                )
            if not (matches := expand(address)):
                raise no_match(address).at(public(url))
            facts_by_url |= matches
    if not facts_by_url:
        which = f" that matches {name_patterns!r}" if name_patterns else ""
        to_set = "" if name_patterns else "write one address a line into it"
        raise UserError(public(url), why=f"is a list that names no file{which}", to_set=to_set)
    return facts_by_url


def _relative_to(url: str, address: str) -> str:
    if url.startswith("http"):
        return urllib.parse.urljoin(url, address)
    if "://" in address or os.path.isabs(address):
        return address
    return f"{url.rpartition('/')[0] or '.'}/{address}"


def bucket_facts(info: dict[str, Any]) -> dict[str, Any]:
    """Return what a bucket or the hub reports of a file, as fields of a CorpusFile."""
    lfs = info.get("lfs") or {}
    names = ("md5Hash", "crc32c", "ETag", "etag", "blob_id")
    digest = lfs.get("sha256") or next((info[name] for name in names if info.get(name)), None)
    # S3 lists no generation, but an ETag; Google's changes with the metadata alone.
    version = info.get("generation") or info.get("ETag")
    return {"length": info.get("size"), "version": version and str(version), "digest": digest}
