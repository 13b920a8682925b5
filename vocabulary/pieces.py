"""A vocabulary whose pieces can be removed and added, whatever file holds it.

`SentencePieces` is a T5's model, `TokenizerPieces` (`vocabulary.tokenizer_json`) the tokenizer.json
of an encoder. `vocabulary.trim` chooses what is kept, `vocabulary.extend` what is added, and
`vocabulary.checkpoint` changes a checkpoint alike.
"""

import abc
import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from common.embedding import padded_rows
from common.errors import UserError
from common.printable import JOINERS
from convert.formats.sentencepiece_model import (
    BLANK,
    NUM_SENTINELS,
    ModelProto,
    SentencePiece,
    append_sentinels,
    keep_character,
    model_files,
    processor,
    sentinel_ids,
)
from convert.run.model_dir import VOCABULARY
from tasks.text.normalize import is_letter

# Added to a new piece's score for each old piece it saves: it beats them, and of two new pieces
# with the same beginning the longer one wins.
_SCORE_BONUS = 0.5
# Lost over the list of new pieces: "ab" and "c" would tie with "a" and "bc", and the last bit of a
# float decide, differently in training and when published. The piece learned first wins.
_LOST_BY_ORDER = 0.2
# For each id of a new vocabulary the ids of the old one from whose mean its embedding starts.
Sources = Sequence[tuple[int, ...]]
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class NewPiece(NamedTuple):
    """A piece to add: its name, the old ids that spell it, and the two pieces that BPE merges."""

    name: str
    old: tuple[int, ...]
    pair: tuple[str, str] | None = None


class Pieces(abc.ABC):
    """The pieces of a vocabulary by id."""

    in_run: ClassVar[str]  # name of the file in a run's folder
    fixed: ClassVar[int]  # number of ids that each change puts after all pieces
    extra_ids = 0  # number of ids that seqio adds after them
    names: Sequence[str]  # name of each id, "" for an id without piece
    scores: Sequence[float]  # score of each id; equal ones where the kind has none
    unk_id: int  # -1 if every text can be spelled
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
        """Return the ids that must stay, for texts that use ids as often as `usage` says."""

    @abc.abstractmethod
    def change(
        self, kept: Iterable[int] | None = None, added: Sequence[NewPiece] = ()
    ) -> "VocabularyChange":
        """Return the change to a vocabulary of kept ids, ascending (None: all), and new pieces."""

    @abc.abstractmethod
    def files(self, path: str) -> dict[str, bytes]:
        """Return the contents of the file or folder `path`, by path."""

    def parts(self, i: int) -> set[int]:
        """Return `i` and the ids without which encoding would never give it."""
        return {i}

    def most_used(self, kept: set[int], usage: Mapping[int, int], size: int) -> set[int]:
        """Return `size` ids: `kept`, then the most used ones, each with its parts."""
        ids = {*kept}
        others = (i for i, name in enumerate(self.names) if name and i not in kept)
        for i in sorted(others, key=lambda i: (-usage.get(i, 0), -self.scores[i], i)):
            if len(ids) == size:
                break
            more = self.parts(i) - ids
            if len(ids) + len(more) <= size:
                ids |= more
        return ids

    def lacks(self, character: str) -> tuple[int, ...]:
        """Return the ids of a character that is no piece, unk or its bytes; () if it is one."""
        ids = self.encode(character)
        return tuple(i for i in ids if i == self.unk_id or _BYTE.fullmatch(self.names[i]))

    def may_keep(self, character: str) -> bool:
        """Return whether `change` can add a character that `normalize` loses."""
        return False

    def runs(self, word: str) -> Iterator[list[int]]:
        """Yield the parts of a word that may become a piece: neighbouring ids of letters."""
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
        """Whether each id may be part of a new piece, since it is made of letters."""
        return [self.is_of_letters(name) and i != self.unk_id for i, name in enumerate(self.names)]

    def is_of_letters(self, name: str) -> bool:
        """Return whether a piece is made of letters, except for the mark of a blank."""
        return bool(name) and all(is_letter(c) or c in JOINERS for c in name.lstrip(BLANK))

    @functools.cached_property
    def _least(self) -> float:
        return min(self.scores)

    def score(self, old: Collection[int]) -> float:
        """Return a score with which a piece beats the ids `old` that spell it."""
        lacking = lambda i: i == self.unk_id or _BYTE.fullmatch(self.names[i])
        scores = [self._least if lacking(i) else self.scores[i] for i in old]
        return sum(scores) + _SCORE_BONUS * (len(scores) - 1)


