"""What the corpora of a mixture have in common, and what they have of the sets of evaluations.

    look(mixture.tasks, "train")        # a line of the table: which share of each is in another
    evaluation(texts)                   # another: how many of the texts hold sentences of the sets

A document is in another corpus if that holds half of its runs of 13 words, the length by which
Brown et al. 2020 (arXiv:2005.14165, appendix C) find texts that were trained on. Of each corpus,
`reading` megabytes are read, and a sketch holds at most KEPT hashes of runs: beyond, only those
that a power of two divides, so that a run is kept in all corpora or in none.

If all of both corpora is read, the share is exact but for the sketch. Otherwise n documents of one
and the part f of the other are read, and k of the n are seen in that part: the share is about
k / (n f), give or take its k ** -0.5 th. If n f is below FEWEST, nothing can be told.
"""

import collections
import functools
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seqio

import gin
from common.errors import UserError
from common.source import source_of
from common.tables import NOT_CHECKED, CheckResult, counted, ok, warning
from common.waiting import waiting
from tasks.corpus import excerpt
from tasks.corpus.source import CorpusSource
from tasks.corpus.split import WAITING_S
from tasks.corpus.storage.names import absolute_path
from tasks.look import sampling, signs
from tasks.look.size import text_size
from tasks.text import sentence_split
from tasks.text.words import unit, words

RUN = 13  # words
KEPT = 1 << 20  # hashes of a sketch, 12 MB with their documents
HELD = 0.5  # share of the runs of a document that is in another corpus
MOST_SHARED = 0.005  # share of the documents
FEWEST = 100  # documents that would be seen if all of a corpus were in another
_FEWEST_SEEN = 3
_SHORTEST = 6  # words of a sentence that is looked for; shorter ones are anyone's
_SHOWN = 60  # characters of a document
_SIGNS = "".join(map(chr, range(33, 48))) + ":;?[]_{}«»“”„‘’…–—।。、，"
_MULTIPLIERS = np.random.default_rng(0).integers(0, 1 << 63, RUN, np.uint64) * 2 + 1


@gin.configurable
def reading(megabytes: float = 20.0) -> float:
    """Return how many bytes of text are read of each corpus of a mixture; raise UserError for 0."""
    if not megabytes > 0:
        raise UserError("tasks.look.overlap.reading.megabytes", megabytes, "but must be above 0")
    return megabytes * 1e6


