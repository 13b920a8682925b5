"""One look at a task's data: what comes in, what is made of it, and what is lost on the way.

    found = look(task, "train", documents=1000, lengths={"inputs": 512, "targets": 114})
    found.counts["unknown_pieces"], found.bytes_a_token, found.examples[0]

The dry run, preflight and `python -m tasks.look` show it, judged by `tasks.look.table`.
"""

import collections
import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from common.errors import UserError
from common.tables import CheckResult
from tasks import vocabularies
from tasks.corpus.overview import Overview, is_small, overview
from tasks.corpus.records.counts import CODED, EXTRA_COPIES, NOTES, SKIPS
from tasks.corpus.records.formats import contents_of
from tasks.corpus.source import CorpusSource
from tasks.look import sampling, signs, size
from tasks.objectives import registry
from tasks.objectives.span_corruption import SpanNoise

SHOWN = 10  # documents, and examples
DOCUMENTS = {True: 1000, False: 200}  # of a sample, by whether it is read from this machine
_MOST_CHARACTERS = 4_000_000  # of a sample
_SHARDS = 8  # of a run, as `t5x.input_pipeline.stream` has them
_OPENED = 64  # files on this machine whose encoding is shown
MOST_FOREIGN = 0.05  # of the letters
_MOST_PIECES = 20_000  # whose letters say what a vocabulary writes
Spans = list[tuple[bool, str]]


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Lengths in tokens: their median, 95th percentile and maximum, and counts by upper limit."""

    median: int
    most_of: int
    longest: int
    bins: tuple[tuple[int, int], ...]  # (at most so many tokens, documents)


@dataclasses.dataclass(frozen=True)
class Targets:
    """The targets of a sample, and of these those that the vocabulary cannot write."""

    total: int
    unknown: int
    characters: Sequence[tuple[str, int]]
    example: str


@dataclasses.dataclass(frozen=True)
class Look:
    """What is found in a sample of a task's corpus.

    `overview`: what was understood of the corpus, None unless it is a `CorpusSource`. `files`: of
    the split by format, "jsonl gz", none if they are unknown; `file_bytes`: their size, if it is
    listed; `passed_over`: (address, reason) of others. `counts`: as a run's metrics name them, see
    `tasks.corpus.records.counts`. `unknown_labels`: those that are no class, with their counts,
    most frequent first. `scripts`: shares of the letters, and of these `foreign` the scripts that
    the vocabulary does not write, with an example. `characters` and `repetition`: what
    `tasks.look.signs` says. `unknown_characters`: with their counts, most frequent first, and the
    first as it is met. `targets`: None where a text is its own target. `documents`: texts by
    feature. `examples`: features as (whether it is a sentinel, text). `corpus_tokens`: of the
    split, and how they are known. `row_tokens`: of the corpus in a row of `lengths`.
    """

    task: str
    split: str
    corpus: str
    overview: Overview | None
    files: Mapping[str, int]
    file_bytes: int | None
    passed_over: Sequence[tuple[str, str]]
    vocabulary: str
    mixing: str
    sampled: int
    counts: Mapping[str, int]
    unknown_labels: Sequence[tuple[str, int]]
    words: int
    letters: int
    by_bytes: bool
    scripts: Mapping[str, float]
    foreign: Sequence[str]
    foreign_example: str
    characters: CheckResult
    repetition: CheckResult
    unknown_characters: Sequence[tuple[str, int]]
    unknown_example: str
    targets: Targets | None
    histograms: Mapping[str, Histogram]
    documents: Sequence[Mapping[str, str]]  # spread over the sample
    lengths: Mapping[str, int] | None
    examples_made: int
    examples: Sequence[Mapping[str, Spans]]
    corpus_tokens: tuple[float, str] | None
    row_tokens: float

    @property
    def left_out(self) -> dict[str, int]:
        """Records that are not used, by reason."""
        reasons = {name.removeprefix("skipped_"): self.counts.get(name, 0) for name in SKIPS}
        return {reason: n for reason, n in reasons.items() if n}

    @property
    def changed(self) -> dict[str, int]:
        """Records used in another form or several times, and examples cut, by name."""
        names = (*(name for name in CODED if name not in SKIPS), *NOTES)
        return {name: self.counts[name] for name in names if self.counts.get(name)}

    @property
    def unknown(self) -> float:
        """The share of unknown pieces."""
        return self.counts["unknown_pieces"] / max(self.counts["pieces"], 1)

    @property
    def tokens_a_word(self) -> float:
        """The mean length of a word, as white space separates them."""
        return self.counts["pieces"] / max(self.words, 1)

    @property
    def corpus_documents(self) -> float | None:
        """Roughly the documents of the split's files, None if that is unknown."""
        if self.corpus_tokens is None:
            return None
        size = self.corpus_tokens[0] * self.bytes_a_token
        return size * self.sampled / max(self.counts["text_bytes"], 1)

    @property
    def bytes_a_token(self) -> float:
        """The mean length of a token."""
        return self.counts["text_bytes"] / max(self.counts["pieces"], 1)