class SentencePieces(Pieces):
    """A SentencePiece model, with `extra_ids` sentinels that seqio adds after it, or 0.

    A changed one has the 100 sentinels as its last pieces.
    """

    in_run = VOCABULARY
    fixed = NUM_SENTINELS

    def __init__(self, model: ModelProto, extra_ids: int = 0):
        self.model, self.extra_ids = model, extra_ids
        self.encoder = processor(model)
        self.encode, self.normalize = self.encoder.encode, self.encoder.normalize
        self.sentinels = {*sentinel_ids(model).values()}  # no text contains them
        pieces = enumerate(model.pieces)
        self.names = ["" if i in self.sentinels else piece.piece for i, piece in pieces]
        self.scores = [piece.score for piece in model.pieces]
        self.unk_id = model.trainer_spec.unk_id

    def required(self, usage: Mapping[int, int]) -> set[int]:
        """Return the ids of pad, eos, unk, bytes, user-defined symbols and used characters."""
        letters = {letter for i in usage for letter in self.names[i]}
        ordinary = (SentencePiece.NORMAL, SentencePiece.UNUSED)
        required = {
            i
            for i, piece in enumerate(self.model.pieces)
            if piece.type not in ordinary or piece.piece in letters
        }
        return required - self.sentinels

    def may_keep(self, character: str) -> bool:
        """Return whether `change` can add a character that `normalize` loses."""
        return character not in self.normalize(f"a{character}a")

    def change(
        self, kept: Iterable[int] | None = None, added: Sequence[NewPiece] = ()
    ) -> "VocabularyChange":
        """Return the change to a vocabulary of kept ids, ascending (None: all), and new pieces.

        The 100 sentinels are always kept, as its last pieces. The new model's normalization keeps
        a new piece of one character.

        Raises:
          UserError: there are fewer.
        """
        model, sources, names = ModelProto(), list[tuple[int, ...]](), {*self.names}
        model.CopyFrom(self.model)
        del model.pieces[:]
        for i in range(len(self.names)) if kept is None else kept:
            if i not in self.sentinels:
                model.pieces.append(self.model.pieces[i])
                sources.append((i,))
        ids = {old: new for new, (old,) in enumerate(sources)}
        for role in ("pad_id", "eos_id", "unk_id", "bos_id"):
            setattr(model.trainer_spec, role, ids.get(getattr(self.model.trainer_spec, role), -1))
        losses = np.linspace(0, _LOST_BY_ORDER, len(added)).tolist()
        for new, loss in zip(added, losses, strict=True):
            if len(new.name) == 1 and self.may_keep(new.name):
                keep_character(model, new.name)
            if new.name not in names:
                score = self.score(new.old) - loss
                model.pieces.add(piece=new.name, score=score, type=SentencePiece.NORMAL)
                sources.append(tuple(new.old))
        append_sentinels(model)
        sources += self._sentinels_in_order()
        return VocabularyChange(self, SentencePieces(model), sources)

    def _sentinels_in_order(self) -> Sources:
        """Return the ids of `<extra_id_99>` to `<extra_id_0>`, in the model or after it."""
        added = {number: self.size - 1 - number for number in range(self.extra_ids)}
        ids = added | sentinel_ids(self.model)
        if absent := [number for number in range(NUM_SENTINELS) if number not in ids]:
            raise UserError(
                "the model",
                why=f"has no piece <extra_id_{absent[0]}>, and all {NUM_SENTINELS} sentinels are "
                "needed",
                to_set=f"set --extra_ids {NUM_SENTINELS} if seqio adds them after its pieces",
            )
        return [(ids[number],) for number in reversed(range(NUM_SENTINELS))]

    def files(self, path: str) -> dict[str, bytes]:
        """Return the contents of the model `path` and of the listing beside it."""
        return model_files(self.model, path)


@dataclasses.dataclass(frozen=True)
class VocabularyChange:
    """Two vocabularies, and for each id of the new one the old ids from whose mean it starts."""

    old: Pieces
    new: Pieces
    sources: Sources

    @property
    def is_kept(self) -> list[bool]:
        """Whether each new id was there before; a letter that was unknown has one source, too."""
        names = {*self.old.names}
        num_pieces = len(self.old.names)  # sentinels that seqio adds have higher ids
        pairs = zip(self.new.names, self.sources, strict=True)
        return [len(ids) == 1 and (name in names or ids[0] >= num_pieces) for name, ids in pairs]

    @property
    def rows(self) -> Sources:
        """The sources of the embedding's rows: padded to a multiple of 128 with rows from unk."""
        unused = padded_rows(len(self.sources)) - len(self.sources)
        return [*self.sources, *[(max(self.old.unk_id, 0),)] * unused]

    def followed_by(self, later: "VocabularyChange") -> "VocabularyChange":
        """Return this change and a later one of its new vocabulary as one."""
        sources = [tuple(old for i in ids for old in self.sources[i]) for ids in later.sources]
        return VocabularyChange(self.old, later.new, sources)
