"""Whose share of a corpus is what: files to shards, else parts of files, else single records.

share = Share.of(source, "train", index=3, num_shards=16)
[(file, part) for file in share.files for part in share.parts(file)]
"""

import dataclasses

from absl import logging

from tasks.io import files
from tasks.io.files import File
from tasks.io.retry import patiently


class Share:
    """Which files, parts and records of a split are one shard's."""

    def __init__(self, source, every: list[File], index: int, num_shards: int):
        self.all = every
        self.by_records = False
        self._source = source
        self._part_bytes: int | None = None
        self._index = index
        self._num_shards = num_shards
        self._parts_before: list[int] | None = None
        self.files = list(range(index, len(every), num_shards))

    @classmethod
    def of(cls, source, split: str, index: int, num_shards: int) -> "Share":
        """Cuts a split: by files if there are enough, else by parts, else by records."""
        share = cls(source, source.list_files(split), index, num_shards)
        if len(share.all) < num_shards:
            patiently(share._cut_files, f"cutting {source.name}", source.patience)
        if share.by_records and (split, num_shards) not in source.warned:
            source.warned.add((split, num_shards))  # every shard finds the same
            share._warn(split)
        return share

    def _cut_files(self) -> None:
        self.files = list(range(len(self.all)))
        layouts = [self.layout(file) for file in self.all]
        divisible = all(lay.divisible(f) for lay, f in zip(layouts, self.all, strict=True))
        if divisible:
            self._part_bytes = self._small_parts()
            counts = [self.layout(file).parts(file) for file in self.all]
            if sum(counts) >= self._num_shards:
                self._parts_before = [sum(counts[:i]) for i in range(len(counts))]
                return
        self.by_records = True

    def _warn(self, split: str) -> None:
        n, files_there = self._num_shards, len(self.all)
        logging.warning(
            "corpus %s has %d %s in split %r, which cannot be cut into %d shards: each shard reads "
            "all of it and keeps every %dth record, so all of it is read, parsed and, without "
            "STREAM_CACHE_DIR, fetched %d times; cut it into %d files or more, or write it as "
            "parquet or uncompressed JSONL",
            *(self._source.name, files_there, "file" if files_there == 1 else "files", split),
            *(n, n, n, n),
        )

    def _small_parts(self) -> int:
        """Byte ranges so small that every shard has several."""
        total = sum(files.size(f) for f in self.all if f.kind != "parquet")
        usual = min(self._source.layout(f).part_bytes for f in self.all)
        return max(min(usual, total // (4 * self._num_shards)), 1 << 10)

    def layout(self, file: File):
        """Returns how `file` is cut, the same for all shards."""
        layout = self._source.layout(file)
        if self._part_bytes is not None:
            layout = dataclasses.replace(layout, part_bytes=self._part_bytes)
        return layout

    def parts(self, file: int) -> list[int]:
        """Returns the parts of a file that are this shard's."""
        which = self.all[file]
        parts = range(self.layout(which).parts(which))
        if self._parts_before is None:
            return list(parts)
        before = self._parts_before[file]
        return [p for p in parts if (before + p) % self._num_shards == self._index]
