"""Reads the lines of a file, each complete.

    read_between(file, 0, 1 << 20, longest=80_000_000)     # those that begin in the first MiB
    read_lines(stream, longest=80_000_000)

A line that is longer than allowed becomes TOO_LONG and is never held in memory.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from tasks.corpus.records.values import TOO_LONG
from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile

LONGEST_LINE = 80_000_000  # bytes: 10,000,000 characters in any encoding, also JSON's
_SKIPPED_BYTES = 1 << 16  # bytes of a long line that are read at a time


def read_lines(stream: BinaryIO, longest: int) -> Iterator[Any]:
    """Yield the lines of a stream, with their ends."""
    while line := stream.readline(longest + 1):
        if len(line) <= longest or line.endswith(b"\n"):
            yield line
        else:
            while line and not line.endswith(b"\n"):
                line = stream.readline(_SKIPPED_BYTES)
            yield TOO_LONG


def read_between(file: CorpusFile, start: int, stop: int, longest: int) -> list[Any]:
    """Return the non-empty lines that begin at bytes `start`..`stop`-1, without their ends."""
    end = files.known_size(file)
    # The last line ends after `stop`: mostly within some slack, which the same read covers.
    slack = max((stop - start) // 64, 64)
    first_byte, reach = max(start - 1, 0), min(stop + slack, end)
    slack = reach - stop
    data = files.read_range(file, first_byte, reach)
    first = 0 if start == 0 else data.find(b"\n") + 1
    if (start and not first) or first_byte + first >= stop:
        return []
    last_byte = max(stop - 1 - first_byte, 0)
    last_line = max(data.rfind(b"\n", 0, last_byte) + 1, first)
    while b"\n" not in data[last_byte:] and reach < end and len(data) <= last_line + longest:
        slack = max(4 * slack, 64)
        beyond = min(reach + slack, end, first_byte + last_line + longest + 1)
        data += files.read_range(file, reach, beyond)
        reach = beyond
    last = data.find(b"\n", last_byte)
    lines = data[first : len(data) if last < 0 else last].split(b"\n")
    nonblank = [line for line in lines if line.strip()]
    if len(data) > longest:
        return [TOO_LONG if len(line) > longest else line for line in nonblank]
    return nonblank
