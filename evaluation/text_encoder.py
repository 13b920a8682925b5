"""A model's vocabulary, as evaluation needs it.

    encoder = vocabulary_encoder(vocabulary, "runs/ro_t5x_base")
    encoder.encode(["Ana are", "mere"])     # the ids of each part of "Ana are mere"
    encoder.sentinels[:2]                   # the ids of <extra_id_0> and <extra_id_1>

It turns the parts of a text into ids, and has the ids of the sentinels.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from etils import epath

from common.errors import UserError
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.formats.sentencepiece_model import NUM_SENTINELS, sentinels
from convert.formats.tokenizer_files import NUM_BYTE_IDS
from convert.run.vocabulary import sentencepiece_vocabulary
from convert.sizes import T5_IDS
from convert.tokenizer import TrainedVocabulary, load_sentencepiece
from tasks.tokenizer_vocabulary import TokenizerVocabulary


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    """A vocabulary, as hidden text needs it.

    Args:
      ids_of: gives the ids of a text, without eos.
      sentinels: the ids from `<extra_id_0>` on, of a T5.
      unk_id: the id of an unknown piece, None if there is none.
      marks_spaces: whether the ids of a text hold the space before it only if it is written there,
        as ids of bytes do; otherwise every text begins with a new word.
      word_starts: the ids that begin a word.
      mask: the id of an encoder's mask.
      before: the ids that an encoder has before a text.
      after: the ids that an encoder has after a text.
      eos_id: the id that ends a text of a T5.
    """

    ids_of: Callable[[str], list[int]]
    sentinels: tuple[int, ...]
    unk_id: int | None
    marks_spaces: bool
    word_starts: frozenset[int] = frozenset()
    mask: int | None = None
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    eos_id: int = T5_IDS["eos_token_id"]

    def encode(self, parts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each part of a text; the parts are separated by spaces."""
        blank = " " if self.marks_spaces else ""
        return [self.ids_of(blank * (i > 0) + part) for i, part in enumerate(parts)]


def vocabulary_encoder(vocabulary: TrainedVocabulary, owner: str) -> TextEncoder:
    """Return the encoder of a run's vocabulary; raise UserError if it has no sentinels."""
    if vocabulary.is_bytes:
        # The published ByT5, of 0 extra ids, was trained with its last bytes as sentinels.
        last = NUM_BYTE_IDS - 1 + vocabulary.extra_ids
        marks = tuple(last - i for i in range(vocabulary.extra_ids or NUM_SENTINELS))
        blank = frozenset(vocabulary.encode(" "))
        return TextEncoder(vocabulary.encode, marks, None, True, blank)
    model = load_sentencepiece(vocabulary.path, vocabulary.extra_ids)
    names = [model.IdToPiece(i) for i in range(len(model))]
    return _checked(model.encode, names, model.unk_id(), model.eos_id(), owner)


def folder_encoder(folder: pathlib.Path) -> TextEncoder:
    """Return the encoder of a T5's Hugging Face folder; raise UserError if it has none."""
    checkpoint = HfCheckpoint.open(folder)
    if (count := checkpoint.byte_sentinels()) is not None:
        return vocabulary_encoder(TrainedVocabulary("bytes", count), str(folder))
    if (path := folder / "spiece.model").is_file():
        trained = sentencepiece_vocabulary(str(path), checkpoint.extra_ids())
        return vocabulary_encoder(trained, str(folder))
    if not (folder / "tokenizer.json").is_file():
        raise UserError(
            str(folder),
            why="has no tokenizer: neither spiece.model nor tokenizer.json is there",
            to_set="copy the model's own into it",
        )
    vocabulary = TokenizerVocabulary(str(folder))
    eos_id = T5_IDS["eos_token_id"] if vocabulary.eos_id is None else vocabulary.eos_id
    return _checked(vocabulary.encode, vocabulary.pieces, vocabulary.unk_id, eos_id, str(folder))


def tokenizer_encoder(path: epath.PathLike, owner: str) -> TextEncoder:
    """Return the encoder of an encoder's tokenizer.json; raise UserError if it has no mask."""
    vocabulary = TokenizerVocabulary(str(path))
    if vocabulary.mask_id is None:
        raise UserError(
            owner,
            why="has a tokenizer without a mask token, so no text can be hidden from it",
            to_set="name its mask_token in tokenizer_config.json",
        )
    ids_of = lambda text: vocabulary.encode_texts([text])[0].tolist()
    before, after = (() if i is None else (i,) for i in (vocabulary.cls_id, vocabulary.sep_id))
    return TextEncoder(
        ids_of,
        (),
        vocabulary.unk_id,
        marks_spaces(ids_of),
        mask=vocabulary.mask_id,
        before=before,
        after=after,
    )


def _checked(
    ids_of, names: Sequence[str], unk_id: int | None, eos_id: int, owner: str
) -> TextEncoder:
    numbered = sentinels((name, i) for i, name in enumerate(names))
    if not {0, 1} <= numbered.keys():
        raise UserError(
            owner,
            why="has no <extra_id_0> and <extra_id_1> in its vocabulary, so no text can be hidden "
            "from it",
            to_set="name a model that was pretrained by span corruption",
        )
    marks = tuple(numbered.values())
    starts = {i for i, name in enumerate(names) if name.startswith(("▁", "Ġ"))} - {*marks}
    spaces = marks_spaces(ids_of)
    return TextEncoder(ids_of, marks, unk_id, spaces, frozenset(starts), eos_id=eos_id)


def marks_spaces(ids_of: Callable[[str], list[int]]) -> bool:
    """Return whether a text's ids hold the space before it only if it is written there."""
    return ids_of("a b") != ids_of("a") + ids_of("b")
