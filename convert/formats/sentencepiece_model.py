"""A SentencePiece model's file as a protobuf, and its sentinels."""

import re
from collections.abc import Iterable

import fsspec
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # no stub

from common.errors import UserError

NUM_SENTINELS = 100  # of T5
BLANK = "▁"
SENTINEL = re.compile(rf"{BLANK}?(<extra_id_(\d+)>)")  # its name, and its number


def read_bytes(path: str) -> bytes:
    """Return the content of a local path, `gs://` or `http(s)://`, or raise UserError."""
    try:
        with fsspec.open(str(path), "rb") as file:
            return file.read()
    except (OSError, ImportError, ValueError) as error:  # of a scheme that nobody knows
        raise UserError(f"the vocabulary {path} cannot be read: {error}") from error


def read_model(path: str) -> ModelProto:
    """Return the model in a file, as `read_bytes` reads it, or raise UserError."""
    content = read_bytes(path)
    try:
        model = ModelProto.FromString(content)
    except DecodeError:
        model = ModelProto()
    if not model.pieces:
        raise UserError(
            f"{path} ({len(content):,} bytes) is not a SentencePiece model: "
            "make one with python -m vocabulary.train"
        )
    return model


def sentinels(ids: Iterable[tuple[str, int]]) -> dict[int, int]:
    """Return the ids of `<extra_id_N>` and `▁<extra_id_N>` by N, ascending."""
    matches = [(SENTINEL.fullmatch(piece), i) for piece, i in ids]
    return dict(sorted((int(match[2]), i) for match, i in matches if match))


def sentinel_ids(model: ModelProto) -> dict[int, int]:
    """Return the ids of a model's sentinels by their numbers."""
    return sentinels((piece.piece, i) for i, piece in enumerate(model.pieces))
