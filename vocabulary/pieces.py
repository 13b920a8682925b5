"""A vocabulary whose pieces can be cut and added to, whatever file it is in.

`SentencePieces` is a T5's model, `TokenizerPieces` (`vocabulary.tokenizer_json`) the tokenizer.json
of an encoder. `vocabulary.trim` chooses what is kept, `vocabulary.extend` what is added, and
`vocabulary.checkpoint` changes a checkpoint alike.
"""

import abc
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from convert.formats.sentencepiece_model import BLANK, NUM_SENTINELS, ModelProto, sentinel_ids
from convert.run.model_dir import VOCABULARY
from tasks.text.normalize import is_letter
from vocabulary import sentencepiece_model as spm

# Added to a new piece's score for each old piece it saves: it beats them, and of two new pieces
# with the same beginning the longer one wins.
_SCORE_BONUS = 0.5
# Lost over the list of new pieces: "ab" and "c" would tie with "a" and "bc", and the last bit of a
# float decide, differently in training and when published. The piece learned first wins.
_LOST_BY_ORDER = 0.2
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_JOINERS = "\u200c\u200d"


class NewPiece(NamedTuple):
    """A piece to add: its name, the old ids that spell it, and the two pieces that BPE merges."""

    name: str
    old: tuple[int, ...]
    pair: tuple[str, str] | None = None


class Pieces(abc.ABC):
    """Pieces by id."""

    in_run: ClassVar[str]  # what a run's folder calls the file
    fixed: ClassVar[int]  # ids behind all pieces that each change puts there
    extra_ids = 0  # that seqio adds behind them
    names: Sequence[str]  # by id, "" for an id without piece
    scores: Sequence[float]  # by id; equal ones where the kind has none
    unk_id: int
    encode: Callable[[str], list[int]]  # gives the ids of a text of a corpus
    normalize: Callable[[str], str]  # gives what is cut into pieces

    @property
    def size(self) -> int:
        """Number of ids, with those that seqio adds."""
        return len(self.names) + self.extra_ids

    def words(self, text: str) -> list[list[int]]:
        """Return the ids of each word of a text; no piece goes beyond its word."""
        return [self.encode(word) for word in text.split()]

    @abc.abstractmethod
    def required(self, usage: Mapping[int, int]) -> set[int]:
        """Return the ids that a text with this usage of ids cannot lack, used or not."""

    @abc.abstractmethod
    def changed(
        self, kept: Iterable[int], added: Sequence[NewPiece]
    ) -> tuple["Pieces", spm.Sources]:
        """Return a vocabulary of kept ids, which are in order, and new pieces, and its sources."""

    @abc.abstractmethod
    def write(self, path: str) -> None:
        """Write the file or folder `path`."""

    def parts(self, i: int) -> set[int]:
        """Return the ids without which the id `i` would never be given, with itself."""
        return {i}

    def most_used(self, kept: set[int], usage: Mapping[int, int], size: int) -> set[int]:
        """Return `size` ids: `kept`, then the most used ones, each with its parts."""
        found = {*kept}
        others = (i for i, name in enumerate(self.names) if name and i not in kept)
        for i in sorted(others, key=lambda i: (-usage.get(i, 0), -self.scores[i], i)):
            if len(found) == size:
                break
            more = self.parts(i) - found
            if len(found) + len(more) <= size:
                found |= more
        return found

    def lacks(self, letter: str) -> tuple[int, ...]:
        """Return the ids that stand for a letter that is no piece: unk, or its bytes; else ()."""
        ids = self.encode(letter)
        return tuple(i for i in ids if i == self.unk_id or _BYTE.fullmatch(self.names[i]))

    def runs(self, word: str) -> Iterator[list[int]]:
        """Yield the parts of a word of which a piece may be made: ids of letters, end to end."""
        for ids in self.words(f" {word}"):
            run: list[int] = []
            for i in ids:
                if self.joins[i]:
                    run.append(i)
                else:
                    yield run
                    run = []
            yield run

    @functools.cached_property
    def joins(self) -> Sequence[bool]:
        """Whether each id is of letters alone, behind the mark of a blank."""
        return [self.is_of_letters(name) and i != self.unk_id for i, name in enumerate(self.names)]

    def is_of_letters(self, name: str) -> bool:
        """Return whether a piece is of letters alone, behind the mark of a blank."""
        return bool(name) and all(is_letter(c) or c in _JOINERS for c in name.lstrip(BLANK))

    @functools.cached_property
    def _least(self) -> float:
        return min(self.scores)

    def score(self, old: Collection[int]) -> float:
        """Return the score of a piece that `old` spells: it is given wherever they were."""
        lacking = lambda i: i == self.unk_id or _BYTE.fullmatch(self.names[i])
        given = [self._least if lacking(i) else self.scores[i] for i in old]
        return sum(given) + _SCORE_BONUS * (len(given) - 1)


class SentencePieces(Pieces):
    """A SentencePiece model, with `extra_ids` sentinels that seqio adds behind it, or 0.

    A changed one has the 100 sentinels as its last pieces.
    """

    in_run = VOCABULARY
    fixed = NUM_SENTINELS

    def __init__(self, model: ModelProto, extra_ids: int = 0):
        self.model, self.extra_ids = model, extra_ids
        self.encoder = spm.processor(model)
        self.encode, self.normalize = self.encoder.encode, self.encoder.normalize
        self.sentinels = {*sentinel_ids(model).values()}  # of which no text is made
        pieces = enumerate(model.pieces)
        self.names = ["" if i in self.sentinels else piece.piece for i, piece in pieces]
        self.scores = [piece.score for piece in model.pieces]
        self.unk_id = model.trainer_spec.unk_id

    def required(self, usage: Mapping[int, int]) -> set[int]:
        """Return the ids of pad, eos, unk, bytes, user-defined symbols and used characters."""
        letters = {letter for i in usage for letter in self.names[i]}
        ordinary = (spm.SentencePiece.NORMAL, spm.SentencePiece.UNUSED)
        required = {
            i
            for i, piece in enumerate(self.model.pieces)
            if piece.type not in ordinary or piece.piece in letters
        }
        return required - self.sentinels

    def changed(
        self, kept: Iterable[int], added: Sequence[NewPiece]
    ) -> tuple["SentencePieces", spm.Sources]:
        """Return a vocabulary of kept ids, which are in order, and new pieces, and its sources.

        Sentinels are kept always; raise UserError if there are not 100 of them.
        """
        known = {*self.names}
        lost = np.linspace(0, _LOST_BY_ORDER, len(added)).tolist()
        new = [
            (p.name, self.score(p.old) - less, p.old)
            for p, less in zip(added, lost, strict=True)
            if p.name not in known
        ]
        ordinary = [i for i in kept if i not in self.sentinels]
        model, sources = spm.rebuild(self.model, ordinary, new, self.extra_ids)
        return SentencePieces(model), sources

    def write(self, path: str) -> None:
        """Write the model `path` and the listing beside it."""
        spm.write_model(self.model, path)
