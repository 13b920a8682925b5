"""The trainer's vocabulary as Hugging Face tokenizer files, id for id.

    write_tokenizer("ro.model", "ro_hf")                       # sentinels inside the model
    write_tokenizer("t5.model", "t5_hf", extra_ids=100)        # seqio adds them behind it
    write_byte_tokenizer("byt5_hf", extra_ids=100)
    assert_same_ids(vocabulary, AutoTokenizer.from_pretrained("ro_hf"), texts)

`AutoTokenizer` of transformers 5 and 4 reads the folder, and so does the slow `T5Tokenizer` of
transformers 4. The files avoid three pitfalls:

- `T5Tokenizer` adds 100 sentinels behind the model unless tokenizer_config.json declares them
  (`extra_ids` and `additional_special_tokens`).
- transformers 5 rebuilds the pipeline of `T5Tokenizer` from the pieces and the normalizer of
  tokenizer.json, without byte fallback; a model with byte fallback names the generic class instead,
  which uses tokenizer.json unchanged.
- `ByT5Tokenizer` counts its sentinels upwards from 259, seqio downwards from the highest id.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

NUM_SENTINELS = 100
NUM_SPECIAL = 3  # pad, eos, unk
NUM_BYTE_IDS = NUM_SPECIAL + 256
UNLIMITED = 10**30  # transformers' own figure for a tokenizer without a longest input
SENTINEL_IN_TEXT = re.compile(r"(<extra_id_\d+>)")
_SENTINEL = re.compile(r"▁?(<extra_id_\d+>)")


class ReferenceIds(NamedTuple):
    """The trainer's vocabulary in plain data, as far as `assert_same_ids` needs it.

    `ids` are those of each of `texts` and of the parts between its sentinels, without eos.
    """

    vocab_size: int
    extra_ids: int
    eos_id: int
    unk_id: int
    is_bytes: bool
    texts: tuple[str, ...]
    ids: dict[str, list[int]]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, as seqio's vocabulary does."""
        return self.ids[text]


def write_tokenizer(
    sentencepiece_path: str, folder: str, *, extra_ids: int = 0, model_max_length: int = UNLIMITED
) -> None:
    """Write tokenizer.json, tokenizer_config.json, special_tokens_map.json and spiece.model.

    Args:
      sentencepiece_path: the trainer's model, local or on `gs://`; spiece.model is its copy.
      folder: created if it does not exist.
      extra_ids: as given to `seqio.SentencePieceVocabulary`: 0 if the sentinels are pieces of the
        model (ours and mT5's), 100 if seqio adds them (T5's own).
      model_max_length: where transformers truncates on request; T5 itself has no limit.

    Raises ValueError for a model that is not unigram, or whose pad, eos and unk are not 0, 1, 2.
    """
    import fsspec
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

    os.makedirs(folder, exist_ok=True)
    copy = os.path.join(folder, "spiece.model")
    with fsspec.open(str(sentencepiece_path), "rb") as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target)
    with open(copy, "rb") as file:
        model = ModelProto.FromString(file.read())
    _require_t5(model, sentencepiece_path)
    pieces = _pieces(model, extra_ids)
    sentinels = _sentinels(name for name, _ in pieces)
    added = _added_tokens(model, sentinels)
    _build(model, pieces, added).save(os.path.join(folder, "tokenizer.json"))
    special = _special_tokens(model, sentinels)
    config: dict[str, Any] = {"tokenizer_class": "T5Tokenizer", "extra_ids": extra_ids}
    if model.trainer_spec.byte_fallback:
        config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= {"legacy": False, "sp_model_kwargs": {}}
    _write_configs(folder, config, special, added, model_max_length)


