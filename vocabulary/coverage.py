"""Measures how well a vocabulary covers a text, compared with mT5's if that is on this machine.

    coverage("my.model", texts, beside="google/mt5-base")
    coverage("my_bert", texts)

counts the characters that become unknown, those that are lost, bytes a token and tokens a word (a
character, in scripts without blanks).
"""

import collections
import dataclasses
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from common.tables import WARNING, CheckResult, judged
from convert.formats.sentencepiece_model import processor, read_model
from tasks.look import signs
from tasks.text.words import unit, words
from vocabulary import files

MT5 = ("google/mt5-small", "google/mt5-base", "google/mt5-large", "google/mt5-xl")
BESIDE_HELP = "compare with this vocabulary; default mT5's, if the Hugging Face cache has it"
# The zero-width non-joiner. T5's normalization (nmt_nfkc) makes it a space.
JOINER = "\u200c"
_MORE = (
    "set --character_coverage of vocabulary.train nearer to 1, or --byte_fallback, if the text "
    "needs them; strays of other scripts may stay"
)
_LONGEST_WORD = 100  # characters of a word that WordPiece reads
_MOST_IN_WORDS = 0.001  # share of a text that is in longer ones
_STRAY_EVERY = 5_000  # letters or more, for a stray character of web pages

Characters = collections.Counter[str]


@dataclasses.dataclass(frozen=True)
class _Encoder:
    """A vocabulary: ids of texts, the unknown id, and normalization."""

    encode: Callable[[Sequence[str]], list[list[int]]]
    unk_id: int | None
    normalize: Callable[[str], str]


def _open(path: str) -> _Encoder:
    """Return the encoder of a SentencePiece model or of a tokenizer.json; raise UserError."""
    folder = files.find_tokenizer(path)
    if folder is None:
        pieces = processor(read_model(files.find_model(path)))
        return _Encoder(lambda texts: pieces.encode(list(texts)), pieces.unk_id(), pieces.normalize)
    from tasks.tokenizer_vocabulary import TokenizerVocabulary  # with TensorFlow

    vocabulary = TokenizerVocabulary(folder)
    encode = lambda texts: [vocabulary.encode_texts([text])[0].tolist() for text in texts]
    normalizer = vocabulary.tokenizer.normalizer
    normalize = normalizer.normalize_str if normalizer else lambda text: text
    return _Encoder(encode, vocabulary.unk_id, normalize)


def coverage(path: str, texts: Sequence[str], beside: str | None = None) -> list[CheckResult]:
    """Return the figures of the vocabulary at `path` over some texts, compared with another's.

    Both are paths as for `check.check_vocabulary`, or hub names. Without `beside`, mT5's vocabulary
    is taken from the Hugging Face cache if it is there. Nothing is downloaded for it.

    Raises:
      UserError: a vocabulary cannot be read.
    """
    characters = collections.Counter(itertools.chain.from_iterable(texts))
    if not characters:
        return []
    encoder = _open(path)
    unknown = [c for c, _ in characters.most_common() if encoder.unk_id in encoder.encode([c])[0]]
    detail = f"{len(unknown):,} of {len(characters):,}{_shown(unknown, characters)}"
    bytes_a_token, tokens_a_word = (f"{figure:.2f}" for figure in _figures(encoder, texts))
    if name := beside or cached_mt5():
        other = _figures(_open(name), texts)
        bytes_a_token += f"; {other[0]:.2f} with {beside or 'mT5'}"
        tokens_a_word += f"; {other[1]:.2f} with {beside or 'mT5'}"
    return [
        judged("characters not covered", not unknown, detail, _MORE, otherwise=WARNING),
        *_unknown_words(encoder, texts, {*characters} - {*unknown}),
        *joined_words(encoder.normalize, characters),
        *_lost_characters(encoder, characters),
        judged("bytes a token", True, bytes_a_token),
        judged(f"tokens a {unit(texts)}", True, tokens_a_word),
    ]


