"""The files of a Hugging Face tokenizer, from the vocabulary that a T5 was trained with.

    write_tokenizer("ro.model", "ro_hf")                       # sentinels inside the model
    write_tokenizer("t5.model", "t5_hf", extra_ids=100)        # seqio adds them behind it
    write_byte_tokenizer("byt5_hf", extra_ids=100)

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
from collections.abc import Iterable
from typing import Any

from common.errors import UserError

NUM_SENTINELS = 100
NUM_BYTE_IDS = 3 + 256  # pad, eos and unk come first
SENTINEL = re.compile(r"▁?(<extra_id_\d+>)")


def write_tokenizer(sentencepiece_path: str, folder: str, *, extra_ids: int = 0) -> None:
    """Write tokenizer.json, tokenizer_config.json, special_tokens_map.json and spiece.model.

    The trainer's model, local or on `gs://`, is copied to spiece.model. `extra_ids` is that of
    `seqio.SentencePieceVocabulary`: 0 if the sentinels are pieces of the model (mT5's and our own),
    100 (T5's own) or 300 (umT5's) if seqio adds them. Raise UserError for a model that is not
    unigram, or whose pad, eos and unk are not 0, 1, 2.
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
    config: dict[str, Any] = {"tokenizer_class": "T5Tokenizer", "extra_ids": extra_ids}
    if model.trainer_spec.byte_fallback:
        config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= {"legacy": False, "sp_model_kwargs": {}}
    _write_configs(folder, config, added, sentinels)


def write_byte_tokenizer(folder: str, *, extra_ids: int = NUM_SENTINELS) -> None:
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
    config = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": extra_ids}
    _write_configs(folder, config, added, sentinels)


def _require_t5(model, path: str) -> None:
    spec = model.trainer_spec
    kind = spec.ModelType.Name(spec.model_type)
    ids = (spec.pad_id, spec.eos_id, spec.unk_id)
    if kind != "UNIGRAM" or ids != (0, 1, 2):
        raise UserError(
            f"{path} is a {kind} model with pad, eos, unk {ids}; "
            "T5's tokenizer is UNIGRAM with (0, 1, 2)"
        )


def _pieces(model, extra_ids: int) -> list[tuple[str, float]]:
    """Return names and scores by id; a sentinel has its Hugging Face name, without the mark ▁."""
    pieces = [(SENTINEL.sub(r"\1", p.piece), p.score) for p in model.pieces]
    return pieces + [(f"<extra_id_{n}>", 0.0) for n in reversed(range(extra_ids))]


def _sentinels(names: Iterable[str]) -> dict[str, int]:
    """Return sentinel names to ids, `<extra_id_0>` first."""
    found = {name: i for i, name in enumerate(names) if SENTINEL.fullmatch(name)}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _added_tokens(model, sentinels: dict[str, int]) -> list[tuple[int, Any]]:
    """Return (id, AddedToken), ascending: tokens that are matched in a text before any piece."""
    kind = model.SentencePiece.USER_DEFINED
    added = [(i, _added_token(model.pieces[i].piece)) for i in range(3)]
    for i, piece in enumerate(model.pieces):
        if piece.type == kind and not SENTINEL.fullmatch(piece.piece):
            added.append((i, _added_token(piece.piece, special=False)))
    return added + [(i, _added_token(name)) for name, i in reversed(sentinels.items())]


def _added_token(name: str, special: bool = True):
    from tokenizers import AddedToken

    return AddedToken(name, special=special, normalized=False)


def _build(model, pieces: list[tuple[str, float]], added: list[tuple[int, Any]]):
    """Return the `tokenizers` pipeline: SentencePiece's normalizer, words, unigram, eos."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    spec = model.trainer_spec
    unigram = models.Unigram(pieces, unk_id=spec.unk_id, byte_fallback=spec.byte_fallback)
    tokenizer = Tokenizer(unigram)
    if model.normalizer_spec.precompiled_charsmap:
        tokenizer.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    words: dict[str, Any] = {"replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**words)]
    )
    tokenizer.decoder = decoders.Metaspace(**words)
    if spec.byte_fallback:
        parts = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), *parts])
    eos = model.pieces[spec.eos_id].piece
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", eos], pair=["$A", eos, "$B", eos], special_tokens=[(eos, spec.eos_id)]
    )
    tokenizer.add_tokens([token for _, token in added])
    return tokenizer


def _write_configs(
    folder: str, config: dict[str, Any], added: list[tuple[int, Any]], sentinels: Iterable[str]
) -> None:
    """Write the two JSON files; the first three added tokens are pad, eos and unk."""
    pad, eos, unk = (token.content for _, token in added[:3])
    special: dict[str, Any] = {"pad_token": pad, "eos_token": eos, "unk_token": unk}
    special["additional_special_tokens"] = list(sentinels)
    decoder = {str(i): token.__getstate__() for i, token in added}
    config = config | special | {"added_tokens_decoder": decoder}
    config["clean_up_tokenization_spaces"] = False
    config["model_max_length"] = 10**30  # transformers' own figure for no limit
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", special)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=2, sort_keys=True)
            file.write("\n")
