"""Corpora whose documents have several columns, and splits held out of the training split.

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
from tasks.corpus.counts import CODED
from tasks.corpus.documents import SEPARATOR, Columns
from tasks.corpus.formats import PARALLEL_COLUMNS
from tasks.corpus.listing import Listing, join_parallel, match_files
from tasks.corpus.source import PARTS, CorpusSource

BUCKETS = 10_000  # of the documents' hashes, by which splits are held out


class Rows(CorpusSource):
    """A corpus source whose documents are {name: string scalar} of several columns.

    Args:
      corpus: as in CorpusSource; None with `parallel` or `files`.
      config: as in CorpusSource.
      columns: by feature, a column or template; None gives documents {"text"} of the column
        `column`.
      labels: by feature, the name of each value of its column; rows with other values are skipped.
        Numbers are given as they are written, {"0": "low"}.
      clean: by column, a function applied to its text first, {"Body": html_text.text_of}.
      lists: by column, a function that makes one text of the texts in it, {"tokens": " ".join}.
      parallel: by split, two files or patterns, sources and targets line by line.
      files: as in CorpusSource, or a function that returns it, called when reading begins; then
        `splits` names the splits.
      held_out: shares of the training split, together below 1, that become splits of their own and
        are no longer trained on. Only the text of a document decides its split.
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
        files: Mapping[str, str | Sequence[str]] | Callable[[], Mapping[str, str]] | None = None,
        held_out: Mapping[str, float] | None = None,
        max_examples: int | None = None,
        **settings,
    ):
        self._parallel, self._held_out = parallel, dict(held_out or {})
        self._files_fn = files if callable(files) else None
        if parallel:
            columns = columns or dict(zip(("inputs", "targets"), PARALLEL_COLUMNS, strict=True))
            files = {split: " and ".join(pair) for split, pair in parallel.items()}
        elif callable(files):
            files = dict.fromkeys(settings.pop("splits", ("train",)), files.__name__)
        elif held_out and not files:
            settings.setdefault("splits", ("train",))
        super().__init__(corpus, config, files=files, **settings)
        shares = self._held_out.values()
        if shares and not (min(shares) > 0 and sum(shares) < 1 and "train" in self._split_names):
            raise UserError(
                f"held_out is {self._held_out}, but must be shares above 0 that leave some of a "
                "split 'train'"
            )
        if max_examples is not None and max_examples < 1:
            raise UserError(f"max_examples is {max_examples}, but must be at least 1")
        self.max_examples = max_examples
        if held_out:
            self._split_names |= dict.fromkeys(held_out, self._split_names["train"])
        self.names = tuple(columns or ("text",))
        if columns:
            self.column = Columns(columns, labels, clean, lists)

    def _find_files(self, split: str) -> Listing:
        split = "train" if split in self._held_out else split
        if self._parallel:
            sources, targets = (match_files([p], "text") for p in self._parallel[split])
            if len(sources) != len(targets):
                raise UserError(
                    f"split {split!r} has {len(sources)} files of sources and {len(targets)} of "
                    "targets, but each source file needs its target file"
                )
            pairs = zip(sources, targets, strict=True)
            return Listing(tuple(join_parallel(*pair) for pair in pairs))
        if not self._files_fn:
            return super()._find_files(split)
        self._patterns = self._files_fn()
        try:
            return super()._find_files(split)
        except ValueError as error:
            setting = f"{self._files_fn.__module__}.{self._files_fn.__name__}"
            raise UserError(f"{error}: put it there, or set an argument of {setting}") from error

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
            dataset = super().get_dataset(split, shuffle, seed, shard_info, **others)
            return self._named(self._of_split(dataset, split))
        # Every shard reads the first rows of the corpus, and takes some of them.
        dataset = super().get_dataset(split, False, seed, None, **others)
        dataset = self._of_split(dataset, split).take(few)
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

    def record_counts(self, split: str | None = None, distinct: bool = False) -> dict[str, int]:
        """Return the record counts of a split, as CorpusSource does.

        A split held out has only its examples: it is chosen after the entire file was read, and a
        skipped record has no text to choose it by, so that 'train' counts all records.
        """
        counts = super().record_counts(split, distinct)
        if split and slices.full(split) in self._held_out:
            counts |= dict.fromkeys(("read", *CODED), 0)
        return counts

    def _of_split(self, dataset: tf.data.Dataset, split: str) -> tf.data.Dataset:
        """Keep the documents whose hash belongs to the split."""
        if not self._held_out or (split != "train" and split not in self._held_out):
            return dataset
        first, end = 0, 0
        for name, share in self._held_out.items():
            first, end = end, end + max(round(share * BUCKETS), 1)
            if name == split:
                break
        else:
            first, end = end, BUCKETS

        def belongs(example):
            bucket = tf.strings.to_hash_bucket_fast(example["text"], BUCKETS)
            return (first <= bucket) & (bucket < end)

        return dataset.filter(belongs)

    def _named(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if not isinstance(self.column, Columns):
            return dataset

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
        if not isinstance(self.column, Columns):
            return {"text": found}
        rows = [[part.strip() for part in text.split(SEPARATOR)] for text in found]
        return {name: [row[i] for row in rows] for i, name in enumerate(self.names)}
