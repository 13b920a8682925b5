"""A sample of a corpus, and what a task makes of it.

    sample = draw(task, "train", most=1000, lengths={"inputs": 512, "targets": 114})
    sample.counts["unknown_pieces"], sample.bytes_a_token, sample.examples[0]
    sample = draw_texts(CorpusSource("/data/ro"), "train")     # of a corpus without a task

`tasks.look.lines` judges it.
"""

import collections
import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from common.errors import UserError
from common.source import Source, labels_of, source_of
from common.waiting import waiting
from tasks import vocabularies
from tasks.corpus import excerpt
from tasks.corpus.overview import Overview, is_small, overview
from tasks.corpus.records.counts import NOTES
from tasks.corpus.source import CorpusSource
from tasks.corpus.split import WAITING_S
from tasks.look import sampling, signs
from tasks.look.size import TextSize, Tokens, text_size
from tasks.objectives import registry
from tasks.objectives.masked_lm import PAIR_LABEL, PAIR_LABELS
from tasks.objectives.span_corruption import SpanNoise
from tasks.text.words import words

# Documents of a sample, by whether it is read from this machine.
DOCUMENTS = {True: 1000, False: 200}
_MOST_CHARACTERS = 4_000_000  # characters of a sample
Document = Mapping[str, str]  # texts by feature
Example = Mapping[str, np.ndarray]  # ids, weights and labels by feature
Spans = list[tuple[bool, str]]  # (whether it is a sentinel, text)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Documents of a corpus, and what a task makes of them, if there is one.

    Attributes:
      name: the task's name, or the corpus's.
      overview: of the split, None unless the source is a `CorpusSource`.
      documents: as they are written.
      texts: by feature, as the model reads and writes them: normalized, labels as their pieces.
      counts: as a run's metrics name them, see `tasks.corpus.records.counts`.
      unknown_labels: labels that are no class, with their counts, most frequent first.
      ids: of `texts`, by feature.
      lengths: tokens of an example, None if the task's own apply.
      examples: what the task makes of the documents.
      labels: by piece that stands for a label, what people are shown.
      packed: whether a row holds several examples.
    """

    name: str
    source: Source
    split: str
    overview: Overview | None
    text_size: TextSize | None
    documents: Sequence[Document]
    texts: Mapping[str, Sequence[str]]
    counts: Mapping[str, int]
    unknown_labels: Sequence[tuple[str, int]]
    task: seqio.Task | None = None
    ids: Mapping[str, Sequence[Sequence[int]]] = dataclasses.field(default_factory=dict)
    lengths: Mapping[str, int] | None = None
    examples: Sequence[Example] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    packed: bool = True

    @property
    def corpus(self) -> str:
        """The corpus's name."""
        return self.source.name

    @property
    def vocabulary(self) -> seqio.Vocabulary:
        """The task's vocabulary."""
        assert self.task is not None
        return self.task.output_features["targets"].vocabulary

    @functools.cached_property
    def all_texts(self) -> list[str]:
        """The texts of all features."""
        return list(itertools.chain.from_iterable(self.texts.values()))

    @property
    def letters(self) -> int:
        """All characters."""
        return sum(map(len, self.all_texts))

    @property
    def words(self) -> int:
        """All words; in scripts without blanks, characters."""
        return sum(len(words(text)) for text in self.all_texts)

    @property
    def tokens_a_word(self) -> float:
        """The mean length of a word."""
        return self.counts["pieces"] / max(self.words, 1)

    @property
    def bytes_a_token(self) -> float:
        """The mean length of a token."""
        return self.counts["text_bytes"] / max(self.counts["pieces"], 1)

    @property
    def corpus_documents(self) -> float | None:
        """Roughly the documents of the split's files, None if that is unknown."""
        if self.text_size is None:
            return None
        size = self.text_size.text_bytes
        return size * len(self.documents) / max(self.counts["text_bytes"], 1)

    @property
    def corpus_tokens(self) -> Tokens | None:
        """The tokens of the split, None if they are unknown."""
        return self.text_size.tokens(self.bytes_a_token) if self.text_size else None

    @property
    def row_tokens(self) -> float:
        """How many tokens of the corpus a row has, 0 if that is unknown.

        Span corruption tells it. For others it is the mean of the examples, times as many as fit a
        packed row.
        """
        assert self.task is not None
        if tokens := span_tokens(self.task, self.lengths):
            return tokens
        if not self.examples or not self.lengths:
            return 0.0
        means = {
            name: max(float(np.mean([len(row[name]) for row in self.examples])), 1.0)
            for name in self._token_features
        }
        fit = min(self.lengths[name] / mean for name, mean in means.items())
        # The examples of a large sample are made of a part of it.
        tokens = min(self.counts["pieces"] / len(self.examples), sum(means.values()))
        return tokens * (max(fit, 1.0) if self.packed else 1.0)

    @property
    def _token_features(self) -> dict[str, seqio.Feature]:
        """The features of the examples that are ids."""
        assert self.task is not None
        features = vocabularies.token_features(self.task)
        return {name: f for name, f in features.items() if name in self.examples[0]}

    def spans(self, example: Example) -> dict[str, Spans]:
        """Return an example's features as texts; a target that stands for a label names it."""
        labels = lambda name: self.labels if name == "targets" else {}
        return {
            name: sampling.spans(feature.vocabulary, example[name], labels(name))
            for name, feature in self._token_features.items()
        }

    @property
    def pairs_by_label(self) -> dict[str, int]:
        """The number of pairs of sentences by their label, empty for other objectives."""
        labels = [int(row[PAIR_LABEL][0]) for row in self.examples if PAIR_LABEL in row]
        return {name: labels.count(n) for n, name in enumerate(PAIR_LABELS)} if labels else {}

    @property
    def without_target(self) -> int:
        """The number of examples in which nothing is to be predicted."""
        eos = self.vocabulary.eos_id
        weights = lambda row: row.get("loss_weights", row["targets"] != eos)
        return sum(not np.any(weights(row)) for row in self.examples if "targets" in row)

    @property
    def histograms(self) -> dict[str, "Histogram"]:
        """The lengths of the documents in tokens, by feature."""
        return {name: histogram([len(row) for row in rows]) for name, rows in self.ids.items()}


