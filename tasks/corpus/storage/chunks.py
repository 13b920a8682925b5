"""A stream of bytes that are made chunk by chunk.

    with stream_of(iter([b"un ", b"text"])) as stream:
        stream.read()       # b"un text"

A chunk is made when those before it were read.
"""

import io
from collections.abc import Iterator
from typing import BinaryIO, cast

_BUFFER_BYTES = 1 << 17


def stream_of(chunks: Iterator[bytes]) -> BinaryIO:
    """Return a stream of the chunks, each of which is made when those before it were read."""
    return cast(BinaryIO, io.BufferedReader(_Chunks(chunks), _BUFFER_BYTES))


class _Chunks(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]):
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._left:
            if (chunk := next(self._chunks, None)) is None:
                return 0
            self._left = memoryview(chunk)
        n = min(len(buffer), len(self._left))
        buffer[:n], self._left = self._left[:n], self._left[n:]
        return n
