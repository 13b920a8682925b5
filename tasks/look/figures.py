"""One look at a task's data: lengths, tokens a word, unknown characters, what is left out.

    found = look(task, "train", documents=1000, lengths={"inputs": 512, "targets": 114})
    found.tokens_a_word, found.left_out, found.histograms["text"].bins, found.examples[0]

`python -m tasks.look` prints all of it, and preflight checks a run by it.
"""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import seqio

from common.errors import UserError
from tasks import vocabularies
from tasks.cache import cached
from tasks.corpus.counts import CHANGES, EXTRA_COPIES, NOTES, SKIPS
from tasks.look import sampling

SHOWN = 10  # documents, and examples
_SHARDS = 8  # of a run, as `t5x.input_pipeline.stream` has them
Spans = list[tuple[bool, str]]


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Lengths in tokens: their median, 95th percentile and maximum, and counts by upper limit."""

    median: int
    most_of: int
    longest: int
    bins: tuple[tuple[int, int], ...]  # (at most so many tokens, documents)


@dataclasses.dataclass(frozen=True)
class Look:
    """What is found in a sample of a task's corpus.

    `files`: of the split, None if they are unknown. `read`: records read. `left_out`: of these, by
    reason. `changed`: records used in another form, and examples cut, by name.
    `unknown_characters`: in documents, with their counts, most frequent first. `unknown`: share of
    the tokens. `documents`: texts by feature. `examples`: features as (whether it is a sentinel,
    text).
    """

    task: str
    split: str
    corpus: str
    files: int | None
    vocabulary: str
    mixing: str
    sampled: int
    read: int
    left_out: Mapping[str, int]
    changed: Mapping[str, int]
    tokens_a_word: float
    bytes_a_token: float
    unknown: float
    unknown_characters: Sequence[tuple[str, int]]
    histograms: Mapping[str, Histogram]
    documents: Sequence[Mapping[str, str]]  # spread over the sample
    lengths: Mapping[str, int] | None
    examples_made: int
    examples: Sequence[Mapping[str, Spans]]


def look(
    task: seqio.Task,
    split: str,
    documents: int,
    lengths: Mapping[str, int] | None = None,
    seed: int = 0,
    spread: bool = True,
) -> Look:
    """Return the figures of a task over a sample of so many documents of its corpus.

    The sample is spread over the corpus, the same for the same `seed`; without `spread` it is the
    beginning of the corpus, which is read faster. `lengths` are the examples', by default
    512 inputs and the targets that the objective makes of them.

    Raises:
      UserError: the corpus or the vocabulary cannot be read, or the lengths do not fit; one
        sentence.
    """
    task, fixed = sampling.made_from(task)
    source, vocabulary = task.source, task.output_features["targets"].vocabulary
    features = cached.token_features(task)
    lengths = fixed or lengths or sampling.default_lengths(task)
    counter = getattr(source, "counter", None)
    counts = lambda: collections.Counter(counter.counts() if counter else {})
    before = counts()
    if hasattr(source, "peek"):
        source.peek(split)  # raises the mistakes in one sentence
    if spread:
        rows = list(itertools.islice(sampling.documents(source, split, seed), documents))
    else:
        rows = sampling.first_documents(source, split, documents)
    if not rows or not rows[0]:
        raise UserError(f"split {split!r} of task {task.name} gives no documents of text")
    read = counts() - before
    made = sampling.examples(task, rows, split, lengths)
    changed = counts() - before
    texts = {name: [sampling.normalized(task, row[name]) for row in rows] for name in rows[0]}
    ids = {name: [vocabulary.encode(text) for text in found] for name, found in texts.items()}
    tokens = [token for of_feature in ids.values() for row in of_feature for token in row]
    everything = list(itertools.chain.from_iterable(texts.values()))
    shown = lambda n: [i * n // SHOWN for i in range(SHOWN)] if n > SHOWN else range(n)
    return Look(
        task=task.name,
        split=split,
        corpus=getattr(source, "name", type(source).__name__),
        files=len(source.list_files(split)) if hasattr(source, "list_files") else None,
        vocabulary=f"{vocabularies.name_of(vocabulary)}, {vocabulary.vocab_size:,} ids",
        mixing=source.mixing(split, _SHARDS) if hasattr(source, "mixing") else "unknown",
        sampled=len(rows),
        read=read["read"],
        left_out={name.removeprefix("skipped_"): read[name] for name in SKIPS if read[name]},
        changed={n: changed[n] for n in (*CHANGES, EXTRA_COPIES, *NOTES) if changed[n]},
        tokens_a_word=len(tokens) / max(sum(len(text.split()) for text in everything), 1),
        bytes_a_token=sum(len(text.encode()) for text in everything) / max(len(tokens), 1),
        unknown=tokens.count(vocabulary.unk_id) / max(len(tokens), 1),
        unknown_characters=unknown_characters(vocabulary, everything),
        histograms={name: histogram([len(row) for row in found]) for name, found in ids.items()},
        documents=[rows[i] for i in shown(len(rows))],
        lengths=lengths,
        examples_made=len(made),
        examples=[
            {name: sampling.spans(features[name].vocabulary, row[name]) for name in row}
            for row in (made[i] for i in shown(len(made)))
        ],
    )


def unknown_characters(vocabulary: seqio.Vocabulary, texts: Sequence[str]) -> list[tuple[str, int]]:
    """Return the characters that become the unknown id, with how often they occur."""
    counts = collections.Counter(itertools.chain.from_iterable(texts))
    unknown = sampling.uncovered(vocabulary, counts)
    return [(c, n) for c, n in counts.most_common() if c in unknown]


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
