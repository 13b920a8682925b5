"""Files on web servers: ranges and bodies that are complete and of one version, or an error.

    facts = probe("https://example.org/a.jsonl")     # Facts(length=5120, version='"5f2"')
    read_range("https://example.org/a.jsonl", 0, 1000, facts)
    with open_body("https://example.org/a.jsonl", facts) as body: ...

A file that is replaced on its server would otherwise be read half old and half new. So every answer
is compared with the first: its length, and its ETag or else Last-Modified. What may pass (a lost
connection, a wrong range) is a ConnectionError, a changed file a UserError.
"""

import dataclasses
import email.message
import functools
import io
import re
import string
import urllib.error
import urllib.parse
import urllib.request
from typing import BinaryIO

from absl import logging

from common.errors import UserError
from common.secrets import public, split_login

TIMEOUT_S = 60.0
_REFUSALS = (400, 401, 403, 404, 410)
# Encodings that change a body, with the names of files of which they may be said; servers send
# other words too, such as "UTF-8" and "aws-chunked".
_ENCODINGS = {
    **dict.fromkeys(("gzip", "x-gzip"), (".gz", ".tgz")),
    "zstd": (".zst", ".tzst"),
    **dict.fromkeys(("deflate", "compress", "x-compress", "br"), ()),
}


@dataclasses.dataclass(frozen=True)
class Facts:
    """The facts of a file that is to be read.

    `length`: in bytes, if its server reports it. `version`: its ETag, else its Last-Modified, if
    its server sends one; of a file on a disk its size and time of modification. `has_ranges`:
    whether byte ranges can be read.
    """

    length: int | None
    version: str | None
    has_ranges: bool = True


@functools.lru_cache(maxsize=100_000)
def probe(url: str) -> Facts:
    """Return the facts of a file, by one request."""
    try:
        response = _get(url, 0, 1)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == "bytes */0":  # it is empty
            return Facts(0, _version(error.headers))
        raise
    with response:
        length, version = _length(response), _version(response.headers)
        has_ranges = response.status == 206 and length is not None
        return Facts(length, version, has_ranges)


def read_range(url: str, start: int, stop: int, facts: Facts) -> bytes:
    """Return bytes `start`..`stop`-1, or fewer where the connection is lost.

    Raises:
      UserError: the file has other facts by now.
      ConnectionError: the server answers with another range.
    """
    try:
        response = _get(url, start, stop, facts.version)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            raise _changed(url, "length", f"{facts.length} bytes", "less") from error
        raise
    with response:
        _assert_unchanged(url, response, facts)
        if response.status != 206:
            return b""
        answered = response.headers.get("Content-Range", "")
        if not answered.startswith(f"bytes {start}-{stop - 1}/"):
            raise ConnectionError(
                f"{public(url)}: the server was asked for bytes {start}-{stop - 1} and answered "
                f"with {answered!r}"
            )
        return response.read()


def open_body(url: str, facts: Facts) -> io.BufferedReader:
    """Open a file for reading from its beginning.

    Raises:
      UserError: the file has other facts by now.
    """
    response = _get(url)
    try:
        _assert_unchanged(url, response, facts)
    except ValueError:
        response.close()
        raise
    return io.BufferedReader(_Body(response), 1 << 20)


def has_end(body: BinaryIO) -> bool:
    """Return whether the server marks the end of a body, by its length or by chunks.

    Without it, a connection that is lost looks like the end.
    """
    return getattr(getattr(body, "raw", None), "has_end", True)


class _Body(io.RawIOBase):
    """The body of a response, which raises ConnectionError if it ends early.

    `http.client` reports a lost connection as the end of the file where it is read in pieces.
    """

    def __init__(self, response):
        self._response = response
        self._missing = response.length
        self.has_end = self._missing is not None or response.chunked

    def readable(self):
        return True

    def readinto(self, buffer):
        n = self._response.readinto(buffer)
        if self._missing is not None:
            self._missing -= n
            if n == 0 and self._missing > 0:
                raise ConnectionError(
                    f"{public(self._response.url)}: {self._missing} bytes are missing"
                )
        return n

    def close(self):
        self._response.close()
        super().close()


def _get(url: str, start: int = 0, stop: int | None = None, version: str | None = None):
    if split_login(url)[1]:
        raise UserError(
            public(url),
            why="is given with a user or password, which are not sent",
            to_set="leave them out, or download the file and name its path",
        )
    headers = {}
    if stop is not None:
        headers["Range"] = f"bytes={start}-{stop - 1}"
        if version and not version.startswith("W/"):  # a weak ETag is not allowed here
            headers["If-Range"] = version
    request = urllib.request.Request(_escaped(url), headers=headers)
    try:
        response = _opener().open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code not in _REFUSALS:
            raise
        answer = f"{public(url)} is answered by {error.code} {error.reason}"
        if error.url != request.full_url:
            raise ConnectionError(f"{answer}, at the address that it leads to") from error
        raise UserError(
            why=answer,
            to_set="check the address in a browser; one that is signed is valid for a time only",
        ) from error
    if encoding := _changing_encoding(url, response.headers):
        response.close()
        raise UserError(
            public(url),
            why=f"is sent with Content-Encoding: {encoding}, so these are not the file's bytes",
            to_set="fetch it by curl --compressed, and name the copy",
        )
    return response


def _changing_encoding(url: str, headers: email.message.Message) -> str:
    """Return the encodings that a server has applied to a file, "" if its name says the same."""
    named = (headers.get("Content-Encoding") or "").lower().split(",")
    applied = [name.strip() for name in named if name.strip() in _ENCODINGS]
    suffixes = _ENCODINGS[applied[0]] if len(applied) == 1 else ()
    return "" if url.split("?")[0].lower().endswith(suffixes) else ", ".join(applied)


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Redirects)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and says once where a file has moved to."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if code in (301, 307, 308):
            _say_moved(*(public(url.rpartition("/")[0]) for url in (req.full_url, newurl)))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@functools.cache  # once
def _say_moved(old: str, new: str) -> None:
    logging.warning("%s has moved to %s, where its files are read", old, new)


def _escaped(url: str) -> str:
    """Return an address with spaces and other letters than ASCII's as %XX, the rest unchanged."""
    parts = urllib.parse.urlsplit(url)
    path, query = (
        urllib.parse.quote(part, safe=string.punctuation) for part in (parts.path, parts.query)
    )
    return parts._replace(path=path, query=query).geturl()


def _length(response) -> int | None:
    """Return the length of the file, also if the response is a range of it."""
    if response.status != 206:
        return response.length
    total = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", ""))
    return int(total[1]) if total else None


def _version(headers: email.message.Message) -> str | None:
    return headers.get("ETag") or headers.get("Last-Modified")


def _assert_unchanged(url: str, response, facts: Facts) -> None:
    length, version = _length(response), _version(response.headers)
    if None not in (length, facts.length) and length != facts.length:
        raise _changed(url, "length", f"{facts.length} bytes", f"{length} bytes")
    same = lambda a, b: a.removeprefix("W/") == b.removeprefix("W/")
    if version and facts.version and not same(version, facts.version):
        raise _changed(url, "ETag or Last-Modified", facts.version, version)


def _changed(url: str, what: str, before: str, now: str) -> UserError:
    return UserError(
        public(url),
        why=f"changed while it was read (its {what} was {before} and is {now}), so a part of the "
        "old and a part of the new file would be mixed",
        to_set="restore it, or start the corpus over",
    )
