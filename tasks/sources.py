"""Corpora as seqio data sources: streamed, shuffled anew each epoch, resumed where they were.

    source = CorpusSource("dumitrescustefan/rlm")                      # the hub
    source = CorpusSource("/data/ro", column="body")                   # /data/ro/train*.jsonl ...
    source = CorpusSource(files={"train": "https://example.org/ro-*.jsonl.zst"})
    source.peek("train", 2)                                            # the first two texts

The order of an epoch follows from (seed, epoch): files, parts of files (`tasks.io.formats`) and
records within a batch are permuted; seed 0 is a seed. What is read at a place of that order is a
function of the place alone, so tf.data's own iterator state (a few kilobytes) is the whole
position: `tf.train.Checkpoint(iterator)` restores it exactly, and reading goes on after at most
one part (of a compressed or CSV file: one file) has been read again.

A shard of the source reads files of its own; where there are fewer files than shards, parts of
its own; last, every record but keeps its own, and says so.
"""

import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow as tf
from absl import logging

import gin
from tasks.documents import Column, screen
from tasks.io import files, formats, hub, stream_cache
from tasks.io.files import File
from tasks.io.retry import Patience, passes, patiently
from tasks.record_counts import RecordCounter
from tasks.streaming import shard_reader, tf_callbacks

LOCAL_PART_BYTES = 1 << 20
REMOTE_PART_BYTES = 8 << 20
_FOLDER = ("/", ".", "~")


