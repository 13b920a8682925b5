"""Writes a file of lines in chunks, so that a killed process neither loses nor repeats lines.

    file = ResumableFile("out/tmp-task", "out/task-predict.jsonl", {"mode": "predict"})
    file.check(digest_of_first(file.lines))               # lines that earlier processes wrote
    file.add(write, digest)                               # write(path) writes some more
    file.merge()                                          # joins the chunks in the one file
    file.delete_notes()                                   # once nothing is to be resumed

A chunk is written under another name and renamed when it is complete. So every chunk that exists is
complete, unless a disk has lost its end: then it and those after it are written again. The folder
also keeps `notes` and a digest of the examples that the lines were made of; resuming requires the
same notes and examples. Both stay until `delete_notes`, so that a run over several files recognizes
the finished ones.
"""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from common.errors import UserError
from common.small_files import parsing, read_json

gfile = tf.io.gfile
_START_ANEW = "delete that folder, or set another INFER_OUTPUT_DIR"


class ResumableFile:
    """The chunks in `folder` written so far, and the file `path` that they become.

    `notes`, plain JSON, are all that the lines depend on. `finished` tells whether the file exists
    and was written with these notes. Raise UserError if the folder holds chunks with other notes.
    """

    def __init__(self, folder: str, path: str, notes: Mapping[str, Any]):
        self.folder, self.path = folder, path
        self.stem = os.path.join(folder, os.path.basename(path))
        self._marker = f"{self.stem}-finished"
        self._digests = f"{self.stem}-examples.json"
        self._counts: list[int] = []
        gfile.makedirs(folder)
        is_written = gfile.exists(self._marker) and gfile.exists(path)
        self.finished = is_written and self._is_whole(path)
        self._check_notes(json.loads(json.dumps(notes)))
        self._count_chunks()

    @property
    def lines(self) -> int:
        """Number of lines in all chunks, or in the file if it is finished."""
        return _lines_in(self.path) if self.finished else sum(self._counts)

    def check(self, digest: str) -> None:
        """Raise UserError unless these lines were made of examples of this digest."""
        if self.lines and self._read(self._digests).get(str(self.lines)) != digest:
            raise UserError(
                self.folder,
                why="holds lines made of other examples: the corpus or its task has changed since",
                to_set=_START_ANEW,
            )

    def add(self, write: Callable[[str], None], digest: str) -> None:
        """Call `write` with the path to write the next chunk to.

        `digest` covers all examples up to the end of the chunk.
        """
        chunk = self._chunk(len(self._counts))
        write(f"{chunk}.tmp")
        lines = _lines_in(f"{chunk}.tmp")
        digests = self._read(self._digests) if self._counts else {}
        self._write(self._digests, digests | {str(self.lines + lines): digest})
        gfile.rename(f"{chunk}.tmp", chunk, overwrite=True)
        self._counts.append(lines)

    def merge(self) -> None:
        """Join the chunks in one file, then delete them."""
        unfinished = os.path.join(self.folder, "merged.tmp")
        with gfile.GFile(unfinished, "wb") as merged:
            for chunk in self._chunks():
                with gfile.GFile(chunk, "rb") as part:
                    shutil.copyfileobj(part, merged)
        gfile.rename(unfinished, self.path, overwrite=True)
        with gfile.GFile(self._marker, "w") as file:
            file.write("")
        # Last chunk first: if the process is killed here, the first chunks are left.
        for chunk in reversed(self._chunks()):
            gfile.remove(chunk)
        self.finished = True

    def delete_notes(self) -> None:
        """Delete everything but the complete file."""
        if gfile.exists(self._marker):  # first, as it is meaningless without the notes
            gfile.remove(self._marker)
        gfile.rmtree(self.folder)

    def _count_chunks(self) -> None:
        """Count the lines of the chunks; delete the first that is cut off, and those after it."""
        chunks = self._chunks()
        for number, chunk in enumerate(chunks):
            if not self._is_whole(chunk):
                logging.warning("%s is cut off, so its lines and later ones are made again.", chunk)
                for damaged in reversed(chunks[number:]):
                    gfile.remove(damaged)
                return
            self._counts.append(_lines_in(chunk))

    def _is_whole(self, path: str) -> bool:
        """Return whether a file ends with a line that was noted as the last one of a chunk."""
        with gfile.GFile(path, "rb") as file:
            size = file.size()
            file.seek(max(0, size - 1))
            ends_with_line = file.read() == b"\n"
        lines = sum(self._counts) + _lines_in(path)
        return ends_with_line and str(lines) in self._read(self._digests)

    def _chunk(self, number: int) -> str:
        return f"{self.stem}-chunk{number:05}"

    def _chunks(self) -> list[str]:
        return list(itertools.takewhile(gfile.exists, map(self._chunk, itertools.count())))

    def _check_notes(self, notes: Mapping[str, Any]) -> None:
        path = f"{self.stem}-notes.json"
        if not self._chunks() and not self.finished:
            self._write(path, notes)
            return
        earlier = self._read(path)
        for name in sorted({*earlier, *notes}):
            if earlier.get(name) != notes.get(name):
                value = repr(earlier[name]) if name in earlier else "that was not noted"
                why = f"holds lines made with {name} {value}, and this is {notes.get(name)!r}"
                raise UserError(self.folder, why=why, to_set=_START_ANEW)

    def _read(self, path: str) -> dict[str, Any]:
        with parsing(path, f"delete {self.folder}, or set another INFER_OUTPUT_DIR"):
            return read_json(path)

    def _write(self, path: str, content: Mapping[str, Any]) -> None:
        with gfile.GFile(f"{path}.tmp", "w") as file:
            file.write(json.dumps(content))
        gfile.rename(f"{path}.tmp", path, overwrite=True)


def _lines_in(path: str) -> int:
    with gfile.GFile(path, "rb") as file:
        return sum(1 for _ in file)
