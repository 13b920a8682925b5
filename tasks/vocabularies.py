"""The vocabularies, their sentinels and word beginnings.

    features = seqio.Feature(vocabulary=vocabularies.sentencepiece(vocabularies.ro_model))
    ids = vocabularies.sentinels(features.vocabulary)   # ids of <extra_id_0>, <extra_id_1>, ...

A vocabulary is loaded when its first id is needed, never at registration. The path of its file is
returned by a gin-configurable function, `tasks.vocabularies.ro_model.path = 'gs://bucket/ro.model'`;
a relative path starts at the repository's root.
"""

import functools
import itertools
import os
import pathlib
import zlib
from collections.abc import Callable

import numpy as np
import seqio
import tensorflow as tf
from sentencepiece import SentencePieceProcessor

import gin
from common import arguments
from common.errors import ROOT, UserError
from tasks.tokenizer_vocabulary import TokenizerVocabulary

T5_MODEL = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"
MT5_MODEL = "gs://t5-data/vocabs/mc4.250000.100extra/sentencepiece.model"


def resolve(path: str) -> str:
    """Return `path`, or, if it is relative and does not exist, `path` in the repository.

    An existing path is returned as written: T5X compares the vocabularies of task and model by it.
    """
    path = arguments.local(path)
    if "://" in path or path.startswith("/") or pathlib.Path(path).exists():
        return path
    return str(ROOT / path)


@gin.configurable
def ro_model(path: str = "vocabularies/ro_64000.model") -> str:
    """Return the model file of the Romanian vocabulary of 64,000 pieces."""
    return resolve(path)


@gin.configurable
def task_file(default: str, path: str | None = None) -> str:
    """Return the vocabulary of a task that names a file: `path`, or without it that `default`.

    Recipes of `tasks.new_language` bind `path` to VOCABULARY_FILE, as they do for the model.
    """
    return resolve(path or default)


def of_recipe(default: str) -> Callable[[], str]:
    """Return a function that returns the vocabulary which the recipe names, else `default`."""
    return functools.partial(task_file, default)


@gin.configurable
def t5_model(path: str = T5_MODEL) -> str:
    """Return the model file of T5's English vocabulary, whose 100 sentinels are its last pieces."""
    return resolve(path)


@gin.configurable
def mt5_model(path: str = MT5_MODEL) -> str:
    """Return the model file of mT5's vocabulary, whose 100 sentinels are its last pieces."""
    return resolve(path)


@gin.configurable
def ro_mini_model(path: str = "data/ro_mini/ro_mini.model") -> str:
    """Return the model file of the mini corpus's vocabulary of 2,048 pieces."""
    return resolve(path)


@gin.configurable
def ro_simple_model(path: str = "data/ro_simple/ro_simple.model") -> str:
    """Return the model file of the simple texts' vocabulary of 2,048 pieces."""
    return resolve(path)


@gin.configurable
def ro_byte_bpe(path: str = "vocabularies/ro_byte_bpe") -> str:
    """Return the folder of the Romanian vocabulary of byte-level BPE."""
    return resolve(path)


@gin.configurable
def ro_modern_bpe(path: str = "vocabularies/ro_modern_bpe") -> str:
    """Return the folder of the same with the special tokens of ModernBERT."""
    return resolve(path)


@gin.configurable
def ro_mini_wordpiece(path: str = "data/ro_mini/wordpiece") -> str:
    """Return the folder of the mini corpus's WordPiece vocabulary of 2,048 pieces."""
    return resolve(path)


@gin.configurable
def unwritable_targets(most: float = 0.01) -> float:
    """Return the largest share of targets that may hold characters which are no pieces.

    Raises:
      UserError: it is not between 0 and 1.
    """
    if not 0 <= most <= 1:
        setting = "tasks.vocabularies.unwritable_targets.most"
        raise UserError(setting, most, "but must be a share of the targets, from 0 to 1")
    return most


class LatePath(os.PathLike):
    """The path of a model file, which is looked up at first use, after gin files have been read.

    `find` is the path, or a function that returns it. A LatePath equals its path.
    """

    def __init__(self, find: str | Callable[[], str]):
        self._find = find

    @functools.cached_property
    def path(self) -> str:
        """The path, which need not exist."""
        return self._find() if callable(self._find) else self._find

    def __fspath__(self) -> str:
        """Return the path to open, or raise UserError if no file there is a vocabulary."""
        arguments.check_address("The vocabulary", self.path)
        if fault := _fault(self.path):
            setting = "name another where the task is added"
            find = getattr(self._find, "func", self._find)
            if (name := getattr(find, "__name__", "<lambda>")) != "<lambda>":
                setting = f"set tasks.vocabularies.{name}.path to the one you have"
            to_set = f"make it with `python -m vocabulary.train`, or {setting}"
            raise UserError("the vocabulary file", self.path, fault, to_set)
        return self.path

    def __str__(self) -> str:
        return self.path

    def __eq__(self, other) -> bool:
        return isinstance(other, str | LatePath) and self.path == str(other)

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self):
        return LatePath, (self.path,)  # a function may not be picklable


