"""Decompression that notices a missing end.

    with decompressed(open("a.jsonl.zst", "rb"), "zst") as stream: ...

A file is one or more frames (members, streams), and each marks its end. A file that ends in
between, or holds none, raises EOFError, and damaged data raise Damaged.
"""

import bz2
import io
import lzma
import zlib
from typing import Any, BinaryIO, cast

import zstandard

# Of compressed data at once. Their text is held, which a bomb makes 32,768 times as large: 64 MiB.
READ_BYTES = 1 << 11
_GZIP = 16 + zlib.MAX_WBITS
_LONGEST_WINDOW = 1 << 31  # that zstd writes, with --long=31; the default limit is 1 << 27
_BEGIN = {
    "gz": lambda: zlib.decompressobj(_GZIP),
    "zst": lambda: zstandard.ZstdDecompressor(max_window_size=_LONGEST_WINDOW).decompressobj(),
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    "bz2": bz2.BZ2Decompressor,
}
COMPRESSIONS = tuple(_BEGIN)
_PADDED = ("gz", "xz")  # with NUL, behind a frame


class Damaged(Exception):
    """Data that no program has compressed so."""


ERRORS = (EOFError, Damaged)


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
            if self._compression in _PADDED and self._has_frames:
                data = data.lstrip(b"\0")
            if not data:
                return b""
            self._frame, self._has_frames = _BEGIN[self._compression](), True
        try:
            text = self._frame.decompress(data)
        except (OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
            raise Damaged(str(error)) from error
        if self._frame.eof:
            self._left, self._frame = self._frame.unused_data, None
        return text
