"""The members of a tar archive that are data, read one after the other.

    for file, stream in members(raw, CorpusFile("/data/ro.tar.gz", "tar", "gz")): ...

They are all of one format, with names that differ in digits alone, as shards have them; else a
pattern chooses: "/data/leipzig.tar.gz#*-sentences.txt". An archive marks its end. One that lacks
it, or holds more after it, raises Damaged.
"""

import dataclasses
import re
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, cast

from common.errors import UserError
from tasks.corpus.storage import decompress, names
from tasks.corpus.storage.decompress import Damaged
from tasks.corpus.storage.files import CorpusFile

_BLOCK_BYTES = 512  # an archive consists of blocks of this size; one of zeros ends it


class _Blocks:
    """A stream that is read block by block, and keeps the last one."""

    def __init__(self, stream: BinaryIO):
        self._stream, self.last = stream, b""

    def read(self, n: int) -> bytes:
        if block := self._stream.read(n):
            self.last = block
        return block


def members(stream: BinaryIO, archive: CorpusFile) -> Iterator[tuple[CorpusFile, BinaryIO]]:
    """Yield each member that is data, and a stream of its text, decompressed.

    Raises:
      UserError: it is not clear which members are the data.
      Damaged: the archive is cut short or holds something else.
    """
    blocks, first = _Blocks(stream), None
    try:
        with tarfile.open(fileobj=cast(Any, blocks), mode="r|", bufsize=_BLOCK_BYTES) as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if not member.isfile() or not fnmatchcase(name, archive.members or "*"):
                    continue
                if name.startswith(".") or (file := names.data_in(name)) is None:
                    continue
                first = first or name
                if not archive.members and _shape(name) != _shape(first):
                    raise UserError(
                        str(archive),
                        why=f"holds {first!r} and {name!r}, and not all may be the data",
                        to_set=f"choose by a pattern of names, {archive}#{first}",
                    )
                opened = cast(BinaryIO, tar.extractfile(member))
                file = dataclasses.replace(file, url=f"{archive.url}#{member.name}")
                if file.compression:
                    opened = decompress.decompressed(opened, file.compression)
                yield file, opened
    except tarfile.TarError as error:
        raise Damaged(str(error)) from error
    if blocks.last != bytes(_BLOCK_BYTES):
        raise Damaged("its tar archive has no end")
    while rest := stream.read(1 << 16):
        if rest.strip(b"\0"):
            raise Damaged("more data follow the end of its tar archive")
    if first is None:
        raise UserError(str(archive), why="holds no file of a known format", to_set="unpack it")


def _shape(name: str) -> str:
    return re.sub(r"\d+", "0", name)