def _fault(path: str) -> str:
    """Return why a file is no SentencePiece model, "" if it is one."""
    if not tf.io.gfile.exists(path):
        return "which does not exist"
    if tf.io.gfile.isdir(path):
        return "which is a folder"
    with tf.io.gfile.GFile(path, "rb") as file:
        model = file.read()
    try:
        pieces = SentencePieceProcessor(model_proto=model).GetPieceSize() if model else 0
    except RuntimeError:
        pieces = 0
    return "" if pieces else f"which is no SentencePiece model ({len(model):,} bytes)"


class SentencePieceVocabulary(seqio.SentencePieceVocabulary):
    """A seqio.SentencePieceVocabulary of a `LatePath`."""

    @property
    def sentencepiece_model_file(self) -> str:
        """The path of the model file."""
        return str(super().sentencepiece_model_file)

    __hash__ = object.__hash__


def sentencepiece(
    model_file: str | Callable[[], str], extra_ids: int = 0
) -> SentencePieceVocabulary:
    """Return the vocabulary in a SentencePiece model.

    The model's path is local, gs://, or relative to the repository; a function that returns it is
    called at first use. If the model has no sentinels, as Hugging Face's T5, `extra_ids` follow its
    pieces.
    """
    find = model_file if callable(model_file) else resolve(model_file)
    return SentencePieceVocabulary(LatePath(find), extra_ids=extra_ids)


def tokenizer(path: str | Callable[[], str]) -> TokenizerVocabulary:
    """Return the vocabulary in a Hugging Face `tokenizer.json` or its folder, as for an encoder.

    The path is local, gs://, or relative to the repository; a function that returns it is called at
    first use.
    """
    return TokenizerVocabulary(path if callable(path) else resolve(path))


def byt5() -> seqio.ByteVocabulary:
    """Return UTF-8 bytes as ids 3..258, followed by 100 sentinels, the first being 358."""
    return seqio.ByteVocabulary(extra_ids=100)


def file_of(vocabulary: seqio.Vocabulary) -> str | None:
    """Return the model file of a vocabulary, None if it has none, such as bytes."""
    if isinstance(vocabulary, TokenizerVocabulary):
        return vocabulary.tokenizer_file
    return getattr(vocabulary, "sentencepiece_model_file", None)


def name_of(vocabulary: seqio.Vocabulary) -> str:
    """Return the vocabulary's model file, or its class if it has none."""
    return file_of(vocabulary) or type(vocabulary).__name__


def masking(vocabulary: seqio.Vocabulary) -> TokenizerVocabulary:
    """Return `vocabulary` if it has the tokens that masked sequences need.

    These are the mask, padding, the first token of a sequence ([CLS]) and the last ([SEP]).

    Raises:
      UserError: it lacks one.
    """
    if not isinstance(vocabulary, TokenizerVocabulary):
        raise UserError(
            "the vocabulary",
            name_of(vocabulary),
            "which has no mask token, but masked_lm needs one",
            "make one with `python -m vocabulary.train --kind wordpiece` (or byte_bpe), or choose "
            "an objective of T5's, such as span_corruption",
        )
    for role, use in (("mask", "mask"), ("pad", "padding"), ("cls", "first"), ("sep", "last")):
        if role not in vocabulary.roles:
            raise UserError(
                "the vocabulary",
                name_of(vocabulary),
                f"which has no {use} token, but masked_lm needs one",
                f"name its {role}_token in the tokenizer_config.json beside it, or make a "
                "vocabulary with `python -m vocabulary.train --kind wordpiece` (or byte_bpe)",
            )
    return vocabulary


def check_text_to_text(vocabulary: seqio.Vocabulary, task: str) -> None:
    """Raise UserError if a task of T5's objectives has an encoder's vocabulary."""
    if isinstance(vocabulary, TokenizerVocabulary) and vocabulary.mask_id is not None:
        raise UserError(
            "the vocabulary",
            name_of(vocabulary),
            "which is an encoder's, with a mask token, but the objective makes inputs and targets "
            "for T5",
            "set objective='masked_lm', or make a vocabulary with `python -m vocabulary.train`",
        ).at(f"task {task}")


def sentinels(vocabulary: seqio.Vocabulary) -> tuple[int, ...]:
    """Return the ids of <extra_id_0>, <extra_id_1>, ... in `vocabulary`.

    Raise UserError if it has none, or they do not descend one by one from its last id; training
    would then silently use ordinary pieces as sentinels.
    """
    ids, name = sentinels_if_any(vocabulary), name_of(vocabulary)
    if not ids:
        raise UserError(
            "the vocabulary",
            name,
            "which has no sentinels (<extra_id_0>, <extra_id_1>, ...), but span corruption needs "
            "them",
            "make one with `python -m vocabulary.train`",
        )
    expected = tuple(range(vocabulary.vocab_size - 1, vocabulary.vocab_size - 1 - len(ids), -1))
    if ids != expected:
        raise UserError(
            "the vocabulary",
            name,
            f"which has <extra_id_0> at id {ids[0]} of {vocabulary.vocab_size}: sentinels must "
            "be its last pieces in descending order, else ordinary pieces would be taken for them",
            "ask `python -m vocabulary.check`, which says more",
        )
    return ids


