"""A file of lines written in chunks, so that a killed process neither loses nor repeats lines.

file = ResumableFile("out/tmp-task", "out/task-predict.jsonl", {"mode": "predict"})
for lines in work_from(file.lines):                   # lines that earlier processes wrote
    file.add(write)                                   # write(path) writes some more
file.merge()                                          # joins the chunks in the one file
file.delete_notes()                                   # once nothing is to be resumed

A chunk is written under another name and renamed when it is complete, so every chunk that exists
is complete. `notes` are kept next to the chunks, and resuming requires the same notes. They stay
until `delete_notes`, so that several files can be recognized as finished.
"""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from common.errors import UserError

gfile = tf.io.gfile


class ResumableFile:
    """The chunks in `folder` written so far, and the file `path` that they become.

    `notes`, plain JSON, are what the lines depend on; UserError is raised if the folder holds
    chunks with other notes. `finished` is whether the file exists, written with these notes.
    """

    def __init__(self, folder: str, path: str, notes: Mapping[str, Any]):
        self.folder, self.path = folder, path
        self._stem = os.path.join(folder, os.path.basename(path))
        self._marker = f"{self._stem}-finished"
        gfile.makedirs(folder)
        self.finished = gfile.exists(self._marker) and gfile.exists(path)
        self._check_notes(json.loads(json.dumps(notes)))
        self._counts = [_lines_in(chunk) for chunk in self._chunks()]

    @property
    def lines(self) -> int:
        """Number of lines in all chunks."""
        return sum(self._counts)

    def add(self, write: Callable[[str], None]) -> None:
        """Call `write` with the path to write the next chunk to."""
        chunk = self._chunk(len(self._counts))
        write(f"{chunk}.tmp")
        gfile.rename(f"{chunk}.tmp", chunk, overwrite=True)
        self._counts.append(_lines_in(chunk))

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

    def _chunk(self, number: int) -> str:
        return f"{self._stem}-chunk{number:05}"

    def _chunks(self) -> list[str]:
        return list(itertools.takewhile(gfile.exists, map(self._chunk, itertools.count())))

    def _check_notes(self, notes: Mapping[str, Any]) -> None:
        path = f"{self._stem}-notes.json"
        if not self._chunks() and not self.finished:
            with gfile.GFile(f"{path}.tmp", "w") as file:
                file.write(json.dumps(notes))
            gfile.rename(f"{path}.tmp", path, overwrite=True)
            return
        with gfile.GFile(path) as file:
            before = json.loads(file.read())
        for name in sorted({*before, *notes}):
            if before.get(name) != notes.get(name):
                made = repr(before[name]) if name in before else "that was not noted"
                raise UserError(
                    f"{self.folder} holds lines made with {name} {made}, and this is "
                    f"{notes.get(name)!r}; delete that folder, or set another INFER_OUTPUT_DIR."
                )


def _lines_in(path: str) -> int:
    with gfile.GFile(path, "rb") as file:
        return sum(1 for _ in file)
