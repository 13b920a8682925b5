"""Corpora whose documents have several columns, and pairs of files line by line.

    Rows("cnn_dailymail", "3.0.0", columns={"inputs": "article", "targets": "highlights"})
    Rows(files={"train": "train.csv", "test": "test.csv"}, held_out={"validation": 0.05},
         columns={"inputs": "{Title}\\n{Body}", "targets": "Y"},
         labels={"targets": {"LQ_CLOSE": "none", "LQ_EDIT": "low", "HQ": "high"}})
    Rows(parallel={"train": ("train.ro", "train.en")})     # line by line, source and target

Rows are streamed, shuffled, sharded and resumed as `tasks.corpus.source.CorpusSource` does it.
Unusable ones (a column that is empty or missing, an unknown label, bytes that are not UTF-8) are
skipped and counted by reason.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

from common.errors import UserError
from common.source import PARTS, Reading
from tasks.corpus import excerpt, slices, tf_callbacks
from tasks.corpus.catalog import Files
from tasks.corpus.listing import Parallel
from tasks.corpus.records.documents import Columns
from tasks.corpus.records.formats import PARALLEL_COLUMNS
from tasks.corpus.source import CorpusSource
from tasks.corpus.split import CorpusSplit


class Rows(CorpusSource):
    """A corpus source whose documents are {name: string scalar} of several columns.

    Args:
      corpus: as in CorpusSource; None with `parallel` or `files`.
      config: as in CorpusSource.
      columns: by feature, a column or template.
      labels: by feature, the name of each value of its column; rows with other values are skipped.
        Numbers are given as they are written, {"0": "low"}.
      clean: by column, a function applied to its text first, {"Body": html_text.text_of}.
      lists: by column, a function that makes one text of the texts in it, {"tokens": " ".join}.
      parallel: by split, two files or patterns, sources and targets line by line.
      files: as in CorpusSource.
      max_examples: use only so many rows of the training split, always the same ones, drawn evenly
        from it; each label that `labels` names has its share.
      group: with `held_out`, the column or template whose text decides on which side a row is; rows
        with the same text are on one side. By default it is that of the first feature, the input;
        "" is the whole row.
      **settings: other arguments of CorpusSource.

    Raises:
      UserError: impossible settings.
    """

    def __init__(
        self,
        corpus: str | None = None,
        config: str | None = None,
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        clean: Mapping[str, Callable[[str], str]] | None = None,
        lists: Mapping[str, Callable[[Sequence[str]], str]] | None = None,
        parallel: Mapping[str, tuple[str, str]] | None = None,
        files: Files | None = None,
        max_examples: int | None = None,
        group: str | None = None,
        **settings,
    ):
        if parallel:
            columns = columns or dict(zip(("inputs", "targets"), PARALLEL_COLUMNS, strict=True))
            files = {split: Parallel(*pair) for split, pair in parallel.items()}
        if not columns:
            raise UserError(
                "columns",
                columns,
                "but Rows needs the column of each feature",
                "name them, or take tasks.corpus.source.CorpusSource where a document is one text",
            )
        if max_examples is not None and max_examples < 1:
            raise UserError("max_examples", max_examples, "but must be at least 1")
        self.max_examples, self.names = max_examples, tuple(columns)
        column = Columns(columns, labels, clean, lists, group)
        super().__init__(corpus, config, column=column, files=files, **settings)

    def _begin(self) -> None:
        super()._begin()
        self._few_rows: dict[CorpusSplit, list[tuple[bytes, ...]]] = {}

    def open(self, split: str, reading: Reading) -> tf.data.Dataset:
        """Return a dataset, as CorpusSource does, with the features that `columns` names."""
        if slices.parse(split):  # the slice is opened by a call of its own
            return super().open(split, reading)
        most = self._few(split)
        if most is None:
            return self._stripped(super().open(split, reading))
        rows = self._drawn(split, most)
        n = max(min(reading.shards, len(rows)), 1)
        places = tf.data.Dataset.range(len(rows)).shard(n, reading.shard % n)
        if reading.shuffle:
            places = places.shuffle(most, reading.seed)
        texts = [tf.TensorSpec([], tf.string)] * len(self.names)
        read = lambda place: tf_callbacks.call(lambda i: rows[i], texts, place)
        return places.map(lambda place: dict(zip(self.names, read(place), strict=True)))

    def _drawn(self, split: str, most: int) -> list[tuple[bytes, ...]]:
        """Return the rows that are used of a split; the first call reads them."""
        corpus = self.corpus_split(split)
        if corpus not in self._few_rows:
            whole = copy.copy(self)
            whole.max_examples = None
            labels = cast(Columns, self.column).names_of
            rows = excerpt.few(whole, split, most, next(filter(labels, self.names), None))
            self._few_rows[corpus] = [tuple(text.encode() for text in row.values()) for row in rows]
        return self._few_rows[corpus]

    def _few(self, split: str) -> int | None:
        """Return how many rows of a split are used, None for all."""
        return self.max_examples if split == "train" else None

    def order(self, split: str) -> str:
        """Return what a shuffled epoch permutes, as CorpusSource does."""
        return super().order(split) if self._few(split) is None else PARTS

    def identity(self, split: str) -> dict[str, Any]:
        """Return what a data position depends on, as CorpusSource does."""
        few = self._few(split)
        return super().identity(split) | ({"max_examples": few} if few else {})

    def mixing(self, split: str, num_shards: int) -> str:
        """Return how far a shuffled epoch mixes the rows, as CorpusSource does."""
        if most := self._few(split):
            return f"every epoch is a permutation of the same {most:,} rows"
        return super().mixing(split, num_shards)

    def check_shards(self, split: str, num_shards: int) -> None:
        """Raise UserError for fewer texts than shards, as CorpusSource does."""
        if self._few(split) is None:  # several shards share few
            super().check_shards(split, num_shards)

    def peek_features(self, split: str = "train", n: int = 1) -> dict[str, list[str]]:
        """Return the first `n` documents as features, by name."""
        rows = self._peek(split, n)
        text_of = lambda row, i: row[i].decode().strip()
        return {name: [text_of(row, i) for row in rows] for i, name in enumerate(self.names)}

    def _stripped(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Return the features of the rows, without white space around their texts."""
        strip = lambda row: {name: tf.strings.strip(row[name]) for name in self.names}
        return dataset.map(strip, num_parallel_calls=tf.data.AUTOTUNE)
