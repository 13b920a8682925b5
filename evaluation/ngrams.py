"""A baseline that every trained model should beat: n-grams of characters.

    guesser = NgramGuesser(passages)
    guesser.guess([hidden_text])               # [Guess(log_prob=-9.3, is_written=False)]

It counts the measured passages, except for the one that it is asked about. A character's
probability mixes those after the last 0, 1, … 4 characters: each estimate counts the shorter
context's as if it had been seen `PRIOR` times (MacKay and Peto 1995,
doi:10.1017/S1351324900000218).
"""

import collections
import functools
import itertools
import math
import sys
from collections.abc import Sequence

from evaluation.guesser import Guesser
from evaluation.hidden_text import HiddenText
from evaluation.scorer import Guess

ORDER, PRIOR = 5, 8.0  # characters with the one that is guessed; the best on data/ro_mini


class NgramGuesser(Guesser):
    """N-grams of passages, which see only what precedes hidden text.

    With `hides_all`, bits per byte are measured on all words, as for a T5 that continues text.
    """

    def __init__(self, passages: Sequence[tuple[str, ...]], hides_all: bool = False):
        self.fills_in = not hides_all
        self._passages = {*passages}
        self.counts = collections.Counter[str]()
        for words in self._passages:
            self.counts.update(_counted(words))
        self._alphabet = [text for text in self.counts if len(text) == 1]

    def unknown(self, texts: Sequence[HiddenText]) -> tuple[int, int]:
        """Return 0 and the number of hidden characters: each has a probability."""
        return 0, sum(len(span) for text in texts for span in text.hidden)

    def guess(self, texts: Sequence[HiddenText]) -> list[Guess]:
        """Return a guess of each text; the space after a span counts as its end."""
        return [self._guess(text) for text in texts]

    def _guess(self, text: HiddenText) -> Guess:
        is_counted = text.words in self._passages
        own_counts = _counted(text.words) if is_counted else collections.Counter[str]()
        log_prob, is_written = 0.0, True
        for start, end in text.spans:
            before = " ".join(["", *text.words[:start], ""])
            hidden = " ".join([*text.words[start:end], ""])
            for i, character in enumerate(hidden):
                context = (before + hidden[:i])[-(ORDER - 1) :]
                of = functools.partial(self._probability, own_counts, context)
                log_prob += math.log(of(character))
                is_written = is_written and character == max(self._alphabet, key=of)
        return Guess(log_prob, is_written)

    def _probability(
        self, own_counts: collections.Counter[str], context: str, character: str
    ) -> float:
        probability = 1 / sys.maxunicode
        for n in range(len(context) + 1):
            last = context[len(context) - n :]
            seen = self.counts["…" + last] - own_counts["…" + last]
            if not seen:
                break
            times = self.counts[last + character] - own_counts[last + character]
            probability = (times + PRIOR * probability) / (seen + PRIOR)
        return probability


@functools.lru_cache(maxsize=1)  # the hidden words of a passage are guessed one after the other
def _counted(words: tuple[str, ...]) -> collections.Counter[str]:
    """Return how often each n-gram occurs, and, under "…" and a context, how often the context."""
    text = " ".join(["", *words, ""])
    counts = collections.Counter[str]()
    for i, n in itertools.product(range(1, len(text)), range(ORDER)):
        if n <= i:
            counts.update((text[i - n : i + 1], "…" + text[i - n : i]))
    return counts
