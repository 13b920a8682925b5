"""Decoding that can only add diacritics: which pieces may come next, given the bare text.

    constraint = Diacritics(vocabulary, "ro")
    allowed, finish = constraint(["Fata vine"])
    allowed(0, [])          # ids of ▁F, ▁Fa, ▁Fă, ▁Fața, … whose bare text begins the input
    finish(0, ids)          # "Fața vine": never other letters than the input's, whatever the ids

A letter of the input that has diacritics already keeps them. What the vocabulary cannot spell is
the unknown piece, one a character, and comes out as it went in. The input is one line, blanks
single (`sentences.split` gives such).

    constraint = Diacritics(vocabulary, "ro", words=["fată", "fața"])

then the model chooses between these two for every "fata", in capitals too; of a word that the list
lacks, as of "vine", all spellings stay possible. So a model need not have learned all words: it
chooses between those that are known.
"""

import collections
import functools
import re
from collections.abc import Callable, Iterable, Sequence

import seqio

from tasks.diacritics.letters import alphabet

Allowed = Callable[[int, Sequence[int]], list[int]]
Finish = Callable[[int, Sequence[int]], str]
Spans = list[tuple[int, int, list[str]]]  # begin and end of a word in a text, what it may be
Fits = Callable[[str, str], bool]
WORD = re.compile(r"[^\W\d_]+")


class Diacritics:
    """What output may be, for `t5x.inference.constrained_decoding`.

    Args:
      vocabulary: of the model.
      language: of `tasks.diacritics.letters.LETTERS`.
      words: known ones. A word with the letters of some of them, but for diacritics and capitals,
        becomes one of these; other words are free.
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
        """Returns `allowed` and `finish` for a batch with these inputs, row by row.

        allowed(row, prefix) gives the ids that may follow a prefix it has allowed: EOS alone at the
        end, and nothing behind EOS. finish(row, ids) is the text of such ids; what they do not
        reach stays as in the input.
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
        """The words of a text that are known."""
        if not self._words:
            return []
        found = ((w, self._letters.bare(w[0]).lower()) for w in WORD.finditer(text))
        return [(w.start(), w.end(), self._words[key]) for w, key in found if key in self._words]


def _fits(spans: Spans, written: str, more: str) -> bool:
    """Whether no word that `more` is part of becomes one that is not known."""
    at, written = len(written), written + more
    return all(
        any(word.startswith(written[begin:end].lower()) for word in words)
        for begin, end, words in spans
        if begin < len(written) and at < end
    )


class _Pieces:
    """A SentencePiece vocabulary, by the bare text of its pieces."""

    def __init__(self, vocabulary: seqio.SentencePieceVocabulary, letters):
        model, self._bare = vocabulary.tokenizer, letters.bare
        self.eos_id, self._unk_id = vocabulary.eos_id, vocabulary.unk_id
        self._texts: dict[int, str] = {}
        self._by_bare: dict[str, list[int]] = collections.defaultdict(list)
        for i in range(model.GetPieceSize()):
            # Sentinels are pieces as others are, but no text is spelled with them.
            piece = model.IdToPiece(i)
            special = model.IsControl(i) or model.IsUnknown(i) or model.IsByte(i)
            if not special and "<extra_id_" not in piece:
                self._texts[i] = piece.replace("▁", " ")
                self._by_bare[self._bare(self._texts[i])].append(i)
        self._longest = max(map(len, self._by_bare))

    def following(
        self, text: str, choices: list[str], prefix: Sequence[int], fits: Fits
    ) -> list[int]:
        # SentencePiece writes a blank in front of a text's first word.
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
        # No word fits where the input's own diacritics are in none, say.
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
    """UTF-8 bytes, of which a letter may have several."""

    def __init__(self, vocabulary: seqio.ByteVocabulary, letters):
        del letters
        self.eos_id = vocabulary.eos_id
        self._first = vocabulary.vocab_size - vocabulary.extra_ids - 256

    def _written(self, ids: Sequence[int]) -> tuple[str, bytes]:
        """The whole letters, and the bytes of one begun."""
        data = bytes(i - self._first for i in ids if 0 <= i - self._first < 256)
        text = data.decode("utf-8", "ignore")
        return text, data[len(text.encode()) :]

    def following(
        self, text: str, choices: list[str], prefix: Sequence[int], fits: Fits
    ) -> list[int]:
        written, begun = self._written(prefix)
        if len(written) == len(text):
            return [self.eos_id]
        forms = choices[len(written)]
        forms = [form.encode() for form in forms if fits(written, form)] or map(str.encode, forms)
        return sorted({f[len(begun)] + self._first for f in forms if f.startswith(begun)})

    def text(self, text: str, ids: Sequence[int]) -> str:
        del text
        return self._written(ids)[0]