def draw(
    task: seqio.Task,
    split: str,
    most: int | None = None,
    lengths: Mapping[str, int] | None = None,
    seed: int = 0,
    spread: bool | None = None,
    pack: bool = True,
) -> Sample:
    """Return a sample of at most so many documents of a task's corpus.

    With `spread` the sample is drawn from the whole corpus, and `seed` decides it. Without, it is
    the beginning, which is faster. The default is True for a corpus on this machine, else False.
    `lengths` are the examples', by default 512 inputs and the targets that the objective makes of
    them; with `pack` a row holds several.

    Raises:
      UserError: the corpus or the vocabulary cannot be read, or the lengths do not fit.
    """
    task, fixed = sampling.original(task)
    source, vocabulary = source_of(task), task.output_features["targets"].vocabulary
    features = vocabularies.token_features(task)
    fitting = {name: n for name, n in (lengths or {}).items() if name in features}
    lengths = fixed or fitting or sampling.default_lengths(task)
    before = _counts(source)
    documents = _documents(source, split, most, seed, spread)
    if not documents or not documents[0]:
        raise UserError(f"split {split!r} of task {task.name}", why="gives no documents of text")
    counts = _counts(source) - before
    examples = sampling.examples(task, documents, split, lengths)
    notes = _counts(source) - before
    counts.update({name: notes[name] for name in NOTES})
    normalize = functools.partial(sampling.normalized, task)
    texts = {name: [normalize(row[name]) for row in documents] for name in documents[0]}
    pieces = labels_of(task)
    if pieces:
        texts["targets"] = [pieces[row["targets"]] for row in documents]
    ids = {name: [vocabulary.encode(text) for text in rows] for name, rows in texts.items()}
    all_texts, all_ids = (itertools.chain.from_iterable(x.values()) for x in (texts, ids))
    counts |= text_counts(all_texts, all_ids, vocabulary.unk_id)
    return Sample(
        name=task.name,
        **_corpus_fields(source, split, len(documents)),
        documents=documents,
        texts=texts,
        counts=counts,
        task=task,
        ids=ids,
        lengths=lengths,
        examples=examples,
        labels={
            piece: f"{piece} (for {label})" for label, piece in pieces.items() if label != piece
        },
        packed=pack,
    )


