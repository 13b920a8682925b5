"""N-gram models that answer what `evaluation` asks: hidden text, missing words, diacritics.

guesser = ByteGuesser(texts)                 # bits per byte, sentences: 8 bytes
guesser = WordGuesser(texts)                 # words filled in: 3 words, on both sides
restored = restore("Fata vine maine", ByteGuesser(texts).model, "ro")
"""

import collections
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.ngrams.ngram import Ngrams
from evaluation.guesser import Guess, Guesser, Progress
from evaluation.hidden_text import HiddenText
from tasks.diacritics.letters import alphabet

BYTES, WORDS = 8, 3  # symbols in the longest n-gram
_WORD_BITS = 21
_CANDIDATES = 20_000  # most frequent words, which may fill in a gap
_EDGE, _UNKNOWN = 0, 1  # words that are none


class ByteGuesser(Guesser):
    """A model of the next byte, which reads only what is before.

    A hidden span costs its bytes and the blank behind it, after all text before it; the first one
    follows the begin of a line.
    """

    fills_in = False

    def __init__(self, texts: Iterable[str]):
        text = "\n".join(texts) + "\n"
        self.model = Ngrams(np.frombuffer(text.encode(), np.uint8), BYTES, bits=8)

    def guess(self, texts: Sequence[HiddenText], progress: Progress = None) -> list[Guess]:
        """Return the guesses; nothing is written."""
        return [Guess(self._log_prob(text), False) for text in texts]

    def _log_prob(self, text: HiddenText) -> float:
        bits, before = 0.0, "\n"
        for part, is_hidden in text.parts():
            part += " "
            if is_hidden:
                bits -= self.model.log2_of_text([*before.encode()], [*part.encode()]).sum()
            before += part
        return -bits * math.log(2)

    def unknown(self, texts: Sequence[HiddenText]) -> tuple[int, int]:
        """Return 0 of all bytes."""
        return 0, sum(text.num_bytes for text in texts)


class WordGuesser:
    """A model of the next word, which fills in one word by those before and those behind.

    `order` words are the longest n-gram. With `pieces` only words of as many pieces as the hidden
    one are chosen from.
    """

    def __init__(
        self,
        texts: Iterable[str],
        order: int = WORDS,
        behind: bool = True,
        pieces: Callable[[str], int] | None = None,
    ):
        documents = [text.split() for text in texts]
        counts = collections.Counter(word for words in documents for word in words)
        self._words = [word for word, _ in counts.most_common((1 << _WORD_BITS) - 2)]
        self._ids = {word: i for i, word in enumerate(self._words, _UNKNOWN + 1)}
        stream = [i for words in documents for i in (_EDGE, *self._ids_of(words))]
        self._model = Ngrams(np.array([*stream, _EDGE]), order, _WORD_BITS)
        self._order, self._behind, self._pieces = order, behind, pieces
        number = min(_CANDIDATES, len(self._words))
        self._choices = np.arange(number) + _UNKNOWN + 1
        self._sizes = np.array([pieces(w) for w in self._words[:number]]) if pieces else None

    def _ids_of(self, words: Iterable[str]) -> list[int]:
        return [self._ids.get(word, _UNKNOWN) for word in words]

    def guess(self, texts: Sequence[HiddenText], progress: Progress = None) -> list[Guess]:
        """Return whether each hidden word is the most probable of the frequent ones."""
        return [Guess(math.nan, self._best(text) == text.hidden[0]) for text in texts]

    def _best(self, text: HiddenText) -> str:
        ((start, end),) = text.spans
        reach = self._order - 1
        before = [_UNKNOWN] * reach + self._ids_of(text.words[:start])
        before = before[len(before) - reach :]
        behind = self._ids_of(text.words[end : end + reach]) if self._behind else []
        choices = self._fitting(text.hidden[0])
        columns = [np.full(len(choices), i) for i in before] + [choices]
        columns += [np.full(len(choices), i) for i in behind]
        rows = np.stack(columns, axis=1)
        windows = [rows[:, i : i + self._order] for i in range(1 + len(behind))]
        best = choices[int(np.argmax(sum(self._model.log2(each) for each in windows)))]
        return self._words[best - _UNKNOWN - 1]

    def _fitting(self, hidden: str) -> np.ndarray:
        """Return the ids that may fill in the gap of a hidden word."""
        if self._pieces is None:
            return self._choices
        fitting = self._choices[self._sizes == self._pieces(hidden)]
        return fitting if len(fitting) else self._choices


def restore(text: str, model: Ngrams, language: str) -> str:
    """Return bare text with the diacritics that make it most probable.

    Of spellings that end in the same bytes, as many as the model sees, only the best is kept, so
    the result is the most probable of all.
    """
    forms = alphabet(language).forms
    context = model.order - 1
    kept = {(b"\0" * context + b"\n")[-context:]: (0.0, "")}
    for letter in text:
        tried = [
            (log_prob, spelling + form, tail + form.encode())
            for tail, (log_prob, spelling) in kept.items()
            for form in forms[letter]
        ]
        windows = [
            [*tail[i - context : i + 1]] for *_, tail in tried for i in range(context, len(tail))
        ]
        bits = iter(model.log2(np.array(windows)))
        kept = {}
        for log_prob, spelling, tail in tried:
            log_prob += sum(next(bits) for _ in range(context, len(tail)))
            end = tail[-context:]
            if end not in kept or log_prob > kept[end][0]:
                kept[end] = log_prob, spelling
    return max(kept.values())[1]
