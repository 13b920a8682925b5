"""Hugging Face tokenizers as seqio vocabularies: WordPiece, byte-level BPE, any `tokenizer.json`.

    vocabulary = TokenizerVocabulary("data/ro_mini/wordpiece")   # a folder, or a tokenizer.json
    vocabulary.encode("Ana are mere")        # ids, without [CLS] and [SEP]
    vocabulary.mask_id, vocabulary.special_ids                   # 4, (0, 1, 2, 3, 4)

Which token is the padding, the mask and so on is read from tokenizer_config.json or
special_tokens_map.json next to it, else known by its usual spelling. Padding may have any id.
"""

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import seqio
import tensorflow as tf
import tokenizers

from common import small_files, special_tokens
from common.errors import UserError, first_line
from tasks.corpus import tf_callbacks

TOKENIZER_FILE = "tokenizer.json"
# How byte-level BPE spells a space, a line feed, a tab and a carriage return.
_BYTE_BLANKS = ("Ġ", "Ċ", "ĉ", "č")
_BLANK = "▁"


class _Loaded(NamedTuple):
    """A tokenizer's JSON, the tokenizer, and the ids of its special tokens by role."""

    source: str
    tokenizer: tokenizers.Tokenizer
    roles: Mapping[str, int]


class TokenizerVocabulary(seqio.Vocabulary):
    """A tokenizer as a vocabulary, which finds and loads its file when an id is needed.

    Args:
      tokenizer_file: a folder with `tokenizer.json`, or the path of that file, local or gs://; or a
        function that returns one.

    Raises:
      UserError: on first use, if there is no such file, or it is no tokenizer.
    """

    def __init__(self, tokenizer_file: str | Callable[[], str]):
        super().__init__()
        self._find_file = tokenizer_file if callable(tokenizer_file) else (lambda: tokenizer_file)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.tokenizer_file})"

    @functools.cached_property
    def tokenizer_file(self) -> str:
        """The path of tokenizer.json."""
        path = self._find_file()
        if not path.endswith(".json"):
            path = f"{path.rstrip('/')}/{TOKENIZER_FILE}"
        return path

    @property
    def _loaded(self) -> _Loaded:
        return _load(self.tokenizer_file)

    @property
    def tokenizer(self) -> tokenizers.Tokenizer:
        """The tokenizer, which takes a text that spells a special token for that token."""
        return self._loaded.tokenizer

    @property
    def roles(self) -> Mapping[str, int]:
        """The ids of the special tokens by role: pad, unk, cls, sep, mask, bos, eos."""
        return self._loaded.roles

    @property
    def pad_id(self) -> int:
        """The id of padding, which need not be 0 (0 if the tokenizer has none)."""
        return self.roles.get("pad", 0)

    @property
    def unk_id(self) -> int | None:
        """The id of unknown text, None if every text can be spelled."""
        return self.roles.get("unk")

    @property
    def cls_id(self) -> int | None:
        """The id of the first token of a sequence."""
        return self.roles.get("cls")

    @property
    def sep_id(self) -> int | None:
        """The id of the token after each segment."""
        return self.roles.get("sep")

    @property
    def mask_id(self) -> int | None:
        """The id of the mask token."""
        return self.roles.get("mask")

    @property
    def bos_id(self) -> int | None:
        """The id of the begin of a text, by default `cls_id`."""
        return self.roles.get("bos", self.cls_id)

    @property
    def eos_id(self) -> int | None:
        """The id of the end of a text, by default `sep_id`."""
        return self.roles.get("eos", self.sep_id)

    @functools.cached_property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of all special tokens, ascending: those with a role, and those marked so."""
        tokens = self.tokenizer.get_added_tokens_decoder()
        special = {i for i, token in tokens.items() if token.special}
        return tuple(sorted(special | {*self.roles.values()}))

    @property
    def _base_vocab_size(self) -> int:
        return max(self.tokenizer.get_vocab().values()) + 1

    @functools.cached_property
    def pieces(self) -> Sequence[str]:
        """The piece of each id, "" for ids without one."""
        pieces = [""] * self.vocab_size
        for piece, i in self.tokenizer.get_vocab().items():
            pieces[i] = piece
        return pieces

    def word_starts(self) -> np.ndarray:
        """Return which ids begin a word, bool [vocab_size].

        These are pieces without the mark of a continuation (WordPiece's ##), or those with the mark
        of a space (Ġ and other white space of bytes, ▁), and all special tokens.
        """
        model = json.loads(self._loaded.source)
        if model["model"]["type"] == "WordPiece":
            mark = model["model"]["continuing_subword_prefix"]
            starts = np.array([not piece.startswith(mark) for piece in self.pieces])
        else:
            marks = _BYTE_BLANKS if is_byte_level(model) else _BLANK
            starts = np.array([piece.startswith(marks) for piece in self.pieces])
        starts[list(self.special_ids)] = True
        return starts

    @functools.cached_property
    def _corpus_tokenizer(self) -> tokenizers.Tokenizer:
        tokenizer = tokenizer_of(self._loaded.source)
        tokenizer.encode_special_tokens = True
        return tokenizer

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of texts of a corpus, end to end, int32 [m], and their number, int64 [n].

        A text that spells a special token ("[MASK]") is encoded as any other text.
        """
        encodings = self._corpus_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = itertools.chain.from_iterable(ids)
        return np.fromiter(flat, np.int32, int(lengths.sum())), lengths

    def encode_batch_tf(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of texts of a corpus, string [n] to ragged int32 [n, None]."""

        def encode(texts):
            return self.encode_texts([text.decode("utf-8", "replace") for text in texts])

        specs = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int64)
        ids, lengths = tf_callbacks.call(encode, specs, texts)
        return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)

    def _encode(self, s: str) -> Sequence[int]:
        return self.tokenizer.encode(s, add_special_tokens=False).ids

    def decode(self, ids) -> str:
        """Return the text of ids; special tokens are spelled out, and none ends it."""
        return self.tokenizer.decode(np.asarray(ids).tolist(), skip_special_tokens=False)

    _decode = decode  # seqio's `decode` would call it

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        if s.shape.rank:
            return self.encode_batch_tf(s)
        return self.encode_batch_tf(s[tf.newaxis]).flat_values

    def decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the text of ids, int32 [n] to a string or [m, n] to strings."""

        def decode(ids) -> Any:
            rows = ids.reshape([-1, ids.shape[-1]])
            texts = [self.decode(row).encode() for row in rows]
            return np.array(texts, object).reshape(ids.shape[:-1])

        return tf_callbacks.call(decode, tf.TensorSpec(ids.shape[:-1], tf.string), ids)

    _decode_tf = decode_tf

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.tokenizer_file}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["file"])  # type: ignore[misc]  # nothing else is state

    def __eq__(self, other) -> bool:
        if not isinstance(other, TokenizerVocabulary):
            return False
        if self.tokenizer_file == other.tokenizer_file:
            return True
        return self._loaded.source == other._loaded.source and self.roles == other.roles

    __hash__ = object.__hash__


