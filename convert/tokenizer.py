"""Publishes a vocabulary as a Hugging Face tokenizer.

    TrainedVocabulary("ro.model", extra_ids=0).publish(Path("ro_hf"))
    TokenizerFolder("runs/ro_bert_tiny/tokenizer").publish(Path("bert_hf"), sizes)

A T5 has a vocabulary of its run, an encoder the folder of a tokenizer.
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from etils import epath

from common import small_files, special_tokens
from common.errors import UserError, first_line
from convert.formats.sentencepiece_model import SENTINEL, processor, read_bytes, read_model
from convert.formats.sentencepiece_normalizer import user_symbols
from convert.formats.tokenizer_files import NUM_BYTE_IDS, write_byte_tokenizer, write_tokenizer
from convert.sizes import BertSizes, EncoderSizes, Sizes

BYTES = "bytes"
# An embedding is rounded up to a multiple of this at most; more rows mean another vocabulary.
_ROUNDING = 128
# The files of an encoder's tokenizer, and the roles of its special tokens.
FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model"),
)
_TOKENIZER, TOKENIZER_CONFIG, *_ = FILES
_ROLES = ("pad", "cls", "sep", "bos", "eos")
_RESTORE = "restore the tokenizer's folder"


class TrainedVocabulary(NamedTuple):
    """A T5's vocabulary: the path of a SentencePiece model, or `BYTES`, and seqio's extra ids."""

    path: str
    extra_ids: int

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
        """Return a SHA-256 that changes when ids do."""
        model = b"" if self.is_bytes else read_bytes(self.path)
        return hashlib.sha256(model + repr(self[1:]).encode()).hexdigest()

    @property
    def eos_id(self) -> int:
        """The id of the end of a text."""
        return 1 if self.is_bytes else load_sentencepiece(self.path, self.extra_ids).eos_id()

    @property
    def unk_id(self) -> int:
        """The id of unknown text."""
        return 2 if self.is_bytes else load_sentencepiece(self.path, self.extra_ids).unk_id()

    def unusual(self) -> str:
        """Return the settings in which a SentencePiece model differs from T5's own, as text."""
        if self.is_bytes:
            return ""
        model = read_model(self.path)
        normalizer, symbols = model.normalizer_spec, user_symbols(model)
        settings = ["add_dummy_prefix False"] * (not normalizer.add_dummy_prefix)
        settings += ["remove_extra_whitespaces False"] * (not normalizer.remove_extra_whitespaces)
        settings += [f"normalization {normalizer.name!r}"] * (normalizer.name != "nmt_nfkc")
        settings += [f"user-defined symbols {list(symbols.values())[:3]}"] * bool(symbols)
        return ", ".join(settings)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without eos."""
        if self.is_bytes:
            return [3 + byte for byte in text.encode()]
        return load_sentencepiece(self.path, self.extra_ids).encode(text)

    def publish(self, folder: Path, sizes: Sizes | None = None) -> None:
        """Write the Hugging Face tokenizer's files, for a network of these sizes."""
        del sizes  # a T5 has no limit of positions
        if self.is_bytes:
            write_byte_tokenizer(str(folder), extra_ids=self.extra_ids)
        else:
            write_tokenizer(self.path, str(folder), extra_ids=self.extra_ids)

    def config_ids(self, sizes: Sizes) -> dict[str, int]:
        """Return the special ids that config.json needs; raise UserError for another network."""
        if not 0 <= sizes.vocab_size - self.vocab_size < _ROUNDING:
            raise _other_vocabulary(self.path, self.vocab_size, sizes)
        return {"eos_token_id": self.eos_id}


