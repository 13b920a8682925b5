"""SentencePiece's normalization of text, as a normalizer of the `tokenizers` library.

    tokenizer.normalizer = normalizer_of(model)            # a ModelProto

SentencePiece replaces the longest sequence of characters that its rules (a precompiled charsmap)
know, then removes and marks blanks. The library has the same rules as `Precompiled`, but looks them
up by what Unicode calls a grapheme: of "e" and two combining signs (NFD) it loses the second, of
"ﬁ" with an accent it loses the accent, and it does not compose Hangul or half-width Katakana. So
here graphemes are taken apart first, by a mark before each combining character. After the rules the
mark is taken out where SentencePiece composes: after a letter, or a letter and signs, that Unicode
composes with the next sign. NFC then composes exactly these, but for signs of scripts that Unicode
has since its version 9 (Dives Akuru, Tulu, Kirat Rai).
"""

import collections
import functools
import itertools
import unicodedata
from collections.abc import Iterable
from typing import Any

import sentencepiece

from common.errors import UserError
from convert.formats.sentencepiece_model import BLANK, SENTINEL

# Noncharacters of Unicode, which no text has: the mark, what a text that has it gets, and the
# places of symbols that the rules must not change.
_MARK, _OTHER, *_PLACES = map(chr, range(0xFDD0, 0xFDF0))
# Rules that are compositions of Unicode, by their names in SentencePiece.
_COMPOSING = ("nmt_nfkc", "nfkc")
# What continues a grapheme: signs, joiners, and parts of syllables of every width. The library's
# graphemes are of a newer Unicode than its expressions, so what these do not know may be a sign;
# the mark and the places, which they do not know either, are none.
_CONTINUES = (
    rb"\p{M}\p{Cn}\u200c\u200d\uff9e\uff9f\u1160-\u11ff\u3131-\u318e\uffa0-\uffdc\ud7b0-\ud7fb"
    rb"&&[^\ufdd0-\ufdef]"
).decode("raw_unicode_escape")
_LEADS, _VOWELS, _ENDS = "[\u1100-\u1112]", "[\u1161-\u1175]", "[\u11a8-\u11c2]"


def normalizer_of(model: Any) -> Any:
    """Return the `tokenizers` normalizer of a ModelProto, which writes blanks as ▁."""
    from tokenizers import Regex, normalizers

    spec = model.normalizer_spec
    change = lambda pattern, to: normalizers.Replace(Regex(pattern), to)
    steps: list[Any] = [normalizers.Replace(_MARK, _OTHER)]
    places = dict(zip(_changed_symbols(model), _PLACES, strict=False))
    steps += [normalizers.Replace(symbol, place) for symbol, place in places.items()]
    if rules := spec.precompiled_charsmap:
        composes = spec.name in _COMPOSING
        if composes:
            twice = f"(?=[{_CONTINUES}])(?<=[{_expanding()}])|(?=\u0344)(?<!\\A)"
            steps.append(change(twice, _MARK))
        steps.append(change(rf"(?=[{_CONTINUES}])(?<!\A)|(?=\n)(?<=\r)", _MARK))
        steps.append(normalizers.Precompiled(rules))
        if composes:
            steps += [change(_composed(), ""), normalizers.NFC()]
        steps.append(normalizers.Replace(_MARK, ""))
    if spec.remove_extra_whitespaces:
        steps += [change(" {2,}", " "), change(rf"\A +|[ {BLANK}]+\z", "")]
    steps.append(normalizers.Replace(" ", BLANK))
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend(BLANK))
    steps += [normalizers.Replace(place, symbol) for symbol, place in places.items()]
    return normalizers.Sequence(steps)


def user_symbols(model: Any) -> dict[int, str]:
    """Return the user-defined symbols of a ModelProto by id.

    Sentinels are left out: the tokenizer knows them as special tokens.
    """
    kind, pieces = model.SentencePiece.USER_DEFINED, enumerate(model.pieces)
    symbols = {i: piece.piece for i, piece in pieces if piece.type == kind}
    return {i: text for i, text in symbols.items() if not SENTINEL.fullmatch(text)}


def _changed_symbols(model: Any) -> list[str]:
    """Return the user's symbols that the rules would change, the longest first."""
    rules = sentencepiece.SentencePieceNormalizer(model_proto=model.SerializeToString())
    changed = [text for text in user_symbols(model).values() if rules.normalize(text) != text]
    if len(changed) > len(_PLACES):
        raise UserError(
            "the vocabulary",
            why=f"has rules that change {len(changed)} of its user-defined symbols",
            to_set=f"keep those symbols to {len(_PLACES)} or fewer",
        )
    return sorted(changed, key=len, reverse=True)


def _ranges(characters: Iterable[str]) -> str:
    """Return these characters as the inside of a character class of a regular expression."""
    numbers = sorted(map(ord, characters))
    runs = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in run] for _, run in runs]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in ends)


@functools.cache
def _expanding() -> str:
    """Return the characters that NFKC expands or the rules drop, as the inside of a class."""
    controls = "".join(map(chr, (*range(1, 32), *range(0x7F, 0xA0), 0xAD)))
    characters = map(chr, itertools.chain(range(0xA0, 0xD800), range(0xE000, 0x110000)))
    normal = lambda c: unicodedata.normalize("NFKC", c)
    return _ranges({*controls, *(c for c in characters if len(normal(c)) > 1)})


@functools.cache
def _composed() -> str:
    """Return the regular expression of the marks at which Unicode composes."""
    before: dict[str, dict[str, set[str]]] = collections.defaultdict(dict)
    for letter in map(chr, itertools.chain(range(0xA0, 0xAC00), range(0xF900, 0x110000))):
        parts = unicodedata.normalize("NFD", letter)
        if len(parts) > 1 and unicodedata.normalize("NFC", parts) == letter:
            before[parts[-1]].setdefault(_MARK.join(["", *parts[1:-1]]), set()).add(parts[0])
    signs: dict[str, str] = collections.defaultdict(str)  # {character: signs that compose with it}
    for sign, letters in before.items():
        ends = sorted(letters.items())
        signs["|".join(f"[{_ranges(first)}]{end}{_MARK}" for end, first in ends)] += sign
    patterns = [f"{_MARK}(?=[{those}])(?<={letters})" for letters, those in signs.items()]
    patterns.append(f"{_MARK}(?={_VOWELS})(?<={_LEADS}{_MARK})")
    patterns.append(f"{_MARK}(?={_ENDS})(?<={_LEADS}{_MARK}{_VOWELS}{_MARK})")
    return "|".join(patterns)
