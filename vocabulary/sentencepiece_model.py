"""A SentencePiece model as a protobuf: find it, read it, edit its pieces, write it.

SentencePiece assigns user-defined symbols the lowest free ids, but T5's span corruption counts
sentinels down from the highest id. So the model is trained without sentinels, and they are
appended to its protobuf afterwards:

    model = read_model("plain.model")          # <pad> </s> <unk> ▁de ▁și ...
    append_sentinels(model)                    # ... ▁<extra_id_99> ... ▁<extra_id_0>
    write_model(model, "ro.model")

A sentinel's piece starts with ▁, which marks the start of a word, as in mT5's own model and in the
sentinels that seqio adds. "Ana are <extra_id_0> mere" is then ▁Ana ▁are ▁<extra_id_0> ▁mere, as in
the training examples of span corruption. Without the mark, SentencePiece would put a lone ▁ before
every sentinel, which no training example has.
"""

import os
import struct
from collections.abc import Iterable, Sequence

import sentencepiece

from common.atomic_file import replace_file
from common.errors import UserError
from convert import hub
from convert.formats.sentencepiece_model import BLANK, NUM_SENTINELS, ModelProto, sentinel_ids

SentencePiece = ModelProto.SentencePiece
# For each id of a new model the ids of the old one from whose mean its embedding starts.
Sources = Sequence[tuple[int, ...]]

# Embeddings have a multiple of 128 rows, which accelerators and model parallelism need.
SIZE_MULTIPLE = 128
MODEL_FILES = ("spiece.model", "vocabulary.model")  # in a folder of transformers, and in a run
_HUB_FILES = ["spiece.model", "*token*.json", "config.json"]


def round_up(size: int) -> int:
    """Return the next multiple of `SIZE_MULTIPLE`."""
    return -(-size // SIZE_MULTIPLE) * SIZE_MULTIPLE


def download(path: str) -> str:
    """Return a path as it is, and of a hub model the folder with the files of its vocabulary.

    Raise UserError if it is neither.
    """
    if os.path.exists(path) or "://" in path or path.endswith((".model", ".json")):
        return path
    return str(hub.fetch(path, _HUB_FILES))


def find_model(path: str) -> str:
    """Return a path's SentencePiece file: itself or in a folder, run or hub repository.

    Raise UserError if there is none.
    """
    path = download(path)
    if not os.path.isdir(path):
        return path
    found = [os.path.join(path, name) for name in MODEL_FILES]
    for file in filter(os.path.exists, found):
        return file
    raise UserError(f"the folder {path} holds neither {' nor '.join(MODEL_FILES)}")


def find_tokenizer(path: str) -> str | None:
    """Return the folder of a tokenizer.json, of a path or hub name; None if it is SentencePiece's.

    A folder with a SentencePiece model is T5's, whose tokenizer.json is made from the model. Raise
    UserError for a hub model that cannot be read.
    """
    path = download(path)
    if path.endswith("tokenizer.json"):
        return os.path.dirname(path) or "."
    names = os.listdir(path) if os.path.isdir(path) else []
    return path if "tokenizer.json" in names and not {*MODEL_FILES} & {*names} else None


def write_model(model: ModelProto, path: str) -> None:
    """Write `path` and, next to it, the `.vocab` listing of pieces and scores, each atomically."""
    listing = "".join(f"{piece.piece}\t{piece.score:g}\n" for piece in model.pieces)
    replace_file(path, model.SerializeToString(deterministic=True))
    replace_file(os.path.splitext(path)[0] + ".vocab", listing.encode())


def processor(model: ModelProto) -> sentencepiece.SentencePieceProcessor:
    """Return an encoder for the model."""
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def append_sentinels(model: ModelProto) -> None:
    """Append `<extra_id_99> ... <extra_id_0>` in place, which are never split."""
    if sentinel_ids(model):
        raise UserError("the model holds sentinels already; a second set would shadow the first")
    for number in reversed(range(NUM_SENTINELS)):
        piece = f"{BLANK}<extra_id_{number}>"
        model.pieces.add(piece=piece, score=0.0, type=SentencePiece.USER_DEFINED)
    model.trainer_spec.vocab_size = len(model.pieces)


def keep_character(model: ModelProto, character: str) -> None:
    """Let the model's normalization, in place, leave a character as it is that it changes now.

    Its rules are a trie of bytes, as of github.com/s-yata/darts-clone, whose leaves say where in
    the strings behind it a rule's result begins. Rules with equal results share a leaf, so that
    `character` gets a block of its own behind the others.
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


def rebuild(
    model: ModelProto,
    kept: Iterable[int],
    added: Iterable[tuple[str, float, Sequence[int]]],
    extra_ids: int,
) -> tuple[ModelProto, Sources]:
    """Return a new model of kept pieces, added pieces and sentinels, and the sources of its ids.

    `kept` are ids of the old model, which is not changed, without sentinels; `added` are new
    pieces, each with its score and the old ids that it replaces. `extra_ids` is 100 if seqio added
    the sentinels behind the old model, else 0; UserError is raised if that leaves it without any.
    """
    new = ModelProto()
    new.CopyFrom(model)
    del new.pieces[:]
    sources: list[tuple[int, ...]] = []
    for i in kept:
        new.pieces.append(model.pieces[i])
        sources.append((i,))
    for piece, score, ids in added:
        new.pieces.add(piece=piece, score=score, type=SentencePiece.NORMAL)
        sources.append(tuple(ids))
    total = len(model.pieces) + extra_ids
    found = {number: total - 1 - number for number in range(extra_ids)} | sentinel_ids(model)
    absent = [number for number in range(NUM_SENTINELS) if number not in found]
    if absent:
        raise UserError(
            f"the model has no piece <extra_id_{absent[0]}>, and all {NUM_SENTINELS} sentinels are "
            f"needed: set --extra_ids {NUM_SENTINELS} if seqio adds them after its pieces"
        )
    append_sentinels(new)
    return new, [*sources, *((found[number],) for number in reversed(range(NUM_SENTINELS)))]