def write_byte_tokenizer(
    folder: str, *, extra_ids: int = NUM_SENTINELS, model_max_length: int = UNLIMITED
) -> None:
    """Write the files of a `ByT5Tokenizer` that agrees with `seqio.ByteVocabulary(extra_ids)`.

    Bytes are ids 3 to 258; `<extra_id_0>` is the highest id, 258 + extra_ids, as span corruption
    counts; transformers' default is 259. With `extra_ids=0` (the published ByT5, whose sentinels
    are its last byte ids) no sentinel has a name.
    """
    os.makedirs(folder, exist_ok=True)
    last = NUM_BYTE_IDS + extra_ids - 1
    sentinels = {f"<extra_id_{n}>": last - n for n in reversed(range(extra_ids))}
    named = {"<pad>": 0, "</s>": 1, "<unk>": 2}
    added = [(i, _added_token(name)) for name, i in (named | sentinels).items()]
    special: dict[str, Any] = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    special["additional_special_tokens"] = list(sentinels)
    config = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": extra_ids}
    _write_configs(folder, config, special, added, model_max_length)


def assert_same_ids(vocabulary, tokenizer, texts: Iterable[str]) -> int:
    """Raise ValueError at the first text or sentinel whose ids differ; return the number of ties.

    A tie is no difference: "...." is "..." and "." in either order, with the same score, and the
    last bit of a float decides. SentencePiece's own Python and TensorFlow encoders differ there.

    Args:
      vocabulary: a seqio vocabulary, sentinels included in its `vocab_size`, or `ReferenceIds`.
      tokenizer: a transformers tokenizer; it must end every text in eos, as the trainer does.
      texts: any strings; sentinels in them count if they are between spaces.
    """
    highest = vocabulary.vocab_size - 1
    numbers = range(vocabulary.extra_ids) if _is_bytes(vocabulary) else range(NUM_SENTINELS)
    for number in numbers:
        found = tokenizer.convert_tokens_to_ids(f"<extra_id_{number}>")
        if found != highest - number:
            raise ValueError(
                f"<extra_id_{number}> is {found} in the Hugging Face tokenizer and "
                f"{highest - number} in the trainer's vocabulary"
            )
    for name, wanted in (("pad", 0), ("eos", vocabulary.eos_id), ("unk", vocabulary.unk_id)):
        found = getattr(tokenizer, f"{name}_token_id")
        if found != wanted:
            raise ValueError(
                f"{name} is {found} in the Hugging Face tokenizer and {wanted} in the trainer's"
            )
    ties = 0
    for text in texts:
        wanted = [*_encode(vocabulary, text), vocabulary.eos_id]
        found = list(tokenizer(text).input_ids)
        if found != wanted:
            if not is_tie(wanted, found, tokenizer.convert_ids_to_tokens):
                raise ValueError(_difference(text, wanted, found, tokenizer))
            ties += 1
    return ties


def assert_folder_has_same_ids(reference: ReferenceIds, folder: Path) -> None:
    """Raise ValueError at the first text or sentinel whose ids a folder's tokenizer changes."""
    from transformers import AutoTokenizer

    assert_same_ids(reference, AutoTokenizer.from_pretrained(folder), reference.texts)


def is_tie(a: list[int], b: list[int], names: Callable[[list[int]], list[str]]) -> bool:
    """Return whether `a` and `b` are the same text in the same pieces, in another order."""
    return sorted(a) == sorted(b) and "".join(names(a)) == "".join(names(b))


def _encode(vocabulary, text: str) -> list[int]:
    """Return the trainer's ids; a byte vocabulary knows no sentinels in text, so insert them."""
    if not _is_bytes(vocabulary):
        return list(vocabulary.encode(text))
    ids: list[int] = []
    for part in SENTINEL_IN_TEXT.split(text):
        match = re.fullmatch(r"<extra_id_(\d+)>", part)
        if match and int(match[1]) < vocabulary.extra_ids:
            ids.append(vocabulary.vocab_size - 1 - int(match[1]))
        else:
            ids += vocabulary.encode(part)
    return ids


def _is_bytes(vocabulary) -> bool:
    return getattr(vocabulary, "is_bytes", type(vocabulary).__name__ == "ByteVocabulary")


