"""A file of lines written chunk by chunk, so that a kill loses and doubles none.

output = ChunkedFile("out/tmp-task", "out/task-predict.jsonl-00000-of-00001", {"mode": "predict"})
for lines in work_from(output.lines):                 # what earlier starts have done
    output.add(write, len(lines))                     # write(path) writes them
output.merge()                                        # chunks become the one file
output.forget()                                       # nothing is left to go on with

A chunk is written under another name and renamed when it is whole, so what stands under its own
name counts. `notes` are kept beside the chunks: whoever goes on must bring the same. They stay
until `forget`: so of several files those that are whole are known as such.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

gfile = tf.io.gfile


class ChunkedFile:
    """The chunks written so far, and the file they become.

    Args:
      folder: of the chunks, made if it is not there.
      path: of the whole file.
      notes: what the lines depend on; plain JSON.

    Attributes:
      finished: whether the whole file is there, made with these notes and not forgotten.

    Raises:
      ValueError: the folder holds chunks with other notes.
    """

    def __init__(self, folder: str, path: str, notes: Mapping[str, Any]):
        self.folder, self.path = folder, path
        self._stem = os.path.join(folder, os.path.basename(path))
        self._marker = f"{self._stem}-finished"
        gfile.makedirs(folder)
        self.finished = gfile.exists(self._marker) and gfile.exists(path)
        self._check_notes(json.loads(json.dumps(notes)))
        self._counts = [_lines_in(chunk) for chunk in self._whole()]

    @property
    def lines(self) -> int:
        """Lines in all whole chunks."""
        return sum(self._counts)

    def add(self, write: Callable[[str], None]) -> None:
        """Lets `write` write the next chunk to the path it is given."""
        chunk = self._chunk(len(self._counts))
        write(f"{chunk}.tmp")
        gfile.rename(f"{chunk}.tmp", chunk, overwrite=True)
        self._counts.append(_lines_in(chunk))

    def merge(self) -> None:
        """Makes the one file of the chunks, then deletes these."""
        unfinished = os.path.join(self.folder, "merged.tmp")
        with gfile.GFile(unfinished, "wb") as merged:
            for chunk in self._whole():
                with gfile.GFile(chunk, "rb") as part:
                    shutil.copyfileobj(part, merged)
        gfile.rename(unfinished, self.path, overwrite=True)
        with gfile.GFile(self._marker, "w") as file:
            file.write("")
        # The last first: what a kill leaves of them is the beginning.
        for chunk in reversed(self._whole()):
            gfile.remove(chunk)
        self.finished = True

    def forget(self) -> None:
        """Deletes all but the whole file."""
        if gfile.exists(self._marker):  # first: without its notes it would mean nothing
            gfile.remove(self._marker)
        gfile.rmtree(self.folder)

    def _chunk(self, number: int) -> str:
        return f"{self._stem}-chunk{number:05}"

    def _whole(self) -> list[str]:
        chunks, number = [], 0
        while gfile.exists(self._chunk(number)):
            chunks.append(self._chunk(number))
            number += 1
        return chunks

    def _check_notes(self, notes: Mapping[str, Any]) -> None:
        path = f"{self._stem}-notes.json"
        if self._whole() or self.finished:
            with gfile.GFile(path) as file:
                before = json.loads(file.read())
            for name in sorted({*before, *notes}):
                if before.get(name) != notes.get(name):
                    made = repr(before[name]) if name in before else "that was not noted"
                    raise ValueError(
                        f"{self.folder} holds lines made with {name} {made}, and this is "
                        f"{notes.get(name)!r}; delete that folder, or set another INFER_OUTPUT_DIR."
                    )
            return
        with gfile.GFile(f"{path}.tmp", "w") as file:
            file.write(json.dumps(notes))
        gfile.rename(f"{path}.tmp", path, overwrite=True)


def _lines_in(path: str) -> int:
    with gfile.GFile(path, "rb") as file:
        return sum(1 for _ in file)