def sentinels_if_any(vocabulary: seqio.Vocabulary) -> tuple[int, ...]:
    """Return the ids of <extra_id_0>, <extra_id_1>, ... at any position, () if there are none."""
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        tokenizer = vocabulary.tokenizer
        for spelling in ("<extra_id_{}>", "▁<extra_id_{}>"):
            ids: list[int] = []
            while (i := tokenizer.PieceToId(spelling.format(len(ids)))) != tokenizer.unk_id():
                ids.append(i)
            if ids:
                return tuple(ids)
        return ()
    if isinstance(vocabulary, TokenizerVocabulary):
        numbers = {piece: i for i, piece in enumerate(vocabulary.pieces)}
        names = map("<extra_id_{}>".format, itertools.count())
        return tuple(map(numbers.__getitem__, itertools.takewhile(numbers.__contains__, names)))
    last = vocabulary.vocab_size - 1
    return tuple(range(last, last - vocabulary.extra_ids, -1))


def special_names(vocabulary: seqio.Vocabulary) -> list[str]:
    """Return the tokens that no text becomes in training, spelled as in a published tokenizer."""
    if isinstance(vocabulary, TokenizerVocabulary):
        return [vocabulary.pieces[i] for i in vocabulary.special_ids]
    sentinels = [f"<extra_id_{n}>" for n in range(len(sentinels_if_any(vocabulary)))]
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        return [*_symbols(vocabulary.sp_model), *sentinels]
    return ["<pad>", "</s>", "<unk>", *sentinels]


@functools.cache  # all pipelines of a process call it
def _symbols(model: bytes) -> list[str]:
    """Return the control symbols of a SentencePiece model and its piece of unknown text."""
    tokenizer = SentencePieceProcessor(model_proto=model)
    ids = range(tokenizer.GetPieceSize())
    is_symbol = lambda i: tokenizer.IsControl(i) or tokenizer.IsUnknown(i)
    return [tokenizer.IdToPiece(i) for i in ids if is_symbol(i)]


def word_starts(vocabulary: seqio.Vocabulary) -> np.ndarray:
    """Return which ids begin a word, bool [vocab_size]: pieces that begin with ▁, or white space.

    SentencePiece writes the space before a word as ▁ at the front of its first piece; in bytes, a
    space or line end counts as the first of the following word. A tokenizer has marks of its own
    (`TokenizerVocabulary.word_starts`).
    """
    if isinstance(vocabulary, TokenizerVocabulary):
        return vocabulary.word_starts()
    starts = np.zeros([vocabulary.vocab_size], bool)
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        pieces = range(vocabulary.tokenizer.GetPieceSize())
        starts[: len(pieces)] = [vocabulary.tokenizer.IdToPiece(i).startswith("▁") for i in pieces]
    else:
        for blank in (" ", "\n", "\t", "\r"):
            starts[vocabulary.encode(blank)[0]] = True
    return starts


def ids_of(vocabulary: seqio.Vocabulary, text: str) -> tuple[int, ...]:
    """Return the ids of a word that may be one piece, such as "[R]", or raise UserError."""
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        piece = vocabulary.tokenizer.PieceToId(text)
        ids = [piece] if piece != vocabulary.unk_id else vocabulary.encode(text)
    else:
        ids = vocabulary.encode(text)
    if vocabulary.unk_id in ids:
        raise UserError(
            "the vocabulary",
            name_of(vocabulary),
            f"which cannot spell {text!r}, since one of its characters is the unknown piece",
            "choose prefixes that it can, such as '<extra_id_99>'",
        )
    return tuple(ids)


def token_features(task: seqio.Task) -> dict[str, seqio.Feature]:
    """Return the features of a task that are ids of a vocabulary, not weights or labels."""
    return {
        name: feature
        for name, feature in task.output_features.items()
        if not isinstance(feature.vocabulary, seqio.PassThroughVocabulary)
    }


def contents(task: seqio.Task) -> dict[str, list[int]]:
    """Return the ids of each feature's vocabulary and the checksum of its file, 0 without one."""
    facts = {}
    for name, feature in token_features(task).items():
        checksum = 0
        if path := file_of(feature.vocabulary):
            with tf.io.gfile.GFile(path, "rb") as file:
                checksum = zlib.crc32(file.read())
        facts[name] = [feature.vocabulary.vocab_size, checksum]
    return facts
