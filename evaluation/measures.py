"""What is measured of a model, each measure with its number of cases and standard error.

bits_per_byte(passages, guesser, seed=0)
filled_in_words(passages, counts, guesser, seed=0)
preferred_sentences(pairs, guesser)
"""

import collections
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evaluation.guesser import Guesser, Progress
from evaluation.hidden_text import hide_words
from evaluation.minimal_pairs import Pair

_RANKS = (100, 1_000)  # limits of the classes of words, from the most frequent


class Measure(NamedTuple):
    """A figure, its standard error, and how many cases it is of."""

    value: float
    error: float
    cases: int


def bits_per_byte(
    passages: Sequence[Sequence[str]], guesser: Guesser, seed: int = 0, progress: Progress = None
) -> dict[str, Measure]:
    """Return the bits that a byte of hidden text costs, and the share of unknown pieces in it.

    Cases are bytes, and pieces.
    """
    rng = np.random.default_rng(seed)
    texts = [guesser.hide(words, rng) for words in passages]
    bits = [-each.log_prob / math.log(2) for each in guesser.guess(texts, progress)]
    return {
        "bits_per_byte": _ratio(bits, [text.num_bytes for text in texts]),
        "unknown_pieces": _share(*guesser.unknown(texts)),
    }


def _ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Measure:
    """Return the ratio of sums, with the standard error of a ratio over independent passages."""
    above, below = np.asarray(numerators), np.asarray(denominators)
    ratio = above.sum() / below.sum()
    deviations = above - ratio * below
    error = math.sqrt((deviations**2).sum() * len(above) / max(len(above) - 1, 1)) / below.sum()
    return Measure(float(ratio), error, int(below.sum()))


def _share(found: int, cases: int) -> Measure:
    share = found / cases if cases else math.nan
    return Measure(share, math.sqrt(share * (1 - share) / cases) if cases else math.nan, cases)


def count_words(passages: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return how often each word occurs."""
    return dict(collections.Counter(word for words in passages for word in words))


def filled_in_words(
    passages: Sequence[Sequence[str]],
    counts: Mapping[str, int],
    guesser: Guesser,
    seed: int = 0,
    progress: Progress = None,
) -> dict[str, Measure]:
    """Return the share of hidden words that the model fills in, also by their frequency.

    `counts` tell how frequent words are: `filled_in_1_100` is of the hundred most frequent.
    """
    rng = np.random.default_rng(seed)
    texts = [hidden for words in passages for hidden in hide_words(words, rng)]
    ranks = {word: i for i, word in enumerate(sorted(counts, key=lambda w: (-counts[w], w)), 1)}
    written: dict[str, list[bool]] = {name: [] for name in ("filled_in", *_classes())}
    for text, guess in zip(texts, guesser.guess(texts, progress), strict=True):
        rank = ranks.get(text.hidden[0], math.inf)
        for name in ("filled_in", _class_of(rank)):
            written[name].append(guess.is_written)
    return {name: _share(sum(found), len(found)) for name, found in written.items() if found}


def _classes() -> list[str]:
    starts = [1, *(rank + 1 for rank in _RANKS)]
    return [f"filled_in_{a}_{b}" for a, b in zip(starts, (*_RANKS, "on"), strict=True)]


def _class_of(rank: float) -> str:
    return _classes()[sum(rank > limit for limit in _RANKS)]


def preferred_sentences(
    pairs: Sequence[Pair], guesser: Guesser, progress: Progress = None
) -> dict[str, Measure]:
    """Return the share of pairs whose right sentence gets more probability, also by their kind."""
    sentences = [text for pair in pairs for text in pair[:2]]
    covers = [guesser.cover(sentence.split()) for sentence in sentences]
    guesses = iter(guesser.guess([text for cover in covers for text in cover], progress))
    sums = np.array([sum(next(guesses).log_prob for _ in cover) for cover in covers])
    better = sums[0::2] > sums[1::2]
    kinds: dict[str, list[bool]] = {"minimal_pairs": []}
    for pair, right in zip(pairs, better.tolist(), strict=True):
        kinds["minimal_pairs"].append(right)
        if pair.kind:
            kinds.setdefault(f"minimal_pairs_{pair.kind.replace(' ', '_')}", []).append(right)
    return {name: _share(sum(found), len(found)) for name, found in kinds.items()}
