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

from collections.abc import Callable, Mapping, Sequence

import seqio
import tensorflow as tf

from common.errors import UserError
from tasks.corpus import slices
from tasks.corpus.catalog import Files
from tasks.corpus.listing import Parallel
from tasks.corpus.records.documents import SEPARATOR, Columns
from tasks.corpus.records.formats import PARALLEL_COLUMNS
from tasks.corpus.source import PARTS, CorpusSource


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
      max_examples: use only so many rows of the training split, its first usable ones.
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
        **settings,
    ):
        if parallel:
            columns = columns or dict(zip(("inputs", "targets"), PARALLEL_COLUMNS, strict=True))
            files = {split: Parallel(*pair) for split, pair in parallel.items()}
        if not columns:
            raise UserError(
                "Rows needs `columns`, the column of each feature: name them, or take "
                "tasks.corpus.source.CorpusSource where a document is one text"
            )
        if max_examples is not None and max_examples < 1:
            raise UserError(f"max_examples is {max_examples}, but must be at least 1")
        self.max_examples, self.names = max_examples, tuple(columns)
        column = Columns(columns, labels, clean, lists)
        super().__init__(corpus, config, column=column, files=files, **settings)

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **others,
    ) -> tf.data.Dataset:
        """Return one epoch, as CorpusSource does, with the features that `columns` names."""
        if slices.parse(split):
            return super().get_dataset(split, shuffle, seed, shard_info)
        few = self._few(split)
        if few is None:
            return self._named(super().get_dataset(split, shuffle, seed, shard_info, **others))
        # Every shard reads the first rows of the corpus, and takes some of them.
        dataset = super().get_dataset(split, False, seed, None, **others).take(few)
        if shard_info:
            n = min(shard_info.num_shards, few)
            dataset = dataset.shard(n, shard_info.index % n)
        return self._named(dataset.shuffle(few, seed) if shuffle else dataset)

    def _few(self, split: str) -> int | None:
        """Return how many rows of a split are used, None for all."""
        return self.max_examples if split == "train" else None

    def order(self, split: str) -> str:
        """Return what a shuffled epoch permutes, as CorpusSource does."""
        return super().order(split) if self._few(split) is None else PARTS

    def mixing(self, split: str, num_shards: int) -> str:
        """Return how far a shuffled epoch mixes the rows, as CorpusSource does."""
        if few := self._few(split):
            return f"every epoch is a permutation of the first {few:,} usable rows"
        return super().mixing(split, num_shards)

    def check_shards(self, split: str, num_shards: int, limit_s: float = 30.0) -> None:
        """Raise UserError for fewer texts than shards, as CorpusSource does."""
        if self._few(split) is None:  # several shards share few
            super().check_shards(split, num_shards, limit_s)

    def _named(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        def fn(example):
            parts = tf.strings.split(example["text"], SEPARATOR)
            return {name: tf.strings.strip(parts[i]) for i, name in enumerate(self.names)}

        return dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)

    def peek(self, split: str = "train", n: int = 1, limit_s: float = 30.0) -> list[str]:
        """Return the first `n` texts, as CorpusSource does, with a line for each column."""
        return [text.replace(SEPARATOR, "\n") for text in super().peek(split, n, limit_s)]

    def peek_features(
        self, split: str = "train", n: int = 1, limit_s: float = 30.0
    ) -> dict[str, list[str]]:
        """Return the first `n` documents as features, by name."""
        found = super().peek(split, n, limit_s)
        rows = [[part.strip() for part in text.split(SEPARATOR)] for text in found]
        return {name: [row[i] for row in rows] for i, name in enumerate(self.names)}
