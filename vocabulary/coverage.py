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
JOINER = "\u200c"
_STRAY_EVERY = 5_000  # letters or more, for a stray character of web pages

Characters = collections.Counter[str]


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
    unknown = [c for c, _ in characters.most_common() if own.unk_id() in own.encode(c)]
    detail = f"{len(unknown):,} of {len(characters):,}{_shown(unknown, characters)}"
    bytes_a_token, tokens_a_word = (f"{figure:.2f}" for figure in _figures(own, texts))
    if name := beside or cached_mt5():
        other = _figures(spm.processor(spm.read_model(spm.find_model(name))), texts)
        bytes_a_token += f"; {other[0]:.2f} with {beside or 'mT5'}"
        tokens_a_word += f"; {other[1]:.2f} with {beside or 'mT5'}"
    return [
        VocabularyCheck.of("characters not covered", not unknown, detail, otherwise="warn"),
        *_joined_words(own, characters),
        *_lost_characters(own, characters),
        VocabularyCheck("bytes a token", "ok", bytes_a_token),
        VocabularyCheck("tokens a word", "ok", tokens_a_word),
    ]


def _shown(some: Sequence[str], characters: Characters) -> str:
    names = [
        f"{c if c.isprintable() else ''} U+{ord(c):04X} × {characters[c]:,}".strip() for c in some
    ]
    more = f", and {len(some) - _SHOWN:,} more" if len(some) > _SHOWN else ""
    return f": {', '.join(names[:_SHOWN])}{more}" if some else ""


def writes_joiners(lines: Iterable[str]) -> bool:
    """Return whether `lines` write words with the zero-width joiner, as Persian and Sorani do."""
    return _is_often(JOINER, collections.Counter(itertools.chain.from_iterable(lines)))


def _is_often(character: str, characters: Characters) -> bool:
    """Return whether a character is too frequent to be a stray."""
    letters = sum(n for c, n in characters.items() if c.isalpha())
    return characters[character] * _STRAY_EVERY > letters


def _joined_words(
    own: sentencepiece.SentencePieceProcessor, characters: Characters
) -> list[VocabularyCheck]:
    """Return the check that the text's joiners can be written, none for a text without them."""
    if not _is_often(JOINER, characters):
        return []
    written = JOINER in own.decode(own.encode(f"a{JOINER}a"))
    lost = "becomes a blank, which cuts words: vocabulary.train makes it a piece"
    detail = f"U+{ord(JOINER):04X} {'can be written' if written else lost}"
    return [VocabularyCheck.of("zero-width joiners", written, detail, otherwise="warn")]


def _lost_characters(
    own: sentencepiece.SentencePieceProcessor, characters: Characters
) -> list[VocabularyCheck]:
    """Return the check of characters that the model's normalization drops or makes a blank.

    White space and control characters should be, and joiners have a check of their own. It is no
    warning if all are as rare as stray characters; without any there is no check.
    """
    nothing = {own.normalize("aa"), own.normalize("a a")}
    expected = lambda c: c == JOINER or c.isspace() or unicodedata.category(c) == "Cc"
    odd = [c for c, _ in characters.most_common() if not expected(c)]
    lost = [c for c in odd if own.normalize(f"a{c}a") in nothing]
    if not lost:
        return []
    detail = f"blank or nothing to the model, which never writes them{_shown(lost, characters)}"
    rare = not any(_is_often(c, characters) for c in lost)
    return [VocabularyCheck.of("characters lost", rare, detail, otherwise="warn")]


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
