"""Minimal pairs: a sentence, and the same with a mistake.

    read_hub("ron")                        # MultiBLiMP's of a language
    read_file("pairs.jsonl")               # {"good": "Ana are mere.", "bad": "Ana au mere."}
    make(passages, "ro", seed=0)           # from any text, by rules

MultiBLiMP has agreement in number, person and gender (Jumelet et al. 2025, arXiv:2504.02768).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tasks.diacritics.letters import LETTERS, alphabet
from tasks.text.sentence_split import split

MULTIBLIMP = "jumelet/multiblimp"
_RETRY_SECONDS = 60.0  # of a hub that does not answer
_WORDS = (6, 25)  # in a sentence that a pair is made of


class Pair(NamedTuple):
    """A sentence, the same with a mistake, and the kind of the mistake."""

    good: str
    bad: str
    kind: str


def read_hub(language: str) -> list[Pair]:
    """Return MultiBLiMP's pairs of a language, named by ISO 639-3.

    Raises:
      ValueError: it has none of this language, or the hub cannot be reached.
    """
    from tasks.io.retry import RetryPolicy  # with TensorFlow, which takes seconds
    from tasks.look import sampling
    from tasks.rows import Rows

    columns = {"good": "sen", "bad": "wrong_sen", "kind": "phenomenon"}
    retry = RetryPolicy(_RETRY_SECONDS)
    source = Rows(MULTIBLIMP, language, columns=columns, splits=("train",), retry_policy=retry)
    try:
        source.peek("train", limit_s=_RETRY_SECONDS)  # raises the mistakes in one sentence
        rows = sampling.documents(source, "train", shuffle=False)
        return [Pair(row["good"], row["bad"], row["kind"]) for row in rows]
    except ValueError as error:
        raise ValueError(
            f"{str(error).rstrip('.')}: name a file of pairs with --pairs, or leave them out with "
            "--without pairs"
        ) from error


def read_file(path: str) -> list[Pair]:
    """Return the pairs of a file with a JSON object a line: `good`, `bad` and perhaps `kind`.

    Raises:
      ValueError: it cannot be read, or a line is no such object.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = list(file)  # splitlines() would also split at U+2028, which JSON may contain
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            pair = Pair(row["good"], row["bad"], row.get("kind", ""))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f'{path}:{number} is not an object such as {{"good": "…", "bad": "…"}}'
            ) from error
        if not all(isinstance(text, str) and text.strip() for text in pair[:2]):
            raise ValueError(f"{path}:{number} has no text under good or bad")
        found.append(pair)
    return found


def make(passages: Iterable[Sequence[str]], tag: str, seed: int) -> Iterator[Pair]:
    """Yield the pairs that rules make of the sentences in passages of words.

    `word order`: two neighbouring words change places. `diacritics`: a word loses them.
    `agreement`: a verb or article changes its number or gender, in the languages of `AGREEMENT`. A
    rule that does not fit the language `tag` makes none.
    """
    rng = np.random.default_rng(seed)
    for passage in passages:
        for sentence in split(" ".join(passage))[1:-1]:  # the first and the last may be cut
            words = sentence.split()
            if not _WORDS[0] <= len(words) <= _WORDS[1]:
                continue
            for kind, rule in RULES.items():
                if choices := list(rule(words, tag)):
                    changed = choices[rng.integers(len(choices))]
                    yield Pair(" ".join(words), " ".join(changed), kind)


# Words that do not fit where the other one does.
AGREEMENT = {
    "ro": (("este", "sunt"), ("era", "erau"), ("are", "au"), ("avea", "aveau"), ("un", "o")),
}


def _agreement(words: list[str], tag: str) -> Iterator[list[str]]:
    pairs = AGREEMENT.get(tag, ())
    others = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    for i, word in enumerate(words):
        if word in others:
            yield [*words[:i], others[word], *words[i + 1 :]]


def _word_order(words: list[str], _: str) -> Iterator[list[str]]:
    for i in range(1, len(words) - 2):  # neither the first word nor the last
        here, after = words[i : i + 2]
        if here.isalpha() and after.isalpha() and here != after:
            yield [*words[:i], after, here, *words[i + 2 :]]


def _diacritics(words: list[str], tag: str) -> Iterator[list[str]]:
    if tag in LETTERS:
        for i, word in enumerate(words):
            if (bare := alphabet(tag).bare(word)) != word:
                yield [*words[:i], bare, *words[i + 1 :]]


RULES: dict[str, Callable[[list[str], str], Iterator[list[str]]]] = {
    "agreement": _agreement,
    "word order": _word_order,
    "diacritics": _diacritics,
}
