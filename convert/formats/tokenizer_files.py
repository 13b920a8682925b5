"""The files of a Hugging Face tokenizer, from the vocabulary that a T5 was trained with.

    write_tokenizer("ro.model", "ro_hf")                       # sentinels inside the model
    write_tokenizer("t5.model", "t5_hf", extra_ids=100)        # seqio appends them
    write_byte_tokenizer("byt5_hf", extra_ids=100)

`AutoTokenizer` of transformers 5 and 4 reads the folder, and so does the slow `T5Tokenizer` of
transformers 4. The files avoid three pitfalls:

- `T5Tokenizer` adds 100 sentinels after the model unless tokenizer_config.json declares them
  (`extra_ids` and `additional_special_tokens`).
- transformers 5 rebuilds the pipeline of `T5Tokenizer`, which loses U+0085 and byte fallback; so
  the files name the generic class, which uses tokenizer.json unchanged.
- `ByT5Tokenizer` counts its sentinels upwards from 259, seqio downwards from the highest id.

One difference from the trainer is deliberate: a text that spells a special token
("</s>", "<extra_id_7>") has its id here, and is ordinary text in training.
"""

import json
import os
from collections.abc import Iterable
from typing import Any

from common.errors import UserError
from convert.formats.sentencepiece_model import (
    BLANK,
    NUM_SENTINELS,
    SENTINEL,
    read_bytes,
    read_model,
    sentinels,
)
from convert.formats.sentencepiece_normalizer import normalizer_of, user_symbols

NUM_BYTE_IDS = 3 + 256  # pad, eos and unk come first


