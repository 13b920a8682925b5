"""All records of a split in a temporary file, so that they can be read in any order.

    store = RecordStore(corpus_split)        # nothing is read yet
    len(store)                               # one pass over the files, in their order
    store.read(np.array([17, 4]))            # Records(texts=[b"…", b"…"], codes=array([0, 0]))

A record's number is its place in the files, whether it is usable or skipped; copies follow their
record and have numbers too. Memory holds none of
them: texts and their places are in two files without a name in the folder for temporary files
(TMPDIR), which the system deletes when the process ends, however it ends.
"""

import errno
import mmap
import tempfile
import threading
import time
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from absl import logging

from tasks.corpus.counts import EXTRA_COPIES, MOST_LABELS, code
from tasks.corpus.documents import Column, judge
from tasks.corpus.files import CorpusFile
from tasks.corpus.retry import shutting_down
from tasks.corpus.shard_assignment import CorpusSplit

_SKIPPED = -1  # the length of a skipped record's text
_COPY = code([EXTRA_COPIES])
_ENTRY = np.dtype([("start", np.int64), ("length", np.int32), ("code", np.int32)])


class Records(NamedTuple):
    """The usable texts among some records, in UTF-8, and how all of them are counted.

    `codes`: int32 [k], see `counts.code`.
    """

    texts: list[bytes]
    codes: np.ndarray


class RecordStore:
    """The records of a split, by number; safe to use from several threads."""

    def __init__(self, split: CorpusSplit):
        self._split = split
        self.labels: list[str] = []  # some labels that no class lists
        self._lock = threading.Lock()
        self._texts: mmap.mmap | bytes | None = None  # None until the files were read
        self._entries: np.ndarray = np.empty(0, _ENTRY)

    def __len__(self) -> int:
        """Return the number of records; the first call reads all files.

        Raises:
          ValueError: a column is missing, or the folder for temporary files is full.
        """
        with self._lock:
            if self._texts is None:
                self._texts = self._read_files()
        return len(self._entries)

    @property
    def mean_bytes(self) -> float:
        """The mean length of a record's text, at least 1."""
        return max(len(self._texts or b"") / max(len(self), 1), 1.0)

    def read(self, numbers: np.ndarray) -> Records:
        """Return the records of these numbers, int64 [k], each below `len(self)`."""
        texts = self._texts
        assert texts is not None, "no number is valid before `len` has read the files"
        chosen = self._entries[numbers]
        usable = chosen[chosen["length"] != _SKIPPED]
        starts, ends = usable["start"], usable["start"] + usable["length"]
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        return Records([texts[start:end] for start, end in places], chosen["code"])

    def _read_files(self) -> mmap.mmap | bytes:
        started, split = time.monotonic(), self._split
        try:
            found = self._store_all()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ValueError(
                f"the folder for temporary files, {tempfile.gettempdir()}, cannot hold the texts "
                f"of corpus {split.corpus} ({error.strerror}): set TMPDIR to a folder with more "
                "space, or tasks.corpus.source.full_shuffle.gigabytes to 0 to stream the corpus"
            ) from error
        logging.info(
            "corpus %s: read %d records of split %r in %.1f s, to permute all of them",
            *(split.corpus, len(self._entries), split.name, time.monotonic() - started),
        )
        return found

    def _store_all(self) -> mmap.mmap | bytes:
        split = self._split
        with _temporary() as texts, _temporary() as entries:
            for file in split.files:
                for part in range(split.retry(lambda f=file: split.layout.count(f), file)):
                    self._add_part(file, part, texts, entries)
            texts.flush()
            entries.flush()
            if entries.tell():
                self._entries = np.memmap(entries, _ENTRY, "r")
            used = texts.tell()
            return mmap.mmap(texts.fileno(), used, access=mmap.ACCESS_READ) if used else b""

    def _add_part(self, file: CorpusFile, part: int, texts: BinaryIO, entries: BinaryIO) -> None:
        marks = texts.tell(), entries.tell()
        column = self._split.column.of_file(file.url)

        def add() -> None:
            for stored, mark in zip((texts, entries), marks, strict=True):
                stored.seek(mark)
                stored.truncate()  # what an attempt that failed has left
            for batch in self._split.batches(file, part):
                if shutting_down.is_set():
                    return
                self._append(batch, column, texts, entries)

        self._split.retry(add, file)

    def _append(self, batch: list, column: Column, texts: BinaryIO, entries: BinaryIO) -> None:
        kept, places, at = [], [], texts.tell()
        found = judge(batch, column, self._split.max_chars)
        for text, names, label, copies in found:
            places.append((at, _SKIPPED if text is None else len(text), code(names)))
            if text is not None:
                places += [(at, len(text), _COPY)] * (copies - 1)
                kept.append(text)
                at += len(text)
            if label is not None and len(self.labels) < MOST_LABELS:
                self.labels = list(dict.fromkeys([*self.labels, label]))
        texts.write(b"".join(kept))
        entries.write(np.array(places, _ENTRY).tobytes())


def _temporary() -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile())