@gin.configurable
def evaluation_sets(paths: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the sets that models are measured on, whose sentences no corpus should hold.

    Each is a task, whose test or validation split is meant, or files, the column `text` of them or
    another: "pairs.jsonl=good".
    """
    return (paths,) if isinstance(paths, str) else tuple(paths)


class Sketch(NamedTuple):
    """Hashes, uint64 [k], of runs in the documents, int32 [k], that were read of a corpus.

    2 ** `level` divides the hashes. `beginnings` are of the documents. `share` is the part of the
    corpus that was read, None if its size is unknown.
    """

    name: str
    hashes: np.ndarray
    documents: np.ndarray
    level: int
    beginnings: Sequence[str]
    share: float | None

    def __str__(self) -> str:
        share = "of an unknown number" if self.share is None else f"{self.share:.2g} of all"
        share = "all" if self.share == 1 else share
        return f"{self.name}, {counted(len(self.beginnings), 'document')} ({share})"


def codes(text: str) -> np.ndarray:
    """Return a code of each word without the signs around it, in lower case, uint64 [n]."""
    plain = filter(None, (word.strip(_SIGNS) for word in words(text.casefold())))
    return np.fromiter((zlib.crc32(word.encode()) for word in plain), np.uint64)


def runs(document: np.ndarray, length: int = RUN) -> np.ndarray:
    """Return a hash of each run of so many of the codes of words, uint64 [n]."""
    if len(document) < length:
        return np.zeros(0, np.uint64)
    sums = np.convolve(document, _MULTIPLIERS[:length], "valid")
    return (sums ^ (sums >> np.uint64(32))) * _MULTIPLIERS[0] >> np.uint64(8)


def sketch(task: seqio.Task, split: str) -> Sketch:
    """Return a sketch of a split of a task's corpus.

    Raises:
      UserError: it cannot be read.
    """
    source = source_of(sampling.original(task)[0])
    is_local = isinstance(source, CorpusSource) and source.is_local
    source.peek(split, 1)  # raises the mistakes in one sentence
    kept: list[np.ndarray] = []
    beginnings, level, number, size, limit = [], 0, 0, 0, reading()
    with waiting(f"reading {source.name} to compare it", WAITING_S):
        for row in excerpt.documents(source, split, shuffle=is_local):
            text = "\n".join(row.values())
            document = codes(text)
            if len(document):  # without words it is no text that another corpus could hold
                document = np.pad(document, (0, max(RUN - len(document), 0)))
            kept.append(_at_level(runs(document), level))
            beginnings.append(text[:_SHOWN])
            number, size = number + len(kept[-1]), size + len(text.encode())
            while number > KEPT:
                level += 1
                kept = [_at_level(hashes, level) for hashes in kept]
                number = sum(map(len, kept))
            if size >= limit:
                break
    share: float | None = 1.0
    if size >= limit:
        total = text_size(source, split)
        share = min(size / total.text_bytes, 1.0) if total else None
    documents = np.repeat(np.arange(len(kept), dtype=np.int32), [*map(len, kept)])
    hashes = np.concatenate([np.zeros(0, np.uint64), *kept])
    return Sketch(task.name, hashes, documents, level, beginnings, share)


def _at_level(hashes: np.ndarray, level: int) -> np.ndarray:
    return hashes[hashes % np.uint64(1 << level) == 0]


def inside(sketch: Sketch, other: Sketch) -> tuple[int, np.ndarray]:
    """Return how many documents of a sketch have a run in it, and which are in another corpus."""
    is_kept = sketch.hashes % np.uint64(1 << max(sketch.level, other.level)) == 0
    documents, hashes = sketch.documents[is_kept], sketch.hashes[is_kept]
    count = functools.partial(np.bincount, minlength=len(sketch.beginnings))
    numbers, held = count(documents), count(documents[np.isin(hashes, other.hashes)])
    return int(np.sum(numbers > 0)), np.flatnonzero((numbers > 0) & (held >= HELD * numbers))


def look(tasks: Iterable[seqio.Task], split: str) -> CheckResult:
    """Judge the share of the documents of each task's corpus that are in another's.

    Raises:
      UserError: a corpus cannot be read.
    """
    sketches = [sketch(task, split) for task in tasks]
    shared, unseen, example, most = [], [], "", MOST_SHARED
    for one, other in itertools.permutations(sketches, 2):
        number, documents = inside(one, other)
        seen, pair = number * (other.share or 1.0), f"{one.name} in {other.name}"
        share = min(len(documents) / max(seen, 1.0), 1.0)
        if share >= MOST_SHARED and len(documents) >= _FEWEST_SEEN:
            least = "at least " if other.share is None else ""
            shared.append(f"{least}{share:.1%} of {pair}")
            example = example or signs.around(one.beginnings[documents[0]], "")
        elif other.share != 1.0 and (other.share is None or seen < FEWEST):
            unseen.append(pair)
        elif (one.share, other.share) != (1.0, 1.0):
            # Of Poisson's distribution: so many more may be by chance unseen (95 %).
            most = max(most, (len(documents) + 3) / seen)
    figure = f"read of {'; of '.join(map(str, sketches))}: "
    figure += ", ".join(shared) + f", such as {example}" if shared else ""
    if unseen:
        more = "tasks.look.overlap.reading.megabytes to more"
        figure += f"{'; ' * bool(shared)}too little to tell of {', '.join(unseen)}"
        if not shared:
            return CheckResult(NOT_CHECKED, figure, f"set {more}", check="overlap")
    if shared:
        to_set = "take one of them, or set its rate lower: what both have is read twice as often"
        return warning(figure, to_set, check="overlap")
    figure += f"less than {most:.1%} of each is in another"
    return ok(figure, check="overlap")


def evaluation(texts: Sequence[str]) -> CheckResult:
    """Judge how many texts hold a sentence of the sets that models are measured on.

    The first 13 words of a longer sentence stand for it.

    Raises:
      UserError: a set cannot be read.
    """
    sets = evaluation_sets()
    if not sets:
        return ok("no set is named by tasks.look.overlap.evaluation_sets.paths")
    sentences, matches = _sentences(sets), []
    for text in texts:
        document = codes(text)
        hits = ((n, hashes.keys() & runs(document, n).tolist()) for n, hashes in sentences.items())
        match = next((sentences[n][min(keys)] for n, keys in hits if keys), None)
        matches += [match] if match else []
    figure = f"{len(matches):,} of {counted(len(texts), 'document')} hold sentences of "
    figure += f"{', '.join(sets)}"
    if not matches:
        return ok(figure)
    name, example = matches[0]
    to_set = "take these documents out of the corpus, or measure on another set"
    example = signs.around(example, "")
    return warning(
        f"{figure} ({len(matches) / len(texts):.1%}), such as {example} of {name}", to_set
    )


@functools.lru_cache(maxsize=4)
def _sentences(sets: Sequence[str]) -> dict[int, dict[int, tuple[str, str]]]:
    """Return (set, sentence) by the hash of its first 13 words or of all, by their number."""
    sentences = collections.defaultdict[int, dict[int, tuple[str, str]]](dict)
    for name in sets:
        texts = itertools.chain.from_iterable(row.values() for row in _rows(name))
        for sentence in itertools.chain.from_iterable(map(sentence_split.split, texts)):
            first = codes(sentence)[:RUN]
            if len(first) >= (_SHORTEST if unit([sentence]) == "word" else RUN):
                sentences[len(first)][int(runs(first, len(first))[0])] = (name, sentence)
    return sentences


def _rows(name: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a set; raise UserError if it cannot be read."""
    if name in seqio.TaskRegistry.names():
        source = source_of(sampling.original(seqio.TaskRegistry.get(name))[0])
        split = next((split for split in ("test", "validation") if split in source.splits), "test")
    else:
        path, _, column = name.rpartition("=")
        if not path or "/" in column:  # such as lang=ro/pairs.jsonl
            path, column = name, "text"
        source, split = CorpusSource(absolute_path(path), column=column, splits=("train",)), "train"
    source.peek(split, 1)  # raises the mistakes in one sentence
    return excerpt.documents(source, split, shuffle=False)
