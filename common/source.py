"""What the trainer may ask of a corpus and of a task, and what a dataset is read for.

class MySource(Source):                        # each method has a default
    def get_dataset(self, split, shuffle=True, seed=None, shard_info=None): ...
    def peek(self, split, n): ...

source_of(task).peek("train", 1)               # also of a plain seqio source
source.open("train", Reading(seed=0, shards=8, shard=3, epochs=None))

`tasks` implements these classes and `t5x` calls them, so that neither imports the other.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import seqio
import tensorflow as tf

from common.tables import CheckResult

# What a shuffled epoch permutes: all records; all records, and one epoch is not mixed with the
# next; or files, their parts, and the records within a part.
RECORDS, EPOCHS, PARTS = "records", "epochs", "parts"


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a dataset of a split is read, and what for.

    A source receives the "how". A preprocessor with a parameter `reading` receives the whole
    object, in the way seqio passes `sequence_length`.

    Args:
      split: the split, which may be a slice.
      shuffle: whether each epoch has an order of its own.
      seed: decides the orders; None draws one.
      shard: the number of this shard, of `shards`.
      epochs: how often the source repeats itself; None is without end.
      order: what is permuted, RECORDS, EPOCHS or PARTS; None is the source's choice.
      counter: a `tasks.corpus.records.counts.RecordCounter` of what is read and made; None counts
        nothing.
    """

    split: str = "train"
    shuffle: bool = True
    seed: int | None = None
    shard: int = 0
    shards: int = 1
    epochs: int | None = 1
    order: str | None = None
    counter: Any = None


DEFAULT_READING = Reading()  # what a preprocessor gets that is called without one


class Source(seqio.DataSource):
    """A seqio source that the trainer can check, pin to a data position, and query for counts.

    A subclass defines `get_dataset`, or `open`, and overrides what else it can answer.
    """

    counter: Any = None  # a RecordCounter of what is read

    @property
    def name(self) -> str:
        """What messages call the corpus."""
        return type(self).__name__

    def open(self, split: str, reading: Reading) -> tf.data.Dataset:
        """Return a dataset of one epoch, or of `reading.epochs` if the source has an `order`."""
        shard = seqio.ShardInfo(reading.shard, reading.shards)
        return self.get_dataset(split, reading.shuffle, reading.seed, shard)

    # Before a run.

    def peek(self, split: str, n: int) -> list[str]:
        """Return the first `n` texts of a split; raise UserError if it cannot be read."""
        rows = self.get_dataset(split, shuffle=False).take(n).as_numpy_iterator()
        texts = [value for row in rows for value in row.values() if isinstance(value, bytes)]
        return [text.decode("utf-8", "replace") for text in texts]

    def use_splits(self, splits: Sequence[str]) -> None:
        """Use the names of the splits that the first host has found."""

    def listing(self, split: str) -> list:
        """Return the files of a split as JSON, for `use_listing` on the other hosts."""
        return []

    def use_listing(self, split: str, listing: list) -> None:
        """Use these files, so that only one host lists the remote storage."""

    def text_bytes(self, split: str) -> int | None:
        """Return roughly how many bytes of text a split has, None if it is unknown."""
        return None

    def check_shards(self, split: str, num_shards: int) -> None:
        """Raise UserError if a split has fewer texts than shards, which need one each."""

    # The data position.

    def identity(self, split: str) -> dict[str, Any]:
        """Return the state that a data position in a split depends on, as JSON; it must not change.

        `revision`, if it has one, is given to `pin_revision` when the run resumes.
        """
        return {}

    def check_saved(self, split: str, saved: Mapping[str, Any]) -> None:
        """Raise UserError if the saved `identity` cannot be read as the source is set now."""

    def pin_revision(self, revision: str) -> None:
        """Read the corpus at this revision, unless the user set another."""

    def order(self, split: str) -> str | None:
        """Return what shuffled epochs permute; None if the source does not repeat itself."""
        return None

    def pin_order(self, split: str, order: str) -> None:
        """Use the order of a saved data position."""

    def mixing(self, split: str, num_shards: int) -> str:
        """Return how far a shuffled epoch mixes the records, as a predicate for the log."""
        return "records are read in the order of their source"

    # After a run.

    def record_counts(self, split: str | None = None) -> dict[str, int]:
        """Return this process's record counts of a split.

        `read` records, of these `skipped_<reason>`, and complete `epochs`; of the `examples` made
        `cut_<feature>` had to be cut.
        """
        return {}


class PlainSource(Source):
    """A wrapper for a seqio source that is no `Source`."""

    def __init__(self, source: seqio.DataSource):
        super().__init__((), caching_permitted=source.caching_permitted)
        self._source = source

    @property
    def name(self) -> str:
        """The class of the source."""
        return type(self._source).__name__

    @property
    def splits(self) -> Sequence[str]:
        """The names of all splits."""
        return self._source.splits

    @property
    def supports_arbitrary_sharding(self) -> bool:
        """Whether any number of shards is supported."""
        return self._source.supports_arbitrary_sharding

    @property
    def performs_internal_shuffling(self) -> bool:
        """Whether the source shuffles by itself."""
        return self._source.performs_internal_shuffling

    def list_shards(self, split: str) -> Sequence[str]:
        """Return the names of the source's own shards."""
        return self._source.list_shards(split)

    def num_input_examples(self, split: str) -> int | None:
        """Return the number of examples of a split, None if it is unknown."""
        return self._source.num_input_examples(split)

    def get_dataset(self, split="train", shuffle=True, seed=None, shard_info=None):
        """Return the dataset of the source."""
        return self._source.get_dataset(
            split=split, shuffle=shuffle, seed=seed, shard_info=shard_info
        )


def source_of(task: seqio.Task) -> Source:
    """Return the source of a task."""
    return task.source if isinstance(task.source, Source) else PlainSource(task.source)


class CorpusTask(seqio.Task):
    """A seqio task that can show its corpus."""

    open_rows = 1  # that packing fills at once: more where not every two examples fit a row
    most_epochs: int | None = None  # limit for a split that is read without end
    prefix = ""  # before every input, for programs that feed their own texts to the model
    labels: Callable[[], Mapping[str, str]] = dict  # see `labels_of`

    def describe_corpus(self, split: str) -> str:
        """Return a sentence on how a split of its corpus is read, "" if there is none."""
        return ""

    def row_tokens(self, lengths: Mapping[str, int]) -> float | None:
        """Return how many tokens of the corpus fill a row of these lengths, None if it varies."""
        return None

    def look(
        self, split: str, lengths: Mapping[str, int] | None = None, pack: bool = True
    ) -> list[CheckResult]:
        """Return what a sample of a split shows as lines of a table.

        `numbers` of the line "pieces" has `corpus_tokens`, of the split, None if they are unknown,
        `known`, how they are, to end a sentence, `row_tokens`, of the corpus in a row, and
        `most_epochs`, beyond which another epoch is of little use. Raise UserError for lengths that
        do not fit.
        """
        return []


class CorpusMixture(seqio.Mixture):
    """A seqio mixture that can compare the corpora of its tasks."""

    def look(self, split: str) -> list[CheckResult]:
        """Return what they have in common, as lines of a table."""
        return []


def labels_of(task: seqio.Task) -> Mapping[str, str]:
    """Return what the model writes for each label of a classifier; empty for other tasks."""
    return task.labels() if isinstance(task, CorpusTask) else {}