def _difference(text: str, wanted: list[int], found: list[int], tokenizer) -> str:
    pairs = zip(wanted, found, strict=False)
    index = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(wanted), len(found)))
    window = slice(max(index - 2, 0), index + 4)
    return (
        f"the tokenizers differ at id {index} of {text[:80]!r}: the trainer's vocabulary gives "
        f"{wanted[window]} {tokenizer.convert_ids_to_tokens(wanted[window])}, the Hugging Face "
        f"tokenizer {found[window]} {tokenizer.convert_ids_to_tokens(found[window])}"
    )


def _require_t5(model, path: str) -> None:
    spec = model.trainer_spec
    kind = spec.ModelType.Name(spec.model_type)
    ids = (spec.pad_id, spec.eos_id, spec.unk_id)
    if kind != "UNIGRAM" or ids != (0, 1, 2):
        raise ValueError(
            f"{path} is a {kind} model with pad, eos, unk {ids}; "
            "T5's tokenizer is UNIGRAM with (0, 1, 2)"
        )


def _pieces(model, extra_ids: int) -> list[tuple[str, float]]:
    """Return names and scores by id; a sentinel has its Hugging Face name, without the mark ▁."""
    pieces = [(_SENTINEL.sub(r"\1", p.piece), p.score) for p in model.pieces]
    return pieces + [(f"<extra_id_{n}>", 0.0) for n in reversed(range(extra_ids))]


def _sentinels(names: Iterable[str]) -> dict[str, int]:
    """Return sentinel names to ids, `<extra_id_0>` first."""
    found = {name: i for i, name in enumerate(names) if _SENTINEL.fullmatch(name)}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _special_tokens(model, sentinels: dict[str, int]) -> dict[str, Any]:
    names = [model.pieces[i].piece for i in range(3)]
    special: dict[str, Any] = dict(zip(("pad_token", "eos_token", "unk_token"), names, strict=True))
    return special | {"additional_special_tokens": list(sentinels)}


def _added_tokens(model, sentinels: dict[str, int]) -> list[tuple[int, Any]]:
    """Return (id, AddedToken), ascending: tokens that are matched in a text before any piece."""
    kind = model.SentencePiece.USER_DEFINED
    added = [(i, _added_token(model.pieces[i].piece)) for i in range(3)]
    for i, piece in enumerate(model.pieces):
        if piece.type == kind and not _SENTINEL.fullmatch(piece.piece):
            added.append((i, _added_token(piece.piece, special=False)))
    return added + [(i, _added_token(name)) for name, i in reversed(sentinels.items())]


def _added_token(name: str, special: bool = True):
    from tokenizers import AddedToken

    return AddedToken(name, special=special, normalized=False)


def _build(model, pieces: list[tuple[str, float]], added: list[tuple[int, Any]]):
    """Return the `tokenizers` pipeline: SentencePiece's normalizer, words, unigram, eos."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    spec = model.trainer_spec
    tokenizer = Tokenizer(
        models.Unigram(pieces, unk_id=spec.unk_id, byte_fallback=spec.byte_fallback)
    )
    if model.normalizer_spec.precompiled_charsmap:
        tokenizer.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    words: dict[str, Any] = {"replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**words)]
    )
    tokenizer.decoder = decoders.Metaspace(**words)
    if spec.byte_fallback:
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    eos = model.pieces[spec.eos_id].piece
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", eos], pair=["$A", eos, "$B", eos], special_tokens=[(eos, spec.eos_id)]
    )
    tokenizer.add_tokens([token for _, token in added])
    return tokenizer


def _write_configs(
    folder: str,
    config: dict[str, Any],
    special: dict[str, Any],
    added: list[tuple[int, Any]],
    model_max_length: int,
) -> None:
    decoder = {str(i): token.__getstate__() for i, token in added}
    config = config | special | {"added_tokens_decoder": decoder}
    config |= {"clean_up_tokenization_spaces": False, "model_max_length": model_max_length}
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", special)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=2, sort_keys=True)
            file.write("\n")
