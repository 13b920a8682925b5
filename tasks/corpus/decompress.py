"""Decompression that notices a missing end.

    with decompressed(open("a.jsonl.zst", "rb"), "zst") as stream: ...

A .gz file is one or more members, a .zst file one or more frames; both mark their end. A file that
ends in between, or holds none, raises EOFError; damaged data raise one of the other ERRORS.
"""

import io
import zlib
from typing import Any, BinaryIO, cast

import zstandard

COMPRESSIONS = ("gz", "zst")
ERRORS = (EOFError, zlib.error, zstandard.ZstdError)
READ_BYTES = 1 << 16  # of compressed data at once; its text is held in memory
_GZIP = 16 + zlib.MAX_WBITS
_LONGEST_WINDOW = 1 << 31  # that zstd writes, with --long=31; the default limit is 1 << 27


def decompressed(raw: BinaryIO, compression: str) -> BinaryIO:
    """Return what `raw` holds, decompressed; `compression` is one of COMPRESSIONS."""
    return cast(BinaryIO, io.BufferedReader(_Frames(raw, compression), 1 << 17))


class _Frames(io.RawIOBase):
    """The text of all frames (or members), one after the other."""

    def __init__(self, raw: BinaryIO, compression: str):
        self._raw, self._compression = raw, compression
        self._frame: Any = None  # the one that has begun
        self._has_frames = False
        self._left = b""  # read, and not yet decompressed
        self._text = memoryview(b"")

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._text:
            data = self._left or self._raw.read(READ_BYTES)
            if not data:
                if self._frame or not self._has_frames:
                    raise EOFError(f"its {self._compression} data have no end")
                return 0
            self._text = memoryview(self._decompress(data))
        n = min(len(buffer), len(self._text))
        buffer[:n], self._text = self._text[:n], self._text[n:]
        return n

    def _decompress(self, data: bytes) -> bytes:
        self._left = b""
        if self._frame is None:
            if self._compression == "gz" and self._has_frames:
                data = data.lstrip(b"\0")  # padding, as tapes and gzip have it
            if not data:
                return b""
            self._frame, self._has_frames = self._begin(), True
        text = self._frame.decompress(data)
        if self._frame.eof:
            self._left, self._frame = self._frame.unused_data, None
        return text

    def _begin(self):
        if self._compression == "gz":
            return zlib.decompressobj(_GZIP)
        return zstandard.ZstdDecompressor(max_window_size=_LONGEST_WINDOW).decompressobj()
