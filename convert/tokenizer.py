"""The vocabulary of a T5's run and the tokenizer of an encoder's, as Hugging Face tokenizers.

TrainedVocabulary("ro.model", extra_ids=0).write(Path("ro_hf"))
TokenizerFolder("runs/ro_bert_tiny/tokenizer").write(Path("bert_hf"))
"""

import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from etils import epath

from common.errors import UserError
from convert.formats.tokenizer_files import NUM_BYTE_IDS, write_byte_tokenizer, write_tokenizer
from convert.sizes import T5_IDS, BertSizes, Sizes

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
            return [3 + byte for byte in text.encode()]
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