class TokenizerFolder(NamedTuple):
    """The tokenizer of an encoder: a folder, local or in a bucket, with a tokenizer.json."""

    path: str

    def write(self, folder: Path) -> None:
        """Copy the files that `AutoTokenizer` loads."""
        folder.mkdir(exist_ok=True)
        for name, content in self._contents():
            (folder / name).write_bytes(content)

    def publish(self, folder: Path, sizes: Sizes | None = None) -> None:
        """Write the files, completed so that `AutoTokenizer` gives what training had.

        They get the first and last token of a sequence, the types of tokens in two sentences, a
        mask that takes the blank before it, the network's longest sequence, and a name for each
        special token.
        """
        self.write(folder)
        loaded, roles, config = self.load(), self.roles, self._json(TOKENIZER_CONFIG)
        config |= {f"{role}_token": token for role, token in roles.items()}
        config["tokenizer_class"] = "PreTrainedTokenizerFast"  # others rebuild tokenizer.json
        if isinstance(sizes, EncoderSizes):
            config["model_max_length"] = sizes.max_length
            has_types = isinstance(sizes, BertSizes) and sizes.type_vocab_size > 1
            types = ["token_type_ids"] if has_types else []  # not the generic class's default
            config["model_input_names"] = ["input_ids", *types, "attention_mask"]
        cls, sep = roles.get("cls"), roles.get("sep")
        second = int(isinstance(sizes, BertSizes) and sizes.next_sentence)  # type of that sentence
        single = loaded.encode("").tokens
        is_written = single == [cls, sep] and loaded.encode("", "").type_ids[-1] >= second
        if cls and sep and not is_written:
            from tokenizers import processors

            ids = [(token, loaded.token_to_id(token)) for token in (cls, sep)]
            pair = [cls, "$A", sep, f"$B:{second}", f"{sep}:{second}"]
            loaded.post_processor = processors.TemplateProcessing(
                single=[cls, "$A", sep], pair=pair, special_tokens=ids
            )
        content = json.loads(loaded.to_str())
        if content["model"]["type"] != "WordPiece":  # pieces of WordPiece contain no blanks
            for token in content["added_tokens"]:
                token["lstrip"] |= token["content"] == roles.get("mask")
            config.pop("added_tokens_decoder", None)  # it is in tokenizer.json
        dump = functools.partial(json.dumps, ensure_ascii=False, indent=2)
        (folder / _TOKENIZER).write_text(dump(content) + "\n", encoding="utf-8")
        (folder / TOKENIZER_CONFIG).write_text(dump(config) + "\n", encoding="utf-8")
        (folder / "special_tokens_map.json").unlink(missing_ok=True)  # tokenizer_config.json has it

    def fingerprint(self) -> str:
        """Return the SHA-256 of its files."""
        digest = hashlib.sha256()
        for name, content in self._contents():
            digest.update(f"{name} {len(content)} ".encode() + content)
        return digest.hexdigest()

    def unusual(self) -> str:
        """Return the kinds of pieces and words, as text."""
        content = json.loads(self.load().to_str())
        words = (content["pre_tokenizer"] or {"type": "none"})["type"]
        return f"{content['model']['type']} with words of {words}"

    def load(self) -> Any:
        """Return the tokenizer as it encodes a corpus, where special tokens are ordinary text.

        Raise UserError if its file is damaged.
        """
        import tokenizers

        path = epath.Path(self.path) / _TOKENIZER
        with small_files.parsing(path, _RESTORE):
            source = small_files.read_text(path)
        try:
            loaded = tokenizers.Tokenizer.from_str(source)
        except Exception as error:  # tokenizers raises plain Exception
            why = f"is nothing that tokenizers {tokenizers.__version__} reads"
            raise UserError(
                os.fspath(path), why=f"{why}: {first_line(error)}", to_set=_RESTORE
            ) from error
        loaded.encode_special_tokens = True
        loaded.no_truncation()
        loaded.no_padding()
        return loaded

    def config_ids(self, sizes: Sizes) -> dict[str, int]:
        """Return the special ids that config.json needs; raise UserError for another network."""
        ids = self.load().get_vocab()
        if max(ids.values()) >= sizes.vocab_size:
            raise _other_vocabulary(self.path, max(ids.values()) + 1, sizes)
        by_role = {role: ids[token] for role, token in self.roles.items() if role in _ROLES}
        special = {"bos": by_role.get("cls", 0), "eos": by_role.get("sep", 0)} | by_role
        padding, pad = sizes.config()["pad_token_id"], by_role.get("pad")
        if isinstance(sizes, BertSizes) and sizes.position_offset and pad not in (None, padding):
            raise UserError(
                self.path,
                why=f"pads with id {pad}, but transformers counts the positions of a RoBERTa from "
                f"its padding, which must be {padding}",
                to_set="train with such a tokenizer, or with position_offset 0",
            )
        return {f"{role}_token_id": i for role, i in special.items()}

    @property
    def roles(self) -> dict[str, str]:
        """The special tokens by role ("pad", "mask", …)."""
        ids = self.load().get_vocab()
        return special_tokens.tokens_by_role(map(self._json, special_tokens.FILES), ids.get)

    @property
    def tokenizer_class(self) -> str:
        """The tokenizer class that tokenizer_config.json names, "" if it names none."""
        return self._json(TOKENIZER_CONFIG).get("tokenizer_class") or ""

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        for name in FILES:
            if (source := epath.Path(self.path) / name).is_file():
                yield name, source.read_bytes()

    def _json(self, name: str) -> dict[str, Any]:
        path = epath.Path(self.path) / name
        with small_files.parsing(path, _RESTORE):
            return small_files.read_json(path) if path.is_file() else {}


Vocabulary: TypeAlias = TrainedVocabulary | TokenizerFolder


def _other_vocabulary(path: str, ids: int, sizes: Sizes) -> UserError:
    return UserError(
        path,
        why=f"has {ids} ids and the embedding {sizes.vocab_size} rows",
        to_set=f"before training set network.{sizes.configuration}.vocab_size to "
        f"{-(-ids // _ROUNDING) * _ROUNDING}, later give the vocabulary that the model was trained "
        "with by --vocabulary",
    )


@functools.cache
def load_sentencepiece(path: str, extra_ids: int = 0, marked: bool = False):
    """Return SentencePiece's encoder with seqio's sentinels, or raise UserError.

    With `marked`, sentinels of the model that lack the mark ▁ of a word get it.
    """
    model = read_model(path)
    for number in reversed(range(extra_ids)):
        kind = model.SentencePiece.USER_DEFINED
        model.pieces.add(piece=f"▁<extra_id_{number}>", score=0.0, type=kind)
    for piece in model.pieces if marked else ():
        piece.piece = SENTINEL.sub(r"▁\1", piece.piece)
    try:
        return processor(model)
    except RuntimeError as error:
        raise UserError(path, why=f"is not a SentencePiece model: {error}") from error