def _unknown_words(
    encoder: _Encoder, texts: Sequence[str], covered: set[str]
) -> Iterator[CheckResult]:
    """Yield a check of words that are unknown since they are too long, if any."""
    counts = collections.Counter(word for text in texts for word in text.split())
    long = [word for word in counts if len(word) > _LONGEST_WORD and covered.issuperset(word)]
    encoded = zip(long, encoder.encode(long), strict=True)  # one call: each starts threads
    if lost := [word for word, ids in encoded if encoder.unk_id in ids]:
        size = lambda words: sum(len(word) * counts[word] for word in words)
        share, longest = size(lost) / size(counts), max(lost, key=len)
        detail = f"{share:.2%} of the text, such as {longest[:20]!r}… ({len(longest)} characters)"
        to_set = (
            "make it by vocabulary.train --kind byte_bpe, or write spaces between the words of the "
            f"text: WordPiece reads no word of more than {_LONGEST_WORD} characters"
        )
        is_rare = share <= _MOST_IN_WORDS
        yield judged("words not covered", is_rare, detail, to_set, otherwise=WARNING)


def _shown(letters: Sequence[str], characters: Characters) -> str:
    return f": {signs.named(letters, characters)}" if letters else ""


def writes_joiners(lines: Iterable[str]) -> bool:
    """Return whether `lines` write words with the zero-width joiner, as Persian and Sorani do."""
    return _is_often(JOINER, collections.Counter(itertools.chain.from_iterable(lines)))


def _is_often(character: str, characters: Characters) -> bool:
    """Return whether a character is too frequent to be a stray."""
    letters = sum(n for c, n in characters.items() if c.isalpha())
    return characters[character] * _STRAY_EVERY > letters


def joined_words(normalize: Callable[[str], str], characters: Characters) -> Iterator[CheckResult]:
    """Yield a check that the model can write joiners, if the text has some."""
    if _is_often(JOINER, characters):
        text = normalize(f"a{JOINER}a")
        loss = "is left out" if text == normalize("aa") else "becomes a blank, which cuts words"
        detail = f"U+{ord(JOINER):04X} {'can be written' if JOINER in text else loss}"
        to_set = (
            "make it by vocabulary.train --kind sentencepiece or byte_bpe, or extend a T5's by "
            "vocabulary.extend --corpus: these keep it"
        )
        yield judged("zero-width joiners", JOINER in text, detail, to_set, otherwise=WARNING)


def _lost_characters(encoder: _Encoder, characters: Characters) -> Iterator[CheckResult]:
    """Yield a check of characters that normalization drops or makes a space, if there are some.

    White space and control characters should become spaces, and joiners have their own check. It
    does not warn if all these characters are rare.
    """
    nothing = {encoder.normalize("aa"), encoder.normalize("a a")}
    expected = lambda c: c == JOINER or c.isspace() or unicodedata.category(c) == "Cc"
    odd = [c for c, _ in characters.most_common() if not expected(c)]
    if missing := [c for c in odd if encoder.normalize(f"a{c}a") in nothing]:
        detail = (
            f"blank or nothing to the model, which never writes them{_shown(missing, characters)}"
        )
        rare = not any(_is_often(c, characters) for c in missing)
        to_set = "write other characters in the texts where they have a meaning"
        yield judged("characters lost", rare, detail, to_set, otherwise=WARNING)


def _figures(encoder: _Encoder, texts: Sequence[str]) -> tuple[float, float]:
    """Return (bytes a token, tokens a word)."""
    tokens = sum(map(len, encoder.encode(texts))) or 1
    size = sum(len(text.encode()) for text in texts)
    return size / tokens, tokens / max(sum(len(words(text)) for text in texts), 1)


def cached_mt5() -> str | None:
    """Return the path of mT5's vocabulary in the Hugging Face cache, None if it is not there."""
    import huggingface_hub

    paths = (huggingface_hub.try_to_load_from_cache(name, "spiece.model") for name in MT5)
    return next((path for path in paths if isinstance(path, str)), None)
