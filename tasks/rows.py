"""Corpora whose documents have several columns, and splits made of the training split.

    Rows("cnn_dailymail", "3.0.0", columns={"inputs": "article", "targets": "highlights"})
    Rows(files={"train": "train.csv", "test": "test.csv"}, held_out={"validation": 0.05},
         columns={"inputs": "{Title}\\n{Body}", "targets": "Y"},
         labels={"targets": {"LQ_CLOSE": "none", "LQ_EDIT": "low", "HQ": "high"}})
    Rows(parallel={"train": ("train.ro", "train.en")})     # line by line, source and target

All is as `tasks.sources.CorpusSource` has it: streamed, shuffled, shared by any number of hosts,
resumed where it was. What cannot be used (a side that is empty or missing, a label that is not
listed, bytes that are no UTF-8) is left out and counted by reason.
"""

from collections.abc import Callable, Mapping, Sequence

import seqio
import tensorflow as tf

from tasks.documents import SEPARATOR, Columns
from tasks.io.files import File, find, side_by_side
from tasks.sources import CorpusSource

SHARES = 10_000  # a document's hash is one of so many
SIDES = {"inputs": "source", "targets": "target"}  # the columns of parallel files


class Rows(CorpusSource):
    """A corpus source whose documents are {name: string scalar} of several columns.

    Args:
      corpus: as CorpusSource has it; None for `parallel` and `files`.
      config: as CorpusSource has it.
      columns: by feature, the column or template of several that holds it; None gives documents
        {"text"} of the column `column`.
      labels: by feature, what the values of its column are to be called; a row with another value
        is left out. Numbers are named as they are written, {"0": "low"}.
      clean: by column, what is done to its text first, {"Body": html_text.text_of}.
      parallel: by split, two files or patterns, sources and targets line by line.
      files: as CorpusSource has it, or a function that returns it, asked when reading begins; its
        splits are then those of `splits`.
      held_out: shares of the training split, below 1 in all, that are splits of their own and no
        longer trained on. Which documents those are follows from their text alone.
      max_examples: so many rows of the training split at most, its first usable ones.
      **settings: as CorpusSource has them.

    Raises:
      ValueError: settings that cannot be.
    """

    def __init__(
        self,
        corpus: str | None = None,
        config: str | None = None,
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        clean: Mapping[str, Callable[[str], str]] | None = None,
        parallel: Mapping[str, tuple[str, str]] | None = None,
        files: Mapping[str, str | Sequence[str]] | Callable[[], Mapping[str, str]] | None = None,
        held_out: Mapping[str, float] | None = None,
        max_examples: int | None = None,
        **settings,
    ):
        self._parallel, self._held_out = dict(parallel or {}), dict(held_out or {})
        self._ask = files if callable(files) else None
        if parallel:
            columns = columns or SIDES
            files = {split: " and ".join(pair) for split, pair in parallel.items()}
        elif self._ask:
            files = dict.fromkeys(settings.pop("splits", ("train",)), files.__name__)
        elif held_out and not files:
            settings.setdefault("splits", ("train",))
        super().__init__(corpus, config, files=files, **settings)
        self._check(max_examples)
        self.max_examples = max_examples
        if held_out:
            self._split_names |= dict.fromkeys(self._held_out, self._split_names["train"])
        self.names = tuple(columns or ())
        if columns:
            self.column = Columns(columns, labels, clean)

    def _check(self, max_examples: int | None) -> None:
        shares = self._held_out.values()
        if shares and not (min(shares) > 0 and sum(shares) < 1 and "train" in self._split_names):
            raise ValueError(
                f"held_out is {self._held_out}, but must be shares above 0 that leave some of a "
                "split 'train'"
            )
        if max_examples is not None and max_examples < 1:
            raise ValueError(f"max_examples is {max_examples}, but must be at least 1")

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of all splits, held out ones too."""
        return tuple(self._split_names)

    def _find(self, split: str) -> list[File]:
        split = "train" if split in self._held_out else split
        if self._ask:
            self._patterns = self._ask()
            try:
                return super()._find(split)
            except ValueError as error:
                setting = f"{self._ask.__module__}.{self._ask.__name__}"
                raise ValueError(
                    f"{error}: put it there, or set an argument of {setting}"
                ) from error
        if not self._parallel:
            return super()._find(split)
        sources, targets = (find([p], "text") for p in self._parallel[split])
        if len(sources) != len(targets):
            raise ValueError(
                f"split {split!r} has {len(sources)} files of sources and {len(targets)} of "
                "targets, but each source file needs its target file"
            )
        return [side_by_side(*pair) for pair in zip(sources, targets, strict=True)]

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **others,
    ) -> tf.data.Dataset:
        """As CorpusSource has it, with the features that `columns` names."""
        few = self.max_examples if split == "train" else None
        if few is None:
            dataset = super().get_dataset(split, shuffle, seed, shard_info, **others)
            return self._named(self._of_split(dataset, split))
        # The first rows of the corpus are the same for every shard, which takes some of them.
        dataset = super().get_dataset(split, False, seed, None, **others)
        dataset = self._of_split(dataset, split).take(few)
        if shard_info:
            n = min(shard_info.num_shards, few)
            dataset = dataset.shard(n, shard_info.index % n)
        return self._named(dataset.shuffle(few, seed) if shuffle else dataset)

    def _of_split(self, dataset: tf.data.Dataset, split: str) -> tf.data.Dataset:
        """Keeps the documents whose hash is the split's."""
        if not self._held_out or (split != "train" and split not in self._held_out):
            return dataset
        bounds, begin = {}, 0
        for name, share in self._held_out.items():
            bounds[name] = begin, begin + max(round(share * SHARES), 1)
            begin = bounds[name][1]
        first, end = bounds.get(split, (begin, SHARES))

        def kept(example):
            share = tf.strings.to_hash_bucket_fast(example["text"], SHARES)
            return (first <= share) & (share < end)

        return dataset.filter(kept)

    def _named(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if not self.names:
            return dataset

        def fn(example):
            parts = tf.strings.split(example["text"], SEPARATOR)
            return {name: tf.strings.strip(parts[i]) for i, name in enumerate(self.names)}

        return dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)

    def peek(self, split: str = "train", n: int = 1, limit_s: float = 30.0) -> list[str]:
        """As CorpusSource has it; columns stand line by line."""
        return [text.replace(SEPARATOR, "\n") for text in super().peek(split, n, limit_s)]

    def peek_features(
        self, split: str = "train", n: int = 1, limit_s: float = 30.0
    ) -> dict[str, list[str]]:
        """Returns what `peek` does as features, by name."""
        found = super().peek(split, n, limit_s)
        if not self.names:
            return {"text": found}
        rows = [[part.strip() for part in text.split(SEPARATOR)] for text in found]
        return {name: [row[i] for row in rows] for i, name in enumerate(self.names)}
