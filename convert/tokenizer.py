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

import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from etils import epath

from common.errors import UserError
from convert.sizes import T5_IDS, BertSizes, Sizes

NUM_SENTINELS = 100
NUM_SPECIAL = 3  # pad, eos, unk
NUM_BYTE_IDS = NUM_SPECIAL + 256
_SENTINEL_IN_TEXT = re.compile(r"(<extra_id_\d+>)")
_SENTINEL = re.compile(r"▁?(<extra_id_\d+>)")

SAMPLE = (
    "Ana are mere, iar țăranii și-au strâns grânele înainte de furtună.",
    "Copiii se joacă <extra_id_0> în curtea <extra_id_1> școlii .",
    "<extra_id_99> a fost odată <extra_id_42>",
    "The quick brown fox jumps over 13 lazy dogs, doesn't it?",
    "Ştiinţa cu sedile; «ghilimele» „românești” – și 3,14 lei/m².",
    "Привет, мир! 你好，世界。 こんにちは 🙂",
    "  două  spații,\tun tab și\no linie nouă  ",
    "",
)
BYTES = "bytes"
# An embedding is rounded up to a multiple of this at most; more rows mean another vocabulary.
_ROUNDING = 128
# The files of an encoder's tokenizer, and the roles of its special tokens.
FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model"),
)
_ROLES = ("pad", "cls", "sep", "bos", "eos")


class TrainedVocabulary(NamedTuple):
    """A SentencePiece model's path, or `BYTES`, and seqio's extra ids; loads no TensorFlow."""

    path: str
    extra_ids: int
    eos_id: int = 1
    unk_id: int = 2

    @property
    def is_bytes(self) -> bool:
        """Whether the ids are bytes (ByT5)."""
        return self.path == BYTES

    @property
    def vocab_size(self) -> int:
        """Number of ids, sentinels included."""
        if self.is_bytes:
            return NUM_BYTE_IDS + self.extra_ids
        return len(load_sentencepiece(self.path, self.extra_ids))

    def fingerprint(self) -> str:
        """Return the SHA-256 of what makes its ids."""
        model = b"" if self.is_bytes else _content(self.path)
        return hashlib.sha256(model + repr(self[1:]).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without eos."""
        if self.is_bytes:
            return [NUM_SPECIAL + byte for byte in text.encode()]
        return load_sentencepiece(self.path, self.extra_ids).encode(text)

    def write(self, folder: Path) -> None:
        """Write the Hugging Face tokenizer's files."""
        if self.is_bytes:
            write_byte_tokenizer(str(folder), extra_ids=self.extra_ids)
        else:
            write_tokenizer(self.path, str(folder), extra_ids=self.extra_ids)

    def config_ids(self, sizes: Sizes) -> dict[str, int]:
        """Return the special ids that config.json needs; raise UserError for another network."""
        if not 0 <= sizes.vocab_size - self.vocab_size < _ROUNDING:
            raise UserError(_not_of(self.path, self.vocab_size, sizes))
        return T5_IDS


class TokenizerFolder(NamedTuple):
    """The tokenizer of an encoder: a folder, local or in a bucket, with a tokenizer.json."""

    path: str

    def write(self, folder: Path) -> None:
        """Copy the files that `AutoTokenizer` loads."""
        folder.mkdir(exist_ok=True)
        for name, content in self._contents():
            (folder / name).write_bytes(content)

    def fingerprint(self) -> str:
        """Return the SHA-256 of its files."""
        found = hashlib.sha256()
        for name, content in self._contents():
            found.update(f"{name} {len(content)} ".encode() + content)
        return found.hexdigest()

    def config_ids(self, sizes: Sizes) -> dict[str, int]:
        """Return the special ids that config.json needs; raise UserError for another network."""
        ids = self._ids()
        if max(ids.values()) >= sizes.vocab_size:
            raise UserError(_not_of(self.path, max(ids.values()) + 1, sizes))
        named = {role: ids[token] for role in _ROLES if (token := self.token(role)) in ids}
        found = {"bos": named.get("cls", 0), "eos": named.get("sep", 0)} | named
        wanted, pad = sizes.config()["pad_token_id"], named.get("pad")
        if isinstance(sizes, BertSizes) and sizes.position_offset and pad not in (None, wanted):
            raise UserError(
                f"{self.path} pads with id {pad}, but transformers counts the "
                f"positions of a RoBERTa from its padding, which must be {wanted}; train with such "
                "a tokenizer, or with position_offset 0."
            )
        return {f"{role}_token_id": i for role, i in found.items()}

    def token(self, role: str) -> str | None:
        """Return the token that plays a role ("pad", "mask", …), if the configuration names it."""
        named = self._json("special_tokens_map.json") | self._json("tokenizer_config.json")
        token = named.get(f"{role}_token")
        return token["content"] if isinstance(token, dict) else token

    @property
    def tokenizer_class(self) -> str:
        """The class of transformers that its configuration names, else an empty text."""
        return self._json("tokenizer_config.json").get("tokenizer_class") or ""

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        for name in FILES:
            if (source := epath.Path(self.path) / name).is_file():
                yield name, source.read_bytes()

    def _json(self, name: str) -> dict[str, Any]:
        path = epath.Path(self.path) / name
        return json.loads(path.read_text()) if path.is_file() else {}

    def _ids(self) -> dict[str, int]:
        import tokenizers

        text = (epath.Path(self.path) / "tokenizer.json").read_text()
        return tokenizers.Tokenizer.from_str(text).get_vocab()


Vocabulary: TypeAlias = TrainedVocabulary | TokenizerFolder


def _not_of(path: str, ids: int, sizes: Sizes) -> str:
    return (
        f"{path} has {ids} ids and the embedding {sizes.vocab_size} rows, so the model was not "
        "trained with it: give the trained one with --vocabulary."
    )


@functools.cache
def load_sentencepiece(path: str, extra_ids: int = 0):
    """Return SentencePiece's encoder with seqio's sentinels, or raise UserError."""
    import sentencepiece
    from google.protobuf.message import DecodeError
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

    try:
        model = ModelProto.FromString(_content(path))
        kind = ModelProto.SentencePiece.USER_DEFINED
        for number in reversed(range(extra_ids)):
            model.pieces.add(piece=f"▁<extra_id_{number}>", score=0.0, type=kind)
        return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    except (RuntimeError, DecodeError) as error:
        raise UserError(f"{path} is not a SentencePiece model: {error}") from error


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} is not a SentencePiece model: {error}") from error


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


