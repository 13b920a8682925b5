"""The vocabularies, and what span corruption must know of them.

    features = seqio.Feature(vocabulary=vocabularies.sentencepiece(vocabularies.ro_model))
    ids = vocabularies.sentinels(features.vocabulary)   # ids of <extra_id_0>, <extra_id_1>, ...

A vocabulary is loaded when its first id is asked for, never at registration. Where its file lies
is a gin-configurable function, e.g. `tasks.vocabularies.ro_model.path = 'gs://bucket/ro.model'`;
a relative path starts at the repository's root.
"""

import pathlib
from collections.abc import Callable

import numpy as np
import seqio
import tensorflow as tf

import gin

ROOT = pathlib.Path(__file__).resolve().parent.parent
T5_MODEL = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"
MT5_MODEL = "gs://t5-data/vocabs/mc4.250000.100extra/sentencepiece.model"


def resolve(path: str) -> str:
    """Returns `path`, or where that is relative and not to be found, `path` in the repository.

    A path that is found stays as it is written: T5X compares the vocabularies of task and model
    by it.
    """
    if "://" in path or path.startswith("/") or pathlib.Path(path).exists():
        return path
    return str(ROOT / path)


@gin.configurable
def ro_model(path: str = "vocabularies/ro_64000.model") -> str:
    """The model file of the Romanian vocabulary of 64,000 pieces."""
    return resolve(path)


@gin.configurable
def t5_model(path: str = T5_MODEL) -> str:
    """The model file of T5's English vocabulary, whose 100 sentinels are its last pieces."""
    return resolve(path)


@gin.configurable
def mt5_model(path: str = MT5_MODEL) -> str:
    """The model file of mT5's vocabulary, whose 100 sentinels are its last pieces."""
    return resolve(path)


@gin.configurable
def ro_mini_model(path: str = "data/ro_mini/ro_mini.model") -> str:
    """The model file of the mini corpus's vocabulary of 2,048 pieces."""
    return resolve(path)


class SentencePieceVocabulary(seqio.SentencePieceVocabulary):
    """A seqio.SentencePieceVocabulary whose file is asked for when first needed.

    Equal to `seqio.SentencePieceVocabulary(file)` and picklable like it.
    """

    def __init__(self, model_file: Callable[[], str]):
        super().__init__("", extra_ids=0)
        self._find_file = model_file

    def _locate(self) -> None:
        if not self._sentencepiece_model_file:
            self._sentencepiece_model_file = self._find_file()

    def _model_context(self):
        if self._model is None:
            self._locate()
            _refuse_missing(self._sentencepiece_model_file, self._find_file)
        return super()._model_context()

    @property
    def sentencepiece_model_file(self) -> str:
        """The model file's path."""
        self._locate()
        return self._sentencepiece_model_file

    def __getstate__(self):
        self._locate()
        state = super().__getstate__()
        state.pop("_find_file", None)
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        self._find_file = lambda: self._sentencepiece_model_file

    __eq__ = seqio.SentencePieceVocabulary.__eq__
    __hash__ = object.__hash__


def _refuse_missing(path: str, find_file: Callable[[], str]) -> None:
    if not tf.io.gfile.exists(path):
        setting = f"tasks.vocabularies.{getattr(find_file, '__name__', '<function>')}.path"
        raise ValueError(
            f"the vocabulary file {path!r} does not exist: make it with "
            f"`python -m vocabulary.train`, or set {setting} to the one you have"
        )


def sentencepiece(model_file: str | Callable[[], str]) -> SentencePieceVocabulary:
    """A SentencePiece vocabulary with its sentinels inside the model.

    Args:
      model_file: a path (local or gs://; a relative one starts at the repository's root), or
        a function of no arguments that returns one, called at first use.
    """
    if isinstance(model_file, str):
        path = resolve(model_file)
        return SentencePieceVocabulary(lambda: path)
    return SentencePieceVocabulary(model_file)


def byt5() -> seqio.ByteVocabulary:
    """UTF-8 bytes as ids 3..258 and 100 sentinels behind them, the first being 358."""
    return seqio.ByteVocabulary(extra_ids=100)


def sentinels(vocabulary: seqio.Vocabulary) -> tuple[int, ...]:
    """Returns the ids of <extra_id_0>, <extra_id_1>, ... as `vocabulary` has them.

    Raises:
      ValueError: it has none, or they do not descend one by one from its last id; training
        would then turn ordinary pieces into sentinels without a word.
    """
    found = sentinels_if_any(vocabulary)
    name = getattr(vocabulary, "sentencepiece_model_file", type(vocabulary).__name__)
    if not found:
        raise ValueError(
            f"the vocabulary {name!r} has no sentinels (<extra_id_0>, <extra_id_1>, ...), which "
            "span corruption needs: make one with `python -m vocabulary.train`"
        )
    expected = tuple(range(vocabulary.vocab_size - 1, vocabulary.vocab_size - 1 - len(found), -1))
    if found != expected:
        raise ValueError(
            f"the vocabulary {name!r} has <extra_id_0> at id {found[0]} of "
            f"{vocabulary.vocab_size}: sentinels must be its last pieces in descending order, "
            "else ordinary pieces would be taken for them; `python -m vocabulary.check` tells more"
        )
    return found


def sentinels_if_any(vocabulary: seqio.Vocabulary) -> tuple[int, ...]:
    """Returns the ids of <extra_id_0>, <extra_id_1>, ... wherever they stand, () without any."""
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        return _sentinel_pieces(vocabulary.tokenizer)
    last = vocabulary.vocab_size - 1
    return tuple(range(last, last - vocabulary.extra_ids, -1))


def word_starts(vocabulary: seqio.Vocabulary) -> np.ndarray:
    """Returns which ids begin a word, bool [vocab_size]: pieces that begin with ▁, or white space.

    A SentencePiece model writes the blank before a word as ▁ at the front of its first piece; of
    bytes, a blank or line end counts as the first of the word behind it.
    """
    starts = np.zeros([vocabulary.vocab_size], bool)
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        pieces = range(vocabulary.tokenizer.GetPieceSize())
        starts[: len(pieces)] = [vocabulary.tokenizer.IdToPiece(i).startswith("▁") for i in pieces]
    else:
        for blank in (" ", "\n", "\t", "\r"):
            starts[vocabulary.encode(blank)[0]] = True
    return starts


def ids_of(vocabulary: seqio.Vocabulary, text: str) -> tuple[int, ...]:
    """Returns the ids of a word that a vocabulary may have as one piece, such as "[R]".

    Raises:
      ValueError: the vocabulary cannot spell it.
    """
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        whole = vocabulary.tokenizer.PieceToId(text)
        ids = [whole] if whole != vocabulary.unk_id else vocabulary.encode(text)
    else:
        ids = vocabulary.encode(text)
    if vocabulary.unk_id in ids:
        name = getattr(vocabulary, "sentencepiece_model_file", type(vocabulary).__name__)
        raise ValueError(
            f"the vocabulary {name!r} cannot spell {text!r}, since one of its characters is the "
            "unknown piece: choose prefixes that it can, such as '<extra_id_99>'"
        )
    return tuple(ids)


def _sentinel_pieces(tokenizer) -> tuple[int, ...]:
    """Ids of the sentinels in a SentencePiece model, which may spell them with or without ▁."""
    for spelling in ("<extra_id_{}>", "▁<extra_id_{}>"):
        found = []
        while (i := tokenizer.PieceToId(spelling.format(len(found)))) != tokenizer.unk_id():
            found.append(i)
        if found:
            return tuple(found)
    return ()