@functools.cache
def _load(path: str) -> _Loaded:
    if not tf.io.gfile.exists(path):
        raise UserError(
            "the vocabulary file",
            path,
            "which does not exist",
            "make one with `python -m vocabulary.train --kind wordpiece` (or byte_bpe), or name "
            "the folder of a Hugging Face model that has a tokenizer.json",
        )
    with small_files.parsing(path, "name another vocabulary"):
        source = small_files.read_text(path)
    try:
        tokenizer = tokenizer_of(source)
    except Exception as error:  # tokenizers raises plain Exception
        raise UserError(
            "the vocabulary file",
            path,
            f"which tokenizers {tokenizers.__version__} cannot read: {first_line(error)}",
        ) from error
    folder = path.rpartition("/")[0] or "."
    configs = []
    for name in special_tokens.FILES:
        file = f"{folder}/{name}"
        if tf.io.gfile.exists(file):
            with small_files.parsing(file, "restore it, or remove it"):
                configs.append(small_files.read_json(file))
    ids = tokenizer.get_vocab()
    tokens = special_tokens.tokens_by_role(configs, ids.get)
    roles = {role: ids[token] for role, token in tokens.items()}
    return _Loaded(source, tokenizer, roles)


def tokenizer_of(source: str) -> tokenizers.Tokenizer:
    """Return the tokenizer of a tokenizer.json, which encodes each text whole."""
    tokenizer = tokenizers.Tokenizer.from_str(source)
    # Some published files cut texts to the length that one model reads.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def is_byte_level(content: Mapping[str, Any]) -> bool:
    """Return whether the pieces of a tokenizer.json are of bytes, each written as a letter."""
    return '"ByteLevel"' in json.dumps(content["pre_tokenizer"])