def assert_same_ids(vocabulary, tokenizer, texts: Iterable[str]) -> int:
    """Raise UserError at the first text or sentinel whose ids differ; return the number of ties.

    A tie is not a difference: "...." is "..." and "." in either order, with the same score, and the
    last bit of a float decides. SentencePiece's own Python and TensorFlow encoders differ there.
    `vocabulary` is a `TrainedVocabulary` or seqio's; the transformers `tokenizer` must end every
    text in eos, as the trainer does. Sentinels in `texts` count if they are between spaces.
    """
    highest, number = vocabulary.vocab_size - 1, _count_sentinels(vocabulary)
    sentinels = {f"<extra_id_{n}>": highest - n for n in range(number)}
    special = {"pad": 0, "eos": vocabulary.eos_id, "unk": vocabulary.unk_id}
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in sentinels}
    ids |= {name: getattr(tokenizer, f"{name}_token_id") for name in special}
    for name, wanted in (sentinels | special).items():
        if ids[name] != wanted:
            raise UserError(
                f"{name} is {ids[name]} in the Hugging Face tokenizer and {wanted} in the "
                "trainer's vocabulary"
            )
    _refuse_more_sentinels(tokenizer, number)
    ties = 0
    for text in texts:
        expected = [*_encode(vocabulary, text), vocabulary.eos_id]
        found = list(tokenizer(text).input_ids)
        if found != expected:
            if not is_tie(expected, found, tokenizer.convert_ids_to_tokens):
                raise UserError(_difference(text, expected, found, tokenizer))
            ties += 1
    return ties


def assert_folder_has_same_ids(vocabulary: TrainedVocabulary, folder: Path) -> None:
    """Raise UserError at the first sentinel or `SAMPLE` text whose ids the folder changes."""
    from transformers import AutoTokenizer

    assert_same_ids(vocabulary, AutoTokenizer.from_pretrained(folder), SAMPLE)


def is_tie(a: list[int], b: list[int], names: Callable[[list[int]], list[str]]) -> bool:
    """Return whether `a` and `b` are the same text in the same pieces, in another order."""
    return sorted(a) == sorted(b) and "".join(names(a)) == "".join(names(b))


def sentinel_ids(tokenizer) -> list[int]:
    """Return the ids of a transformers tokenizer's sentinels, from `<extra_id_0>`."""
    found = {name: i for name, i in tokenizer.get_vocab().items() if _SENTINEL.fullmatch(name)}
    return [found[name] for name in sorted(found, key=_number)]


def _number(sentinel: str) -> int:
    return int(re.sub(r"\D", "", sentinel))


def _count_sentinels(vocabulary) -> int:
    """Return how many sentinels a vocabulary has, inside its model or behind it."""
    if _is_bytes(vocabulary):
        return vocabulary.extra_ids
    if isinstance(vocabulary, TrainedVocabulary):
        model = load_sentencepiece(vocabulary.path, vocabulary.extra_ids)
    else:
        model = vocabulary.tokenizer
    return sum(bool(_SENTINEL.fullmatch(model.IdToPiece(i))) for i in range(len(model)))


def _refuse_more_sentinels(tokenizer, number: int) -> None:
    """Raise UserError if a transformers tokenizer has more sentinels than `number`."""
    found = sentinel_ids(tokenizer)
    if len(found) > number:
        raise UserError(
            f"<extra_id_{number}> is {found[number]} in the Hugging Face tokenizer, which has "
            f"{len(found)} sentinels, and the trainer's vocabulary has {number}"
        )


def _encode(vocabulary, text: str) -> list[int]:
    """Return the trainer's ids; a byte vocabulary knows no sentinels in text, so insert them."""
    if not _is_bytes(vocabulary):
        return list(vocabulary.encode(text))
    ids: list[int] = []
    for part in _SENTINEL_IN_TEXT.split(text):
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
        raise UserError(
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
