"""What is measured of a model, each measure with its number of cases and standard error.

    bits_per_byte(passages, scorer, encoder, SPAN_CORRUPTION, seed=0)
    filled_in_words(passages, counts, scorer, encoder, seed=0)
    preferred_sentences(pairs, scorer, encoder, SPAN_CORRUPTION)

By `objective` a model has learned to fill in hidden spans (SPAN_CORRUPTION) or to continue text
(PREFIX_LM).
"""

import collections
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evaluation.hidden_text import HiddenText, hide_spans, hide_words
from evaluation.minimal_pairs import Pair
from evaluation.scorer import EncodedExample, Scorer, Scores
from evaluation.text_encoder import EOS, TextEncoder

SPAN_CORRUPTION, PREFIX_LM = OBJECTIVES = ("span_corruption", "prefix_lm")
Progress = Callable[[int], None] | None
_RANKS = (100, 1_000)  # limits of the classes of words, from the most frequent


class Measure(NamedTuple):
    """A figure, its standard error, and how many cases it is of."""

    value: float
    error: float
    cases: int


def bits_per_byte(
    passages: Sequence[Sequence[str]],
    scorer: Scorer,
    encoder: TextEncoder,
    objective: str,
    seed: int = 0,
    progress: Progress = None,
) -> dict[str, Measure]:
    """Return the bits that a byte of hidden text costs, and the share of unknown pieces in it.

    By span corruption 15 % of the words of each passage are hidden, and the end of each span is
    part of what is guessed; a prefix language model guesses all bytes. Cases are bytes, and pieces.
    """
    rng = np.random.default_rng(seed)
    if objective == PREFIX_LM:
        texts = [HiddenText(tuple(words), ((0, len(words)),)) for words in passages]
        examples = [_continuation(text, encoder) for text in texts]
    else:
        texts = [hide_spans(words, rng) for words in passages]
        examples = [text.example(encoder) for text in texts]
    scores = scorer.score(examples, progress)
    bits = [-_log_prob(each, objective) / math.log(2) for each in scores]
    pieces = [i for text in texts for ids in encoder.encode(text.hidden) for i in ids]
    unknown = sum(i == encoder.unk_id for i in pieces)
    return {
        "bits_per_byte": _ratio(bits, [text.num_bytes for text in texts]),
        "unknown_pieces": _share(unknown, len(pieces)),
    }


def _continuation(text: HiddenText, encoder: TextEncoder) -> EncodedExample:
    """Return the text as the continuation of nothing."""
    return EncodedExample([EOS], encoder.encode(text.hidden)[0], (EOS,))


def _log_prob(scores: Scores, objective: str) -> float:
    """Return the logarithm of the probability of the hidden text."""
    if objective == PREFIX_LM:  # a passage may end anywhere
        return float(scores.log_probs.sum())
    return float(scores.log_probs[1:].sum()) + scores.end_log_prob  # the first sentinel is given


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
    scorer: Scorer,
    encoder: TextEncoder,
    seed: int = 0,
    progress: Progress = None,
) -> dict[str, Measure]:
    """Return the share of hidden words that greedy decoding fills in, also by their frequency.

    `counts` tell how frequent words are: `filled_in_1_100` is of the hundred most frequent.
    """
    rng = np.random.default_rng(seed)
    texts = [hidden for words in passages for hidden in hide_words(words, rng)]
    scores = scorer.score([text.example(encoder) for text in texts], progress)
    ranks = {word: i for i, word in enumerate(sorted(counts, key=lambda w: (-counts[w], w)), 1)}
    written: dict[str, list[bool]] = {name: [] for name in ("filled_in", *_classes())}
    for text, each in zip(texts, scores, strict=True):
        rank = ranks.get(text.hidden[0], math.inf)
        for name in ("filled_in", _class_of(rank)):
            written[name].append(each.is_written)
    return {name: _share(sum(found), len(found)) for name, found in written.items() if found}


def _classes() -> list[str]:
    starts = [1, *(rank + 1 for rank in _RANKS)]
    return [f"filled_in_{a}_{b}" for a, b in zip(starts, (*_RANKS, "on"), strict=True)]


def _class_of(rank: float) -> str:
    return _classes()[sum(rank > limit for limit in _RANKS)]


def preferred_sentences(
    pairs: Sequence[Pair],
    scorer: Scorer,
    encoder: TextEncoder,
    objective: str,
    progress: Progress = None,
) -> dict[str, Measure]:
    """Return the share of pairs whose right sentence gets more probability, also by their kind.

    A model that was pretrained by span corruption gives no probability to a sentence as such. Each
    half of it is hidden once, and the logarithms of both probabilities, given the other half, are
    added: a pseudo-likelihood (Salazar et al. 2020, arXiv:1910.14659) with two masks. A prefix
    language model writes the sentence from nothing.
    """
    sentences = [text for pair in pairs for text in pair[:2]]
    examples, owners = [], []
    for i, sentence in enumerate(sentences):
        found = _sentence_examples(sentence.split(), encoder, objective)
        examples += found
        owners += [i] * len(found)
    sums = np.zeros(len(sentences))
    for i, scores in zip(owners, scorer.score(examples, progress), strict=True):
        sums[i] += _log_prob(scores, objective)
    better = sums[0::2] > sums[1::2]
    kinds: dict[str, list[bool]] = {"minimal_pairs": []}
    for pair, right in zip(pairs, better.tolist(), strict=True):
        kinds["minimal_pairs"].append(right)
        if pair.kind:
            kinds.setdefault(f"minimal_pairs_{pair.kind.replace(' ', '_')}", []).append(right)
    return {name: _share(sum(found), len(found)) for name, found in kinds.items()}


def _sentence_examples(
    words: list[str], encoder: TextEncoder, objective: str
) -> list[EncodedExample]:
    every = (0, len(words))
    if objective == PREFIX_LM:
        return [_continuation(HiddenText(tuple(words), (every,)), encoder)]
    middle = len(words) // 2
    halves = ((0, middle), (middle, len(words))) if middle else (every,)
    return [HiddenText(tuple(words), (half,)).example(encoder) for half in halves]