def draw_texts(source: CorpusSource, split: str, most: int | None = None, seed: int = 0) -> Sample:
    """Return a sample of a corpus without a task, spread as `draw` does.

    Raises:
      UserError: the corpus cannot be read.
    """
    before = _counts(source)
    documents = _documents(source, split, most, seed, spread=None)
    if not documents:
        raise UserError(f"split {split!r} of {source.name}", why="gives no documents of text")
    texts = {name: [row[name] for row in documents] for name in documents[0]}
    counts = _counts(source) - before
    counts |= text_counts(itertools.chain.from_iterable(texts.values()), (), None)
    return Sample(
        name=source.name,
        **_corpus_fields(source, split, len(documents)),
        documents=documents,
        texts=texts,
        counts=counts,
    )


def _corpus_fields(source: Source, split: str, n: int) -> dict[str, Any]:
    """Return the fields of a `Sample` that need no document of it."""
    return {
        "source": source,
        "split": split,
        "overview": overview(source, split) if isinstance(source, CorpusSource) else None,
        "text_size": text_size(source, split),
        "unknown_labels": _unknown_labels(source, split, n),
    }


def _counts(source: Source) -> collections.Counter[str]:
    return collections.Counter(source.counter.counts() if source.counter else {})


def _documents(
    source: Source, split: str, most: int | None, seed: int, spread: bool | None
) -> list[Document]:
    is_local = isinstance(source, CorpusSource) and source.is_local
    source.peek(split, 1)  # raises the mistakes in one sentence
    with waiting(f"reading a sample of {source.name}", WAITING_S):
        rows = excerpt.documents(source, split, seed, is_local if spread is None else spread)
        return list(itertools.islice(_limited(rows), most or DOCUMENTS[is_local]))


def _limited(rows: Iterable[Document]) -> Iterator[Document]:
    """Yield rows up to _MOST_CHARACTERS, at least two: some objectives make pairs of them."""
    left = _MOST_CHARACTERS
    for number, row in enumerate(rows, 1):
        yield row
        left -= sum(map(len, row.values()))
        if left <= 0 and number > 1:
            return


def text_counts(
    texts: Iterable[str], ids: Iterable[Sequence[int]], unk_id: int | None
) -> dict[str, int]:
    """Return what is counted of normalized texts and their ids, as `counts.TEXTS` names it."""
    pieces = unknown = 0
    for row in ids:
        pieces, unknown = pieces + len(row), unknown + sum(token == unk_id for token in row)
    sizes = [(len(text.encode()), text.count(signs.REPLACED)) for text in texts]
    return {
        "text_bytes": sum(n for n, _ in sizes),
        "replaced_characters": sum(n for _, n in sizes),
        "pieces": pieces,
        "unknown_pieces": unknown,
    }


def _unknown_labels(source: Source, split: str, n: int) -> list[tuple[str, int]]:
    """Return the labels that are no class, in all of a small corpus, else in `n` rows."""
    if not (isinstance(source, CorpusSource) and source.column.known_labels):
        return []
    return source.unknown_labels(split, sys.maxsize if is_small(source, split) else n).most_common()


def span_tokens(task: seqio.Task, lengths: Mapping[str, int] | None) -> float | None:
    """Return how many tokens of the corpus span corruption puts into a row, None for others."""
    objective = registry.objective_of(task)
    if lengths and isinstance(objective, SpanNoise):
        return float(objective.lengths(lengths["inputs"]).tokens)
    return None


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Lengths in tokens: their median, 95th percentile and maximum, and counts by upper limit."""

    median: int
    most_of: int
    longest: int
    bins: tuple[tuple[int, int], ...]  # (at most so many tokens, documents)


def histogram(lengths: Sequence[int]) -> Histogram:
    """Return the distribution of lengths, in bins whose upper limits double."""
    last = max(int(max(lengths)) - 1, 0).bit_length()
    first = min(max(int(np.percentile(lengths, 2)) - 1, 0).bit_length(), last)
    limits = [1 << power for power in range(first, last + 1)]
    places = np.searchsorted(limits, lengths)
    counts = np.bincount(places, minlength=len(limits)).tolist()
    return Histogram(
        median=int(np.median(lengths)),
        most_of=int(np.percentile(lengths, 95)),
        longest=int(max(lengths)),
        bins=tuple(zip(limits, counts, strict=True)),
    )