def write_tokenizer(sentencepiece_path: str, folder: str, *, extra_ids: int = 0) -> None:
    """Write tokenizer.json, tokenizer_config.json, special_tokens_map.json and spiece.model.

    The trainer's model, local or on `gs://`, is copied to spiece.model. `extra_ids` is that of
    `seqio.SentencePieceVocabulary`: 0 if the sentinels are pieces of the model (mT5's and our own),
    100 (T5's own) or 300 (umT5's) if seqio adds them.

    Raises:
      UserError: no tokenizer of Hugging Face equals the model.
    """
    os.makedirs(folder, exist_ok=True)
    model = read_model(sentencepiece_path)
    with open(os.path.join(folder, "spiece.model"), "wb") as file:
        file.write(read_bytes(sentencepiece_path))
    _require_known(model, sentencepiece_path)
    pieces = _pieces(model, extra_ids)
    ids = sentinels((name, i) for i, (name, _) in enumerate(pieces))
    marks = {f"<extra_id_{number}>": i for number, i in ids.items()}
    special = _special_tokens(model, marks)
    _build(model, pieces, special).save(os.path.join(folder, "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "extra_ids": extra_ids}
    spec = model.trainer_spec
    roles = {"pad": spec.pad_id, "eos": spec.eos_id, "unk": spec.unk_id}
    roles |= {"bos": spec.bos_id} if spec.bos_id >= 0 else {}
    tokens = {role: model.pieces[i].piece for role, i in roles.items()}
    _write_configs(folder, config | {"legacy": False}, tokens, special, marks)


def write_byte_tokenizer(folder: str, *, extra_ids: int = NUM_SENTINELS) -> None:
    """Write the files of a `ByT5Tokenizer` that agrees with `seqio.ByteVocabulary(extra_ids)`.

    Bytes are ids 3 to 258; `<extra_id_0>` is the highest id, 258 + extra_ids, as span corruption
    counts; transformers' default is 259. With `extra_ids=0` (the published ByT5, whose sentinels
    are its last byte ids) no sentinel has a name.
    """
    os.makedirs(folder, exist_ok=True)
    last = NUM_BYTE_IDS + extra_ids - 1
    sentinels = {f"<extra_id_{n}>": last - n for n in reversed(range(extra_ids))}
    tokens = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
    special = dict(enumerate(tokens.values())) | {i: name for name, i in sentinels.items()}
    config = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": extra_ids}
    _write_configs(folder, config, tokens, special, sentinels)


def _require_known(model, path: str) -> None:
    """Raise UserError for settings of a model that no Hugging Face tokenizer supports."""
    spec, normalizer = model.trainer_spec, model.normalizer_spec
    kind = spec.ModelType.Name(spec.model_type).lower()
    size, control = len(model.pieces), model.SentencePiece.CONTROL
    has = lambda i: 0 <= i < size
    reasons = {
        f"is a {kind} model; T5's tokenizer is unigram": kind != "unigram",
        "treats blanks as suffixes (treat_whitespace_as_suffix)": spec.treat_whitespace_as_suffix,
        "has blanks in its pieces (escape_whitespaces)": not normalizer.escape_whitespaces,
        f"folds case ({normalizer.name})": normalizer.name.endswith("_cf"),
        f"has pad_id {spec.pad_id}, and the network pads with 0": not (
            spec.pad_id == 0 and model.pieces[0].type == control
        ),
        f"has eos_id {spec.eos_id}, no control symbol": not (
            has(spec.eos_id) and model.pieces[spec.eos_id].type == control
        ),
        f"has no piece of its unk_id {spec.unk_id}": not has(spec.unk_id),
    }
    if faults := [reason for reason, is_true in reasons.items() if is_true]:
        raise UserError(
            path,
            why=f"{', and '.join(faults)}, so no published tokenizer can give its ids",
            to_set="make a vocabulary with python -m vocabulary.train",
        )


def _pieces(model, extra_ids: int) -> list[tuple[str, float]]:
    """Return names and scores by id; a sentinel has its Hugging Face name, without the mark ▁.

    User-defined symbols take precedence. Unused pieces get a name that cannot occur in text.
    """
    pieces = [(SENTINEL.sub(r"\1", p.piece), p.score) for p in model.pieces]
    normal = [p.score for p in model.pieces if p.type == model.SentencePiece.NORMAL]
    for i, symbol in user_symbols(model).items():
        pieces[i] = (symbol, len(symbol.encode()) * max(0.0, *normal[:1], *normal) - 0.1)
    for i, piece in enumerate(model.pieces):
        if piece.type == model.SentencePiece.UNUSED:
            pieces[i] = (f"{piece.piece} ", piece.score)
    return pieces + [(f"<extra_id_{n}>", 0.0) for n in reversed(range(extra_ids))]


def _special_tokens(model, sentinels: dict[str, int]) -> dict[int, str]:
    """Return the tokens that are matched in a text before any piece, by id."""
    kinds = (model.SentencePiece.CONTROL, model.SentencePiece.UNKNOWN)
    tokens = {i: piece.piece for i, piece in enumerate(model.pieces) if piece.type in kinds}
    return dict(sorted((tokens | {i: name for name, i in sentinels.items()}).items()))


def _added_token(name: str):
    from tokenizers import AddedToken

    return AddedToken(name, special=True, normalized=False)


def _build(model, pieces: list[tuple[str, float]], special: dict[int, str]):
    """Return the `tokenizers` pipeline: SentencePiece's normalizer, words, unigram, eos."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    spec = model.trainer_spec
    unigram = models.Unigram(pieces, unk_id=spec.unk_id, byte_fallback=spec.byte_fallback)
    tokenizer = Tokenizer(unigram)
    tokenizer.normalizer = normalizer_of(model)
    names = [name for i, (name, _) in enumerate(pieces) if i not in special]
    # Word by word is faster, and gives the same if no piece crosses a blank.
    if BLANK in names and not any(BLANK in name[1:] for name in names):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(BLANK, prepend_scheme="never")
    scheme = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    tokenizer.decoder = decoders.Metaspace(replacement=BLANK, prepend_scheme=scheme)
    if spec.byte_fallback:
        parts = [decoders.ByteFallback(), decoders.Fuse()]
        parts += [decoders.Strip(" ", 1, 0)] if model.normalizer_spec.add_dummy_prefix else []
        tokenizer.decoder = decoders.Sequence([decoders.Replace(BLANK, " "), *parts])
    eos = model.pieces[spec.eos_id].piece
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", eos], pair=["$A", eos, "$B", eos], special_tokens=[(eos, spec.eos_id)]
    )
    tokenizer.add_tokens([_added_token(name) for name in special.values()])
    return tokenizer


def _write_configs(
    folder: str,
    config: dict[str, Any],
    named: dict[str, str],
    special: dict[int, str],
    sentinels: Iterable[str],
) -> None:
    """Write the two JSON files: `named` are tokens by role, `special` tokens by id."""
    roles: dict[str, Any] = {f"{role}_token": name for role, name in named.items()}
    roles["additional_special_tokens"] = [
        *sentinels,
        *(name for name in special.values() if name not in {*named.values(), *sentinels}),
    ]
    decoder = {str(i): _added_token(name).__getstate__() for i, name in special.items()}
    config = config | roles | {"added_tokens_decoder": decoder}
    config["clean_up_tokenization_spaces"] = False
    config["model_input_names"] = ["input_ids", "attention_mask"]  # a T5 takes no token types
    config["model_max_length"] = 10**30  # transformers' own figure for no limit
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", roles)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=2, sort_keys=True)
            file.write("\n")
