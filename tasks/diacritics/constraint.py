"""Constrained decoding for diacritics: the pieces that may come next, given the bare text.

    constraint = DiacriticsConstraint(vocabulary, "ro")
    allowed, finish = constraint(["Fata vine"])
    allowed(0, [])          # ids of ▁F, ▁Fa, ▁Fă, ▁Fața, … whose bare text begins the input
    finish(0, ids)          # "Fața vine": always the input's letters, whatever the ids

A letter of the input with diacritics keeps them. A character that the vocabulary cannot spell is
the unknown piece, and is copied to the output. The input is one line with single blanks, as
`tasks.text.sentence_split` returns.

    constraint = DiacriticsConstraint(vocabulary, "ro", words=["fată", "fața"])

With words, the model chooses between these two for every "fata", in capitals too; words that are
not listed, such as "vine", may have any spelling. So a model need not have learned all words.
"""

import collections
import functools
import re
from collections.abc import Callable, Iterable, Sequence

import seqio

from tasks.diacritics.letters import alphabet

Allowed = Callable[[int, Sequence[int]], list[int]]
Finish = Callable[[int, Sequence[int]], str]
Spans = list[tuple[int, int, list[str]]]  # begin and end of a word in a text, its spellings
Fits = Callable[[str, str], bool]
WORD = re.compile(r"[^\W\d_]+")


class DiacriticsConstraint:
    """The possible outputs, for `t5x.inference.constrained_decoding`.

    A word that equals some of the known `words` except for diacritics and capitals becomes one of
    these; other words are free. `language` is a key of `tasks.diacritics.letters.LETTERS`.
    """

    def __init__(
        self, vocabulary: seqio.Vocabulary, language: str = "ro", words: Iterable[str] = ()
    ):
        self._letters = alphabet(language)
        self._words: dict[str, list[str]] = collections.defaultdict(list)
        for word in dict.fromkeys(word.lower() for word in words):
            self._words[self._letters.bare(word)].append(word)
        known = _Bytes if isinstance(vocabulary, seqio.ByteVocabulary) else _Pieces
        self._known = known(vocabulary, self._letters)

    def __call__(self, texts: Sequence[str]) -> tuple[Allowed, Finish]:
        """Return `allowed` and `finish` for a batch with these inputs.

        allowed(row, prefix) returns the ids that may follow an allowed prefix: only EOS at the end,
        nothing after EOS. finish(row, ids) returns the text of such ids, followed by the rest of
        the input.
        """
        known = self._known
        choices = [[self._letters.forms[letter] for letter in text] for text in texts]
        spans = [self._spans(text) for text in texts]

        def allowed(row: int, prefix: Sequence[int]) -> list[int]:
            if known.eos_id in prefix:
                return []
            fits = functools.partial(_fits, spans[row])
            return known.following(texts[row], choices[row], prefix, fits)

        def finish(row: int, ids: Sequence[int]) -> str:
            written = known.text(texts[row], ids)
            return written + texts[row][len(written) :]

        return allowed, finish

    def _spans(self, text: str) -> Spans:
        """Return the known words in a text."""
        if not self._words:
            return []
        found = ((w, self._letters.bare(w[0]).lower()) for w in WORD.finditer(text))
        return [(w.start(), w.end(), self._words[key]) for w, key in found if key in self._words]


def _fits(spans: Spans, written: str, more: str) -> bool:
    """Return whether every known word that `more` is part of can still be one of its spellings."""
    at, written = len(written), written + more
    return all(
        any(word.startswith(written[begin:end].lower()) for word in words)
        for begin, end, words in spans
        if begin < len(written) and at < end
    )


class _Pieces:
    """The next ids in a SentencePiece vocabulary, by the bare text of its pieces."""

    def __init__(self, vocabulary: seqio.SentencePieceVocabulary, letters):
        model, self._bare = vocabulary.tokenizer, letters.bare
        self.eos_id, self._unk_id = vocabulary.eos_id, vocabulary.unk_id
        self._texts: dict[int, str] = {}
        self._by_bare: dict[str, list[int]] = collections.defaultdict(list)
        for i in range(model.GetPieceSize()):
            # Sentinels are ordinary pieces, but never part of a text.
            piece = model.IdToPiece(i)
            special = model.IsControl(i) or model.IsUnknown(i) or model.IsByte(i)
            if not special and "<extra_id_" not in piece:
                self._texts[i] = piece.replace("▁", " ")
                self._by_bare[self._bare(self._texts[i])].append(i)
        self._longest = max(map(len, self._by_bare))

    def following(
        self, text: str, choices: list[str], prefix: Sequence[int], fits: Fits
    ) -> list[int]:
        # SentencePiece puts a blank before a text's first word.
        text, choices = " " + text, [" ", *choices]
        at = sum(len(self._texts.get(i, "?")) for i in prefix)
        if at >= len(text):
            return [self.eos_id]
        found = []
        bare = self._bare(text[at : at + self._longest])
        for n in range(1, len(bare) + 1):
            for i in self._by_bare.get(bare[:n], ()):
                pairs = zip(self._texts[i], choices[at : at + n], strict=True)
                if all(letter in forms for letter, forms in pairs):
                    found.append(i)
        # No word fits if, for example, none has the input's own diacritics.
        written = self.text(text[1:], prefix)
        kept = [i for i in found if fits(written, self._texts[i][not prefix :])]
        return kept or found or [self._unk_id]

    def text(self, text: str, ids: Sequence[int]) -> str:
        written = ""
        for i in ids:
            if i == self.eos_id:
                break
            written += self._texts.get(i) or (" " + text)[len(written) : len(written) + 1]
        return written[1:]


class _Bytes:
    """The next ids among UTF-8 bytes; a letter may have several."""

    def __init__(self, vocabulary: seqio.ByteVocabulary, letters):
        del letters
        self.eos_id = vocabulary.eos_id
        self._first = vocabulary.vocab_size - vocabulary.extra_ids - 256

    def _written(self, ids: Sequence[int]) -> tuple[str, bytes]:
        """Return the complete letters, and the bytes of an incomplete one."""
        data = bytes(i - self._first for i in ids if 0 <= i - self._first < 256)
        text = data.decode("utf-8", "ignore")
        return text, data[len(text.encode()) :]

    def following(
        self, text: str, choices: list[str], prefix: Sequence[int], fits: Fits
    ) -> list[int]:
        written, begun = self._written(prefix)
        if len(written) == len(text):
            return [self.eos_id]
        letters = choices[len(written)]
        fitting = [letter for letter in letters if fits(written, letter)] or letters
        forms = [letter.encode() for letter in fitting]
        return sorted({f[len(begun)] + self._first for f in forms if f.startswith(begun)})

    def text(self, text: str, ids: Sequence[int]) -> str:
        del text
        return self._written(ids)[0]
