"""The files, parts and records of a split that one shard reads.

    share = assign(corpus_split, index=3, num_shards=16)
    [(file, part) for file in share.files for part in share.parts(file)]

A shard has its own files; if there are fewer files than shards, its own parts of all files; if
these cannot be cut, it reads all records and keeps its own.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator

from absl import logging

from tasks.corpus import files, formats, hub
from tasks.corpus.documents import Column
from tasks.corpus.files import CorpusFile
from tasks.corpus.formats import PartLayout
from tasks.corpus.retry import RetryPolicy, retry


@dataclasses.dataclass(frozen=True)
class CorpusSplit:
    """The files of one split of a corpus, and how they are read.

    A source makes it; it holds data only, so that readers depend on no source.

    `max_chars`: longer documents are skipped. `repository`: the arguments of
    `hub.load_repository`, for files that only `datasets` reads.
    """

    corpus: str
    name: str
    files: tuple[CorpusFile, ...]
    layout: PartLayout
    column: Column
    max_chars: int
    retry_policy: RetryPolicy
    repository: tuple[str, str | None, str | None] | None = None

    def batches(self, file: CorpusFile, part: int) -> Iterator[list]:
        """Yield the records of one part of `file` in batches.

        Raises:
          ValueError: no record at the beginning of the file has a column of the text, or none at
            the beginning of the first file a column of a filter.
        """
        required = self.column.fields if file == self.files[0] else self.column.text_fields
        if file.kind == hub.STREAMED and self.repository:
            rows = hub.read_shard(hub.load_repository(*self.repository), file)
            return formats.check_columns(required, formats.in_batches(rows), file)
        return self.layout.batches(file, part, required)

    def retry(self, fn: Callable, file: CorpusFile):
        """Call `fn`, which reads `file`, until it succeeds."""
        return retry(fn, f"reading {file.url}", self.retry_policy)


@dataclasses.dataclass(frozen=True)
class Share:
    """What one shard reads of a split.

    `files`: numbers in `split.files`. `by_records`: the shard keeps only its own records.
    `parts_before`: for each file, the number of parts in the files before it, if parts are shared.
    """

    split: CorpusSplit
    index: int
    num_shards: int
    files: tuple[int, ...]
    by_records: bool = False
    parts_before: tuple[int, ...] | None = None

    def file(self, number: int) -> CorpusFile:
        """Return a file by its number."""
        return self.split.files[number]

    def parts(self, number: int) -> list[int]:
        """Return the parts of a file that are this shard's."""
        parts = range(self.split.layout.count(self.file(number)))
        if self.parts_before is None:
            return list(parts)
        before = self.parts_before[number]
        return [p for p in parts if (before + p) % self.num_shards == self.index]


def assign(split: CorpusSplit, index: int, num_shards: int) -> Share:
    """Return the share of shard `index`."""
    n = len(split.files)
    if n >= num_shards:
        return Share(split, index, num_shards, tuple(range(index, n, num_shards)))
    cut = lambda: _share_parts(split, index, num_shards)
    share = retry(cut, f"cutting {split.corpus}", split.retry_policy)
    if share.by_records:
        _warn_uncut(split.corpus, split.name, n, num_shards)
    return share


def _share_parts(split: CorpusSplit, index: int, num_shards: int) -> Share:
    every = tuple(range(len(split.files)))
    if all(split.layout.divisible(file) for file in split.files):
        # Byte ranges so small that every shard has several.
        total = sum(files.size(f) or 0 for f in split.files if f.kind != "parquet")
        usual = min(split.layout.bytes_per_part(f) for f in split.files)
        part_bytes = max(min(usual, total // (4 * num_shards)), 1 << 10)
        layout = dataclasses.replace(split.layout, part_bytes=part_bytes)
        split = dataclasses.replace(split, layout=layout)
        counts = [layout.count(file) for file in split.files]
        if sum(counts) >= num_shards:
            before = tuple(sum(counts[:i]) for i in every)
            return Share(split, index, num_shards, every, parts_before=before)
    return Share(split, index, num_shards, every, by_records=True)


@functools.cache  # every shard finds the same
def _warn_uncut(corpus: str, split: str, n_files: int, num_shards: int) -> None:
    logging.warning(
        "corpus %s has %d %s in split %r, which cannot be cut into %d shards: each shard reads "
        "all records and keeps every %dth, so the corpus is fetched and parsed %d times; cut it "
        "into %d files or more, or write it as parquet or uncompressed JSONL",
        *(corpus, n_files, "file" if n_files == 1 else "files", split),
        *(num_shards, num_shards, num_shards, num_shards),
    )
