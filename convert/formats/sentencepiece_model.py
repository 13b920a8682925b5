"""A SentencePiece model as a protobuf: read it, edit its pieces, write it.

SentencePiece gives user-defined symbols the lowest free ids, but T5's span corruption counts
sentinels down from the highest id. So a model is trained without sentinels, and they are appended
to its protobuf afterwards:

    model = read_model("plain.model")          # <pad> </s> <unk> ▁de ▁și ...
    append_sentinels(model)                    # ... ▁<extra_id_99> ... ▁<extra_id_0>
    write_model(model, "ro.model")

A sentinel's piece starts with ▁, which marks the start of a word, as in mT5's own model and in the
sentinels that seqio adds. "Ana are <extra_id_0> mere" is then ▁Ana ▁are ▁<extra_id_0> ▁mere, as in
the training examples of span corruption. Without the mark, SentencePiece would put a lone ▁ before
every sentinel, which no training example has.
"""

import os
import re
import struct
from collections.abc import Iterable

import fsspec
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # no stub

from common.errors import UserError
from common.new_files import write_files

SentencePiece = ModelProto.SentencePiece
NUM_SENTINELS = 100  # number of T5's sentinels
# Names in a folder of transformers, and in a run.
MODEL_FILES = ("spiece.model", "vocabulary.model")
BLANK = "▁"
SENTINEL = re.compile(rf"{BLANK}?(<extra_id_(\d+)>)")  # its name, and its number


def read_bytes(path: str) -> bytes:
    """Return the content of a local path, `gs://` or `http(s)://`, or raise UserError."""
    try:
        with fsspec.open(str(path), "rb") as file:
            return file.read()
    except (OSError, ImportError, ValueError) as error:  # also for an unknown scheme
        raise UserError(str(path), why=f"cannot be read as a vocabulary: {error}") from error


def read_model(path: str) -> ModelProto:
    """Return the model in a file, as `read_bytes` reads it, or raise UserError."""
    content = read_bytes(path)
    try:
        model = ModelProto.FromString(content)
    except DecodeError:
        model = ModelProto()
    if not model.pieces:
        raise UserError(
            str(path),
            why=f"({len(content):,} bytes) is not a SentencePiece model",
            to_set="make one with python -m vocabulary.train",
        )
    return model


def sentinels(ids: Iterable[tuple[str, int]]) -> dict[int, int]:
    """Return the ids of `<extra_id_N>` and `▁<extra_id_N>` by N, ascending."""
    matches = [(SENTINEL.fullmatch(piece), i) for piece, i in ids]
    return dict(sorted((int(match[2]), i) for match, i in matches if match))


def sentinel_ids(model: ModelProto) -> dict[int, int]:
    """Return the ids of a model's sentinels by their numbers."""
    return sentinels((piece.piece, i) for i, piece in enumerate(model.pieces))


def model_files(model: ModelProto, path: str) -> dict[str, bytes]:
    """Return the contents of `path` and of the `.vocab` listing of pieces and scores next to it."""
    listing = "".join(f"{piece.piece}\t{piece.score:g}\n" for piece in model.pieces)
    return {
        path: model.SerializeToString(deterministic=True),
        os.path.splitext(path)[0] + ".vocab": listing.encode(),
    }


def write_model(model: ModelProto, path: str, overwrite: bool = False) -> None:
    """Write `model_files`; see `new_files.write_files`."""
    write_files(model_files(model, path), overwrite)


def processor(model: ModelProto) -> sentencepiece.SentencePieceProcessor:
    """Return an encoder for the model."""
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def append_sentinels(model: ModelProto) -> None:
    """Append `<extra_id_99> ... <extra_id_0>` in place, which are never split."""
    if sentinel_ids(model):
        raise UserError("the model", why="holds sentinels already, which others would shadow")
    for number in reversed(range(NUM_SENTINELS)):
        piece = f"{BLANK}<extra_id_{number}>"
        model.pieces.add(piece=piece, score=0.0, type=SentencePiece.USER_DEFINED)
    model.trainer_spec.vocab_size = len(model.pieces)


def keep_character(model: ModelProto, character: str) -> None:
    """Change the model's normalization, in place, so that it leaves a character as it is.

    The rules are a trie of bytes (github.com/s-yata/darts-clone). A leaf tells where the rule's
    result begins in the strings after the trie. Rules with equal results share a leaf, so
    `character` gets a new block after the others.
    """
    rules = model.normalizer_spec.precompiled_charsmap
    (size,) = struct.unpack_from("<I", rules)
    units = [*struct.unpack_from(f"<{size // 4}I", rules, 4)]
    results = rules[4 + size :]
    children = lambda unit: unit >> 10 << ((unit & 1 << 9) >> 6)
    node = children(units[0])
    for byte in character.encode():
        last = node ^ byte
        assert units[last] & 0x800000FF == byte, f"no rule for {character!r}"
        node = last ^ children(units[last])
    block = -(-len(units) // 256) * 256
    units += [0] * (block + 256 - len(units))
    units[last] = units[last] & 0x1FF | (last ^ block) << 10
    units[block] = 1 << 31 | len(results)
    trie = struct.pack(f"<I{len(units)}I", 4 * len(units), *units)
    model.normalizer_spec.precompiled_charsmap = trie + results + character.encode() + b"\0"