@gin.configurable
def mirrors(folders: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Where copies of hub corpora lie, as `python -m tasks.mirror` makes them, by their names."""
    return folders or {}


class Unreachable(ValueError, ConnectionError):
    """A corpus that may be there another time."""


class CorpusSource(seqio.DataSource):
    """Documents of a corpus as {"text": string scalar}.

    Args:
      corpus: "user/name" on the hub; or a folder (a path that begins with / . or ~, or any
        address with ://) whose files' names begin with their split's; None if `files` is given.
      config: the hub data set's configuration.
      revision: the hub data set's branch, tag or commit.
      column: the column that holds the text, or a template of several, "{title}\\n{body}"; or a
        `documents.Column`, which filters too.
      files: file patterns by split, instead of `corpus`: local paths (** is allowed), http(s)
        addresses, gs://. The endings name the format: .jsonl .json .csv .tsv .txt .parquet, with
        .gz or .zst behind them if compressed.
      splits: the splits, or a mapping from ours to the corpus's, {"validation": "dev"}.
      documents: what a document is in plain text: "lines" or "paragraphs" (up to an empty line).
      max_chars: longer documents are skipped and counted.
      patience: how long a failing network is waited for.
    """

    def __init__(
        self,
        corpus: str | None = None,
        config: str | None = None,
        revision: str | None = None,
        column: str | Column = "text",
        files: Mapping[str, str | Sequence[str]] | None = None,
        splits: Sequence[str] | Mapping[str, str] = ("train", "validation"),
        documents: str = "lines",
        max_chars: int = 10_000_000,
        patience: Patience | None = None,
    ):
        if (corpus is None) == (files is None):
            raise ValueError("a corpus source needs either `corpus` or `files`, and not both")
        if documents not in ("lines", "paragraphs"):
            raise ValueError(f"documents is {documents!r}, but must be 'lines' or 'paragraphs'")
        if files is not None:
            splits = tuple(files)
        self._split_names = dict(splits) if isinstance(splits, Mapping) else {s: s for s in splits}
        self._patterns = files
        self._hub = (corpus, config, revision)
        self._listed: dict[str, list[File]] = {}
        self.column = Column(column)
        self.documents = documents
        self.max_chars = max_chars
        self._patience = patience
        self.name = corpus or ", ".join(dict.fromkeys(map(str, files.values())))
        self.counter = RecordCounter(self.name)
        self.warned: set[tuple[str, int]] = set()  # splits that a number of shards cannot share
        tf_callbacks.report_at_exit(self.counter)
        super().__init__(splits=tuple(self._split_names), caching_permitted=True)

    @property
    def supports_arbitrary_sharding(self) -> bool:
        """Any number of shards is served, whatever the number of files."""
        return True

    @property
    def is_local(self) -> bool:
        """Whether reading it never crosses the network."""
        corpus, patterns = self._hub[0], self._patterns
        if patterns is None:
            return "://" not in corpus and corpus.startswith(_FOLDER)
        lists = ([p] if isinstance(p, str) else p for p in patterns.values())
        return not any("://" in pattern for found in lists for pattern in found)

    @property
    def patience(self) -> Patience:
        """How long a failing network is waited for; by default as gin sets it when first asked."""
        return self._patience or Patience()

    def record_counts(self, split: str | None = None, distinct: bool = False) -> dict[str, int]:
        """Return what this process has read of a split; see `RecordCounter.counts`."""
        return self.counter.counts(split, distinct)

    def list_files(self, split: str, patience: Patience | None = None) -> list[File]:
        """Returns the split's files, sorted.

        Raises:
          ValueError: no such split, no file matches, or the corpus cannot be read; one sentence.
        """
        if split not in self._split_names:
            raise self._no_split(split, self._split_names)
        if split not in self._listed:
            patience = patience or self.patience
            find = lambda: self._find(split)
            try:
                self._listed[split] = patiently(find, f"listing {self.name}", patience)
            except Exception as error:
                if not passes(error):
                    raise
                self._listed[split] = self._remembered(split, error)
        return self._listed[split]

    def _find(self, split: str) -> list[File]:
        corpus, config, revision = self._hub
        theirs = self._split_names[split]
        if self._patterns is not None:
            patterns = self._patterns[split]
            return files.find([patterns] if isinstance(patterns, str) else patterns)
        if corpus in mirrors():
            return files.find([f"{mirrors()[corpus].rstrip('/')}/{split}-*"])
        if "://" in corpus or corpus.startswith(_FOLDER):
            return files.find([f"{corpus.rstrip('/')}/{theirs}*"])
        repository = hub.find(corpus, config, revision)
        if theirs not in repository.splits:
            raise self._no_split(theirs, repository.splits)
        found = files.listed_lengths(repository.splits[theirs])
        if stream_cache.current:
            stream_cache.current.remember(
                self._note(split), [dataclasses.astuple(f) for f in found]
            )
        return found

    def _note(self, split: str) -> str:
        return f"files of {self._hub} {self._split_names[split]}"

    def _remembered(self, split: str, error: BaseException) -> list[File]:
        """The files as they were when last listed, if there is a spool to tell."""
        told = stream_cache.current and stream_cache.current.remembered(self._note(split))
        if not told:
            raise self._unreachable(error) from error
        logging.warning("%s; going on with the files it had when last reached", error)
        return [File(*fields) for fields in told]

    def pin_revision(self, revision: str) -> None:
        """Reads the hub's data set as it was at a commit, unless a revision is set already."""
        corpus, config, now = self._hub
        if now is None and corpus is not None:
            self._hub = (corpus, config, revision)
            self._listed = {}

    def identity(self, split: str) -> dict[str, Any]:
        """What a position in a split holds for: the hub's commit, the files, how they are cut."""
        found = self.list_files(split)
        names = [f"{f.url.rsplit('/', 1)[-1]} {'' if f.remote else files.size(f)}" for f in found]
        return {
            "revision": hub.commit(found[0].url),
            "files": len(found),
            "names": zlib.crc32("\n".join(names).encode()),
            "remote": found[0].remote,
        }

    def listing(self, split: str) -> list[list]:
        """Returns a split's files for `use_listing`, as JSON holds them."""
        return [list(dataclasses.astuple(file)) for file in self.list_files(split)]

    def use_listing(self, split: str, listing: list[list]) -> None:
        """Takes over what another host has listed, so that not every host asks the hub."""
        found = [File(*fields) for fields in listing]
        if commit := hub.commit(found[0].url):
            self.pin_revision(commit)
        files.know(found)
        self._listed[split] = found

    def enable_stream_cache(self, folder: str | None, gigabytes: float) -> None:
        """Lets this process read through a spool in `folder`; see `tasks.io.stream_cache`."""
        stream_cache.keep(folder, gigabytes)

    def _no_split(self, split: str, known) -> ValueError:
        return ValueError(
            f"corpus {self.name!r} has no split {split!r}, only {', '.join(sorted(known))}: set "
            "the task's `splits`, which may map one name to another"
        )

    def _unreachable(self, error: BaseException) -> "Unreachable":
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return Unreachable(f"corpus {self.name!r} cannot be reached ({reason})")

    def layout(self, file: File) -> formats.Layout:
        """Returns how `file` is cut into parts."""
        part_bytes = REMOTE_PART_BYTES if file.remote else LOCAL_PART_BYTES
        return formats.Layout(self.column.fields, self.documents, part_bytes)

    def batches(self, file: File, part: int, layout: formats.Layout) -> Iterator[list]:
        """Yields the records of one part of `file` in batches.

        Raises:
          ValueError: the column is missing.
        """
        if file.kind == hub.STREAMED:
            found = formats.in_batches(hub.rows(hub.find(*self._hub), file))
        else:
            found = layout.batches(file, part)
        for i, batch in enumerate(found):
            if i == 0:
                formats.check_column(self.column.fields, batch, file)
            yield batch

    def peek(self, split: str = "train", n: int = 1, limit_s: float = 30.0) -> list[str]:
        """Returns the first `n` texts of a split, reading little: the check before a run.

        Raises:
          ValueError: one sentence on what is wrong: missing split or column, no file, no token,
            an unreachable corpus, or no usable text at its beginning.
        """
        patience = Patience(limit_s=limit_s)
        first = self.list_files(split, patience)[0]
        layout = formats.Layout(self.column.fields, self.documents, part_bytes=1 << 16)

        def read():
            texts, counter = [], RecordCounter(self.name)
            for part in range(layout.parts(first)):
                for batch in self.batches(first, part, layout):
                    texts += screen(batch, self.column, self.max_chars, counter.add)
                    if len(texts) >= n:
                        return texts, counter
            return texts, counter

        try:
            texts, counter = patiently(read, f"reading {first.url}", patience)
        except Exception as error:
            raise self._unreachable(error) if passes(error) else error from error
        if not texts:
            raise ValueError(
                f"{first.url} has no usable text in column {self.column.name!r}: of "
                f"{counter.counts()['read']} records read, skipped {counter.skipped()}"
                f"{self._remedy(counter)}"
            )
        return [text.decode() for text in texts[:n]]

    def _remedy(self, counter: RecordCounter) -> str:
        """What to do about a file of which nothing can be used, as the end of a sentence."""
        quoted = lambda labels: ", ".join(map(repr, labels))
        if counter.labels:
            return (
                f" (met {quoted(counter.labels)}; known are {quoted(self.column.known)}): list "
                "them in the task's labels"
            )
        if counter.counts()["skipped_not_UTF-8"]:
            return ": convert the file to UTF-8, by iconv, say"
        return ""

    def list_shards(self, split: str) -> Sequence[str]:
        """Returns the addresses of the split's files."""
        return [file.url for file in self.list_files(split)]

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        *,
        sequence_length=None,
        use_cached: bool = False,
        num_epochs: int | None = 1,
    ) -> tf.data.Dataset:
        """Returns one epoch of documents; each repetition of it (`.repeat()`) has a new order.

        Args:
          split: one of `self.splits`.
          shuffle: False gives the order of the files.
          seed: decides the orders of all epochs; None draws one.
          shard_info: which share of the corpus to read; None for all of it.
          sequence_length: unused, as are use_cached and num_epochs.
        """
        shard = shard_info or seqio.ShardInfo(0, 1)
        reader = shard_reader.Reader(self, split, shuffle, shard.index, shard.num_shards)
        if seed is not None:
            seed = zlib.crc32(str(seed).encode())
        return reader.dataset(seed)
