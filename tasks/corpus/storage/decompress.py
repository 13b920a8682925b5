"""Decompression that notices a missing end.

    with decompressed(open("a.jsonl.zst", "rb"), "zst") as stream: ...

A file is one or more frames (members, streams), and each marks its end. A file that ends in
between, or holds none, raises EOFError, and damaged data raise Damaged.
"""

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import zstandard

from tasks.corpus.storage.chunks import stream_of

# Of compressed data at once. Their text is held, which a bomb makes 32,768 times as large: 64 MiB.
READ_BYTES = 1 << 11
_GZIP = 16 + zlib.MAX_WBITS
# The longest that zstd writes, with --long=31; the default limit is 1 << 27.
_LONGEST_WINDOW = 1 << 31
_BEGIN = {
    "gz": lambda: zlib.decompressobj(_GZIP),
    "zst": lambda: zstandard.ZstdDecompressor(max_window_size=_LONGEST_WINDOW).decompressobj(),
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    "bz2": bz2.BZ2Decompressor,
}
COMPRESSIONS = tuple(_BEGIN)
_PADDED = ("gz", "xz")  # compressions that allow NUL bytes after a frame


class Damaged(Exception):
    """Data that no program has compressed so."""


ERRORS = (EOFError, Damaged)


def decompressed(raw: BinaryIO, compression: str) -> BinaryIO:
    """Return what `raw` holds, decompressed; `compression` is one of COMPRESSIONS."""
    return stream_of(_texts(raw, compression))


def _texts(raw: BinaryIO, compression: str) -> Iterator[bytes]:
    """Yield the text of all frames (or members), one after the other."""
    frame: Any = None  # the frame that has begun
    left, has_frames = b"", False
    while data := left or raw.read(READ_BYTES):
        left = b""
        if frame is None:
            if compression in _PADDED and has_frames and not (data := data.lstrip(b"\0")):
                continue
            frame, has_frames = _BEGIN[compression](), True
        try:
            yield frame.decompress(data)
        except (OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
            raise Damaged(str(error)) from error
        if frame.eof:
            left, frame = frame.unused_data, None
    if frame or not has_frames:
        raise EOFError(f"its {compression} data have no end")
