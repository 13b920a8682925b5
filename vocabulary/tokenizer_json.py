"""Removes and adds pieces of an encoder's tokenizer.json: Unigram (XLM-R) or BPE (ModernBERT).

    pieces = TokenizerPieces("xlm_r")                   # a folder with tokenizer.json
    write_files(pieces.change(kept).new.files("runs/xlm_r_small/tokenizer"))

BPE joins the pair of neighbours whose merge comes first, again and again. A merge is kept if both
parts and the result are kept, in the old order. So the merges behind a kept piece are kept, and a
text whose pieces are all kept is cut as before. New merges come last: they join what the old ones
leave.
"""

import functools
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers

from common import small_files, special_tokens
from common.errors import UserError
from convert.run.vocabulary import TOKENIZER
from tasks.tokenizer_vocabulary import (
    TOKENIZER_FILE,
    TokenizerVocabulary,
    is_byte_level,
    tokenizer_of,
)
from vocabulary.pieces import NewPiece, Pieces, VocabularyChange

_KINDS = ("Unigram", "BPE")


class TokenizerPieces(Pieces):
    """A folder with a tokenizer.json, or what `change` has made of one.

    Raises:
      UserError: it is neither Unigram nor BPE, or cannot be read.
    """

    in_run = TOKENIZER
    fixed = 0

    def __init__(self, folder: str, content: Mapping[str, Any] | None = None):
        self.folder = folder
        if content is None:
            _ = TokenizerVocabulary(folder).roles  # raises what cannot be read in one sentence
            content = small_files.read_json(f"{folder}/{TOKENIZER_FILE}")
        self.content, self.model = content, content["model"]
        if (kind := self.model["type"]) not in _KINDS:
            raise UserError(
                folder,
                why=f"is a {kind}, and only {' and '.join(_KINDS)} can be trimmed and extended",
                to_set="continue with the vocabulary as it is, without this step",
            )
        self.is_bpe = kind == "BPE"
        if self.is_bpe:
            ids = dict(self.model["vocab"])
            merges = [m.split(" ") if isinstance(m, str) else m for m in self.model["merges"]]
            self.merges = [(first, second) for first, second in merges]
        else:
            ids = {name: i for i, (name, _) in enumerate(self.model["vocab"])}
        self.in_model = {*ids}
        ids |= {token["content"]: token["id"] for token in content["added_tokens"]}
        self.ids = ids
        self.names = [""] * (max(ids.values()) + 1)
        self.scores = [0.0] * len(self.names)
        for name, i in ids.items():
            self.names[i] = name
        for i, (_, score) in enumerate([] if self.is_bpe else self.model["vocab"]):
            self.scores[i] = score
        unk = self.model.get("unk_token") if self.is_bpe else self.names[self.model["unk_id"] or 0]
        self.unk_id = int(ids.get(unk, -1))
        self.is_bytes = is_byte_level(content)
        self.tokenizer = tokenizer_of(json.dumps(content))
        self.tokenizer.encode_special_tokens = True
        normalizer = self.tokenizer.normalizer
        self.encode = lambda text: self.tokenizer.encode(text, add_special_tokens=False).ids
        self.normalize = normalizer.normalize_str if normalizer else str

    def words(self, text: str) -> list[list[int]]:
        """Return the ids of each word of a text; no piece goes beyond its word."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        words: list[list[int]] = []
        last = None
        for i, word in zip(encoding.ids, encoding.word_ids, strict=True):
            if word != last:
                words.append([])
            words[-1].append(i)
            last = word
        return words

    def is_of_letters(self, name: str) -> bool:
        """Return whether a piece is made of letters, except for the mark of a blank.

        With bytes all are, since the tokenizer itself cuts them into words of letters.
        """
        return self.is_bytes or super().is_of_letters(name)

    def required(self, usage: Mapping[int, int]) -> set[int]:
        """Return the ids of special tokens and of single characters: bytes, or used letters."""
        letters = {letter for i in usage for letter in self.names[i]}
        if self.is_bytes:
            letters |= {*tokenizers.pre_tokenizers.ByteLevel.alphabet()}
        if self.model.get("byte_fallback"):
            letters |= {f"<0x{byte:02X}>" for byte in range(256)}
        special = {token["content"] for token in self.content["added_tokens"]}
        names = (letters & self.in_model) | special
        return ({self.unk_id} - {-1}) | {self.ids[name] for name in names}

    def parts(self, i: int) -> set[int]:
        """Return `i` and the ids without which encoding would never give it."""
        return {self.ids[name] for name in self._made_of(self.names[i])}

    @functools.cached_property
    def _ranks(self) -> Mapping[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)} if self.is_bpe else {}

    def _made_of(self, name: str) -> set[str]:
        """Return a piece and those through which merges lead to it."""
        symbols, pieces = [*name], {name}
        while self.is_bpe and len(symbols) > 1:
            ranks = map(self._ranks.get, itertools.pairwise(symbols))
            mergeable = [(rank, n) for n, rank in enumerate(ranks) if rank is not None]
            if not mergeable:
                return {name}  # not made by merges, such as a special token
            _, n = min(mergeable)
            pieces |= {*symbols[n : n + 2]}
            symbols[n : n + 2] = ["".join(symbols[n : n + 2])]
        return pieces

    def change(
        self, kept: Iterable[int] | None = None, added: Sequence[NewPiece] = ()
    ) -> VocabularyChange:
        """Return the change to a vocabulary of kept ids, ascending (None: all), and new pieces.

        If a new piece exists already, BPE gets another way to make it.
        """
        ids_kept = range(len(self.names)) if kept is None else kept
        names = [self.names[i] for i in ids_kept if self.names[i]]
        new = {p.name: p.old for p in added if p.name not in self.ids}
        inside = [*(name for name in names if name in self.in_model), *new]
        order = [*inside, *(name for name in names if name not in self.in_model)]
        ids = {name: i for i, name in enumerate(order)}
        model = {**self.model}
        if self.is_bpe:
            pairs = [*self.merges, *(p.pair for p in added if p.pair)]
            in_new = lambda first, second: {first, second, first + second} <= ids.keys()
            model["vocab"] = {name: ids[name] for name in inside}
            model["merges"] = [list(pair) for pair in pairs if in_new(*pair)]
        else:
            scores = {name: self.scores[i] for name, i in self.ids.items()}
            scores |= {name: self.score(old) for name, old in new.items()}
            model["vocab"] = [[name, scores[name]] for name in inside]
            model["unk_id"] = ids[self.names[self.unk_id]]
        tokens = [{**t, "id": ids[t["content"]]} for t in self.content["added_tokens"]]
        padding = self.content.get("padding")
        if padding:
            padding = {**padding, "pad_id": ids.get(padding["pad_token"], padding["pad_id"])}
        content = {
            **self.content,
            "model": model,
            "padding": padding,
            "added_tokens": sorted(tokens, key=lambda token: token["id"]),
            "post_processor": _renumbered(self.content["post_processor"], ids),
        }
        sources = [new[name] if name in new else (self.ids[name],) for name in order]
        return VocabularyChange(self, TokenizerPieces(self.folder, content), sources)

    def files(self, path: str) -> dict[str, bytes]:
        """Return the files of the folder `path`: tokenizer.json and what names special tokens."""
        contents = {f"{path}/{TOKENIZER_FILE}": _dumped(self.content)}
        for name in special_tokens.FILES:
            if os.path.exists(source := f"{self.folder}/{name}"):
                config = small_files.read_json(source)
                config.pop("added_tokens_decoder", None)  # has ids, and is in tokenizer.json
                contents[f"{path}/{name}"] = _dumped(config)
        return contents


def _dumped(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _renumbered(processor: Any, ids: Mapping[str, int]) -> Any:
    """Return a post-processor with the new ids of the tokens that it names."""
    if isinstance(processor, list):
        if len(processor) == 2 and isinstance(processor[0], str):  # ["</s>", 2]
            return [processor[0], ids[processor[0]]]
        return [_renumbered(part, ids) for part in processor]
    if isinstance(processor, dict):
        if "tokens" in processor and "ids" in processor:
            return {**processor, "ids": [ids[token] for token in processor["tokens"]]}
        return {key: _renumbered(value, ids) for key, value in processor.items()}
    return processor