def look(
    task: seqio.Task,
    split: str,
    documents: int | None = None,
    lengths: Mapping[str, int] | None = None,
    seed: int = 0,
    spread: bool | None = None,
    pack: bool = True,
) -> Look:
    """Return the figures of a task over a sample of so many documents of its corpus.

    The sample is spread over the corpus, the same for the same `seed`; without `spread` it is the
    beginning of the corpus, which is read faster. By default it is spread over a corpus on this
    machine. `lengths` are the examples', by default 512 inputs and the targets that the
    objective makes of them; with `pack` a row holds several.

    Raises:
      UserError: the corpus or the vocabulary cannot be read, or the lengths do not fit; one
        sentence.
    """
    task, fixed = sampling.made_from(task)
    source, vocabulary = task.source, task.output_features["targets"].vocabulary
    features = vocabularies.token_features(task)
    wanted = {name: n for name, n in (lengths or {}).items() if name in features}
    lengths = fixed or wanted or sampling.default_lengths(task)
    counter = getattr(source, "counter", None)
    counts = lambda: collections.Counter(counter.counts() if counter else {})
    before = counts()
    rows = _sample(source, split, documents, seed, spread)
    if not rows or not rows[0]:
        raise UserError(f"split {split!r} of task {task.name} gives no documents of text")
    read = counts() - before
    made = sampling.examples(task, rows, split, lengths)
    notes = counts() - before
    read.update({name: notes[name] for name in NOTES})
    texts = {name: [sampling.normalized(task, row[name]) for row in rows] for name in rows[0]}
    pieces: Mapping[str, str] = getattr(task, "labels", dict)()  # that stand for labels
    labels = {piece: f"{piece} (for {label})" for label, piece in pieces.items() if label != piece}
    texts |= {"targets": [pieces[row["targets"]] for row in rows]} if pieces else {}
    ids = {name: [vocabulary.encode(text) for text in found] for name, found in texts.items()}
    everything = list(itertools.chain.from_iterable(texts.values()))
    read |= text_counts(everything, itertools.chain.from_iterable(ids.values()), vocabulary.unk_id)
    unknown = unknown_characters(vocabulary, everything)
    found_scripts = signs.scripts(everything)
    foreign = _foreign(vocabulary, found_scripts)
    as_written = ["\n".join(row.values()) for row in rows]
    if read[EXTRA_COPIES]:  # which are meant
        as_written = [*dict.fromkeys(as_written)]
    bytes_a_token = read["text_bytes"] / max(read["pieces"], 1)
    shown = lambda n: [i * n // SHOWN for i in range(SHOWN)] if n > SHOWN else range(n)
    return Look(
        task=task.name,
        split=split,
        corpus=getattr(source, "name", type(source).__name__),
        overview=overview(source, split) if isinstance(source, CorpusSource) else None,
        files=_formats(source, split),
        file_bytes=_size(source, split),
        passed_over=source.passed_over(split) if hasattr(source, "passed_over") else (),
        vocabulary=f"{vocabularies.name_of(vocabulary)}, {vocabulary.vocab_size:,} ids",
        mixing=source.mixing(split, _SHARDS) if hasattr(source, "mixing") else "unknown",
        sampled=len(rows),
        counts=read,
        unknown_labels=_unknown_labels(source, split, len(rows)),
        words=sum(len(text.split()) for text in everything),
        letters=sum(map(len, everything)),
        by_bytes=isinstance(vocabulary, seqio.ByteVocabulary),
        scripts=found_scripts,
        foreign=foreign,
        foreign_example=_in_script(foreign, everything),
        characters=signs.odd_characters(as_written),
        repetition=signs.repetition(as_written),
        unknown_characters=unknown,
        unknown_example=_example_of(unknown, everything),
        targets=_targets(vocabulary, texts, ids),
        histograms={name: histogram([len(row) for row in found]) for name, found in ids.items()},
        documents=[rows[i] for i in shown(len(rows))],
        lengths=lengths,
        examples_made=len(made),
        examples=[_spans(task, made[i], labels) for i in shown(len(made))],
        corpus_tokens=size.tokens(task, split, bytes_a_token),
        row_tokens=_row_tokens(task, read["pieces"], made, lengths, pack),
    )


def _spans(
    task: seqio.Task, example: Mapping[str, np.ndarray], labels: Mapping[str, str]
) -> dict[str, Spans]:
    """Return an example's features as texts; a target that stands for a label is in `labels`."""
    return {
        name: sampling.spans(
            task.output_features[name].vocabulary, ids, labels if name == "targets" else {}
        )
        for name, ids in example.items()
    }


def _sample(
    source: Any, split: str, documents: int | None, seed: int, spread: bool | None
) -> list[dict[str, str]]:
    is_local = isinstance(source, CorpusSource) and source.is_local
    n = documents or DOCUMENTS[is_local]
    if hasattr(source, "peek"):
        source.peek(split)  # raises the mistakes in one sentence
    found = sampling.documents(source, split, seed, is_local if spread is None else spread)
    return list(itertools.islice(_some(found), n))


def _some(rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield rows up to _MOST_CHARACTERS, at least one."""
    left = _MOST_CHARACTERS
    for row in rows:
        yield row
        left -= sum(map(len, row.values()))
        if left <= 0:
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


def _formats(source: Any, split: str) -> dict[str, int]:
    if not hasattr(source, "list_files"):
        return {}
    found = source.list_files(split)
    opened = [file for file in found if not file.remote][:_OPENED]
    encodings = {file: contents_of(file).encoding for file in opened}
    named = lambda file: (file.kind, file.compression, encodings.get(file, "").replace("utf-8", ""))
    return collections.Counter(" ".join(filter(None, named(file))) for file in found)


def _unknown_labels(source: Any, split: str, n: int) -> list[tuple[str, int]]:
    """Return the labels that are no class, of a small corpus all of them."""
    if not (isinstance(source, CorpusSource) and source.column.known_labels):
        return []
    return source.unknown_labels(split, sys.maxsize if is_small(source, split) else n).most_common()


def _size(source: Any, split: str) -> int | None:
    """Return the bytes of a split's files, None if they are not listed."""
    found = source.list_files(split) if hasattr(source, "list_files") else []
    sizes = [file.length for file in found if file.length is not None]
    return sum(sizes) if sizes and len(sizes) == len(found) else None


def _foreign(vocabulary: seqio.Vocabulary, found: Mapping[str, float]) -> list[str]:
    """Return the scripts of many letters of which the vocabulary has hardly a piece."""
    if isinstance(vocabulary, seqio.ByteVocabulary):
        return []
    step = -(-vocabulary.vocab_size // _MOST_PIECES)
    pieces = [vocabulary.decode([i]) for i in range(0, vocabulary.vocab_size, step)]
    beginnings = (piece.strip(" #")[:1] for piece in pieces)  # not of "<extra_id_0>" or "[MASK]"
    known = collections.Counter(map(signs.script, filter(None, beginnings)))
    least = 0.001 * len(pieces)
    return [name for name, n in found.items() if n >= MOST_FOREIGN and known[name] < least]


def _in_script(names: Sequence[str], texts: Sequence[str]) -> str:
    """Return a text around the first letter of these scripts, "" without one."""
    if not names:
        return ""
    letters = ((text, c) for text in texts for c in text if signs.script(c) in names)
    return next((signs.around(text, [c]) for text, c in letters), "")


def unknown_characters(vocabulary: seqio.Vocabulary, texts: Sequence[str]) -> list[tuple[str, int]]:
    """Return the characters that become the unknown id, with how often they occur."""
    counts = collections.Counter(itertools.chain.from_iterable(texts))
    unknown = sampling.uncovered(vocabulary, counts)
    return [(c, n) for c, n in counts.most_common() if c in unknown]


def _example_of(unknown: Sequence[tuple[str, int]], texts: Sequence[str]) -> str:
    return next((signs.around(text, [c]) for c, _ in unknown for text in texts if c in text), "")


def _targets(
    vocabulary: seqio.Vocabulary,
    texts: Mapping[str, Sequence[str]],
    ids: Mapping[str, Sequence[Sequence[int]]],
) -> Targets | None:
    if "targets" not in texts:
        return None
    pairs = zip(texts["targets"], ids["targets"], strict=True)
    unknown = [text for text, row in pairs if vocabulary.unk_id in row]
    characters = unknown_characters(vocabulary, unknown)
    example = _example_of(characters, unknown)
    return Targets(len(texts["targets"]), len(unknown), characters, example)


def _row_tokens(
    task: seqio.Task,
    pieces: int,
    made: Sequence[Mapping[str, np.ndarray]],
    lengths: Mapping[str, int] | None,
    pack: bool,
) -> float:
    """Return how many tokens of the corpus a row has, 0 if that is unknown.

    Span corruption says it; else it is the mean of examples, and packed as many of these as fit.
    """
    objective = registry.objective_of(task)
    if lengths and isinstance(objective, SpanNoise):
        return float(objective.lengths(lengths["inputs"]).tokens)
    if not made or not lengths:
        return 0.0
    means = {name: max(float(np.mean([len(row[name]) for row in made])), 1.0) for name in made[0]}
    fit = min(lengths[name] / mean for name, mean in means.items())
    # The examples of a large sample are made of a part of it.
    each = min(pieces / len(made), sum(means.values()))
    return each * (max(fit, 1.0) if pack else 1.0)


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
