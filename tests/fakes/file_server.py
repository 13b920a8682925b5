"""A folder served over loopback HTTP, with faults."""

import collections
import zlib

from fakes import loopback
from tasks.corpus.records import formats, parquet
from tasks.corpus.storage import http_files


class FileServer(loopback.Server):
    """Serves a folder over loopback HTTP, with or without ranges, with `faults`.

    `ends`: what marks the end of a body, "length", "chunks" or "nothing". `version`: the header
    that changes with a file's content, "ETag", "weak ETag", "Last-Modified" or None. A fault is a
    status; or "cut", half the body; "other range", one byte further on; "half size", a wrong size
    of the file. With `obeys` False, If-Range is ignored. `encoding`: what Content-Encoding says.
    """

    def __init__(
        self, folder, ranges=True, ends="length", version="ETag", obeys=True, encoding=None
    ):
        self.sent = collections.Counter()
        self.asked = []
        self.faults = []
        outer = self

        class Handler(loopback.Handler):
            protocol_version = "HTTP/1.1" if ends == "chunks" else "HTTP/1.0"

            def do_GET(self):
                path = folder / self.path.split("?Signature")[0].lstrip("/")
                data = path.read_bytes() if path.exists() else b""
                outer.asked.append((self.path, self.headers.get("Range")))
                fault = outer.faults.pop() if outer.faults else None
                fault = fault if path.exists() else 404
                if isinstance(fault, int):
                    return self.reply(fault)
                mark = _mark(version, data)
                same = self.headers.get("If-Range", mark) == mark or not obeys
                part = self.byte_range(len(data)) if ranges and same else None
                start, stop, size = 0, len(data), len(data)
                if part and not data:
                    return self.reply(416, headers={"Content-Range": "bytes */0"})
                if part:
                    moved = fault == "other range"
                    start, stop = part[0] + moved, min(part[1] + moved, len(data))
                    size = len(data) // 2 if fault == "half size" else len(data)
                body = data[start:stop]
                outer.sent[self.path] += len(body)  # before a client can look
                self.send_response(206 if part else 200)
                if version:
                    self.send_header(version.removeprefix("weak "), mark)
                if encoding:
                    self.send_header("Content-Encoding", encoding)
                if part:
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
                if ends == "length" or part:
                    self.send_header("Content-Length", str(stop - start))
                elif ends == "chunks":
                    self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(_sent(body, fault == "cut", ends == "chunks" and not part))
                self.close_connection = True
                return None

        super().__init__(Handler)
        forget_files()  # another test's server may have had this port


def forget_files():
    """Empty the caches that know files by their address."""
    for cache in (http_files.probe, formats.contents_of, parquet.footer_of):
        cache.cache_clear()


def _sent(body, is_cut, in_chunks):
    """Return the bytes of an answer's body, or its first half."""
    if is_cut:
        body = body[: len(body) // 2]
    if not in_chunks:
        return body
    return b"%x\r\n%b\r\n" % (len(body), body) + (b"" if is_cut else b"0\r\n\r\n")


def _mark(version, data):
    """Return the value of the header that changes with a file's content."""
    checksum = zlib.crc32(data)
    if version == "Last-Modified":
        return f"Sun, 22 Nov 2026 {checksum % 24:02}:{checksum // 24 % 60:02}:00 GMT"
    return f'W/"{checksum}"' if version == "weak ETag" else f'"{checksum}"'
