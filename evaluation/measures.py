"""Measures models.

    texts, bits = passage_bits(passages, guesser, seed=0)
    bits_per_byte(texts, bits, guesser)
    filled_in_words(passages, counts, guesser, seed=0)
    preferred_sentences(pairs, guesser)

Each figure has its standard error and number of cases.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evaluation.guesser import Guesser
from evaluation.hidden_text import HiddenText, hide_words
from evaluation.minimal_pairs import Pair

# Words by their rank, from the most frequent, up to a limit.
_CLASSES = {"1_100": 100, "101_1000": 1_000, "1001_on": math.inf}


class Measure(NamedTuple):
    """A figure, its standard error, and its number of cases."""

    value: float
    error: float
    cases: int


def passage_bits(
    passages: Sequence[Sequence[str]], guesser: Guesser, seed: int = 0
) -> tuple[list[HiddenText], list[float]]:
    """Return the passages with text hidden, and the bits that the hidden text of each costs."""
    rng = np.random.default_rng(seed)
    texts = [guesser.hide(words, rng) for words in passages]
    return texts, [-guess.log_prob / math.log(2) for guess in guesser.guess(texts)]


def bits_per_byte(
    texts: Sequence[HiddenText], bits: Sequence[float], guesser: Guesser
) -> dict[str, Measure]:
    """Return the bits that a byte of hidden text costs, and the share of unknown pieces in it.

    The arguments are those of `passage_bits`, and what it returns. The cases are bytes and pieces.
    """
    return {
        "bits_per_byte": ratio(bits, [text.num_bytes for text in texts]),
        "unknown_pieces": _share(*guesser.unknown(texts)),
    }


def ratio(values: Sequence[float], sizes: Sequence[float]) -> Measure:
    """Return sum(values) / sum(sizes), with its standard error over independent passages."""
    numerators, denominators = np.asarray(values), np.asarray(sizes)
    total, count = denominators.sum(), len(numerators)
    value = numerators.sum() / total
    deviations = numerators - value * denominators
    error = math.sqrt((deviations**2).sum() * count / max(count - 1, 1)) / total
    return Measure(float(value), error, int(total))


def _share(count: int, cases: int) -> Measure:
    share = count / cases if cases else math.nan
    return Measure(share, math.sqrt(share * (1 - share) / cases) if cases else math.nan, cases)


def filled_in_words(
    passages: Sequence[Sequence[str]],
    counts: Mapping[str, int],
    guesser: Guesser,
    seed: int = 0,
) -> dict[str, Measure]:
    """Return the share of hidden words that the model fills in, in all and by frequency.

    `counts` are the frequencies of words: `filled_in_1_100` is for the hundred most frequent.
    """
    rng = np.random.default_rng(seed)
    texts = [hidden for words in passages for hidden in hide_words(words, rng)]
    ranks = {word: i for i, word in enumerate(sorted(counts, key=lambda w: (-counts[w], w)), 1)}
    successes: dict[str, list[bool]] = {"filled_in": [], **{f"filled_in_{c}": [] for c in _CLASSES}}
    for text, guess in zip(texts, guesser.guess(texts), strict=True):
        rank = ranks.get(text.hidden[0], math.inf)
        group = next(name for name, most in _CLASSES.items() if rank <= most)
        for name in ("filled_in", f"filled_in_{group}"):
            successes[name].append(guess.is_written)
    return {name: _share(sum(cases), len(cases)) for name, cases in successes.items() if cases}


def preferred_sentences(pairs: Sequence[Pair], guesser: Guesser) -> dict[str, Measure]:
    """Return the share of pairs whose right sentence is more probable, in all and by kind."""
    sentences = [text for pair in pairs for text in pair[:2]]
    parts = [guesser.hide_in_turn(sentence.split()) for sentence in sentences]
    guesses = iter(guesser.guess([text for texts in parts for text in texts]))
    sums = np.array([sum(next(guesses).log_prob for _ in texts) for texts in parts])
    better = sums[0::2] > sums[1::2]
    kinds: dict[str, list[bool]] = {"minimal_pairs": []}
    for pair, right in zip(pairs, better.tolist(), strict=True):
        kinds["minimal_pairs"].append(right)
        if pair.kind:
            kinds.setdefault(f"minimal_pairs_{pair.kind.replace(' ', '_')}", []).append(right)
    return {name: _share(sum(successes), len(successes)) for name, successes in kinds.items()}
