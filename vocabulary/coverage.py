"""How well a SentencePiece vocabulary covers a text, beside mT5's where that is on this machine.

    coverage("my.model", texts, beside="google/mt5-base")

counts the characters that become <unk>, those that are lost, bytes a token and tokens a word.
"""

import collections
import itertools
import unicodedata
from collections.abc import Iterable, Sequence

import sentencepiece

from vocabulary import sentencepiece_model as spm
from vocabulary.check_results import VocabularyCheck

MT5 = ("google/mt5-small", "google/mt5-base", "google/mt5-large", "google/mt5-xl")
BESIDE_HELP = "compare with this vocabulary; default mT5's, if the Hugging Face cache has it"
_SHOWN = 10  # characters
# The zero-width non-joiner. T5's normalization (nmt_nfkc) makes a blank of it.
JOINERS = "\u200c"
_STRAY_EVERY = 5_000  # letters or more, for a stray character of web pages
_AROUND = 10  # characters of a word shown before and after one that is lost


def coverage(path: str, texts: Sequence[str], beside: str | None = None) -> list[VocabularyCheck]:
    """Return the figures of the model at `path` over some texts, beside those of another.

    `beside` is as for `spm.find_model`; None takes mT5's vocabulary from the Hugging Face cache,
    and leaves the comparison out if it is not there. Nothing is downloaded for it.

    Raises:
      ValueError: a model cannot be read.
    """
    characters = collections.Counter(itertools.chain.from_iterable(texts))
    if not characters:
        return []
    own = spm.processor(spm.read_model(path))
    unknown = [(c, n) for c, n in characters.most_common() if own.unk_id() in own.encode(c)]
    shown = ", ".join(f"{c} U+{ord(c):04X} × {n:,}" for c, n in unknown[:_SHOWN])
    detail = f"{len(unknown):,} of {len(characters):,}" + (f": {shown}" if shown else "")
    detail += f", and {len(unknown) - _SHOWN:,} more" if len(unknown) > _SHOWN else ""
    figures = [_figures(own, texts)]
    name = beside or cached_mt5()
    if name:
        figures.append(_figures(spm.processor(spm.read_model(spm.find_model(name))), texts))
    note = f" with {beside or 'mT5'}" if name else ""
    rows = zip(("bytes a token", "tokens a word"), zip(*figures, strict=True), strict=True)
    return [
        VocabularyCheck.of("characters not covered", not unknown, detail, otherwise="warn"),
        *_joined_words(own, characters),
        *_lost_characters(own, texts, characters),
        *(VocabularyCheck(title, "ok", "; ".join(_all(values, note))) for title, values in rows),
    ]


def joiners_of(lines: Iterable[str]) -> str:
    """Return the zero-width joiners that `lines` write words with, as Persian and Sorani do."""
    return _often(JOINERS, collections.Counter(itertools.chain.from_iterable(lines)))


def _often(some: Iterable[str], characters: collections.Counter[str]) -> str:
    """Return those of `some` characters that are too frequent to be strays."""
    letters = sum(n for c, n in characters.items() if c.isalpha())
    return "".join(c for c in some if characters[c] * _STRAY_EVERY > letters)


def _joined_words(
    own: sentencepiece.SentencePieceProcessor, characters: collections.Counter[str]
) -> list[VocabularyCheck]:
    """Return the check that the text's joiners can be written, none for a text without them."""
    joiners = _often(JOINERS, characters)
    lost = [c for c in joiners if c not in own.decode(own.encode(f"a{c}a"))]
    if not joiners:
        return []
    names = ", ".join(f"U+{ord(c):04X}" for c in lost or joiners)
    detail = f"{names} can be written"
    if lost:
        detail = f"{names} becomes a blank, which cuts words: vocabulary.train makes it a piece"
    return [VocabularyCheck.of("zero-width joiners", not lost, detail, otherwise="warn")]


def _lost_characters(
    own: sentencepiece.SentencePieceProcessor,
    texts: Sequence[str],
    characters: collections.Counter[str],
) -> list[VocabularyCheck]:
    """Return the check of characters that the model's normalization drops or makes a blank.

    White space and control characters should be, and joiners have a check of their own. It is no
    warning if all are as rare as stray characters; without any there is no check.
    """
    nothing = {own.normalize("aa"), own.normalize("a a")}
    expected = lambda c: c.isspace() or unicodedata.category(c) == "Cc"
    odd = {c: n for c, n in characters.most_common() if c not in JOINERS and not expected(c)}
    lost = [(c, n) for c, n in odd.items() if own.normalize(f"a{c}a") in nothing]
    if not lost:
        return []
    rare = not _often(dict(lost), characters)
    shown = ", ".join(f"U+{ord(c):04X} × {n:,} in '{_example(c, texts)}'" for c, n in lost[:_SHOWN])
    detail = f"blank or nothing to the model, which never writes them: {shown}"
    return [VocabularyCheck.of("characters lost", rare, detail, otherwise="warn")]


def _example(character: str, texts: Sequence[str]) -> str:
    """Return the middle of the first word that holds a character, escaped where not printable."""
    text = next(text for text in texts if character in text)
    word = next(word for word in text.split() if character in word)
    place = word.index(character)
    part = word[max(place - _AROUND, 0) : place + 1 + _AROUND]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in part)


def _all(values: Sequence[float], note: str) -> list[str]:
    return [f"{value:.2f}{note if i else ''}" for i, value in enumerate(values)]


def _figures(processor, texts: Sequence[str]) -> tuple[float, float]:
    """Return (bytes a token, tokens a word)."""
    tokens = sum(map(len, processor.encode(list(texts)))) or 1
    size = sum(len(text.encode()) for text in texts)
    return size / tokens, tokens / max(sum(len(text.split()) for text in texts), 1)


def cached_mt5() -> str | None:
    """Return the path of mT5's vocabulary in the Hugging Face cache, None if it is not there."""
    import huggingface_hub

    found = (huggingface_hub.try_to_load_from_cache(name, "spiece.model") for name in MT5)
    return next((path for path in found if isinstance(path, str)), None)
