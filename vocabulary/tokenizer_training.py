"""Trains an encoder's vocabulary: WordPiece, as BERT's, or byte-level BPE, as RoBERTa's.

    tokenizer = train_tokenizer(lines, "wordpiece", 32_000)
    write_folder(tokenizer, "vocabularies/my_bert", SPECIAL_TOKENS["bert"])

The folder has what `transformers.AutoTokenizer` and `tasks.vocabularies.tokenizer` load. The same
text and settings give the same bytes: the `tokenizers` library numbers WordPiece's continuations in
the order of a hash table, and ties between merges depend on these numbers, so here all letters and
their continuations are numbered before it begins.
"""

import collections
import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from common.embedding import ROW_MULTIPLE, padded_rows
from common.errors import UserError
from common.new_files import write_files
from vocabulary import corpus

KINDS = ("wordpiece", "byte_bpe")
CONTINUATION = "##"
MIN_FREQUENCY = 2  # least frequency of a merge
COVERAGE = 0.9999  # share of a text's characters that become pieces


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a model family, by role; their ids are 0 to 4 in this order."""

    tokens: dict[str, str]
    separators: int = 1  # between the two texts of a pair
    has_types: bool = True  # whether the second text of a pair has token type 1
    mask_takes_blank: bool = False  # whether the mask replaces the space before it, too


_BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_ROBERTA = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
SPECIAL_TOKENS = {
    "bert": SpecialTokens(_BERT),
    "roberta": SpecialTokens(_ROBERTA, 2, has_types=False, mask_takes_blank=True),
    "modernbert": SpecialTokens(_BERT, has_types=False, mask_takes_blank=True),
}
DEFAULT_SPECIAL_TOKENS = {"wordpiece": "bert", "byte_bpe": "roberta"}


def train_tokenizer(
    lines: Sequence[str],
    kind: str,
    size: int,
    *,
    special_tokens: SpecialTokens | None = None,
    character_coverage: float = COVERAGE,
    required_characters: str = "",
) -> tokenizers.Tokenizer:
    """Train a tokenizer of exactly `size` pieces, special tokens included.

    `lines` are normalized text. `character_coverage` is the share of its characters that become
    pieces of WordPiece, `required_characters` become pieces even if they are rare. Byte-level BPE
    has a piece for each byte and ignores both. Raise UserError for a text that is too small or too
    varied for the size.
    """
    special = special_tokens or SPECIAL_TOKENS[DEFAULT_SPECIAL_TOKENS[kind]]
    names = list(special.tokens.values())
    if kind == "wordpiece":
        letters = _alphabet(lines, character_coverage, required_characters)
        first = [*names, *(CONTINUATION + letter for letter in letters)]
    else:
        letters, first = sorted(pre_tokenizers.ByteLevel.alphabet()), names
    if len(first) + len(letters) > size:
        raise too_small(size, len(first) + len(letters), "special tokens")
    blank = _empty(kind, {}, special)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=first,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
        continuing_subword_prefix=CONTINUATION if kind == "wordpiece" else "",
    )
    # WordPiece's pieces are made by merges, as BPE's are.
    learner = tokenizers.Tokenizer(models.BPE())
    learner.normalizer, learner.pre_tokenizer = blank.normalizer, blank.pre_tokenizer
    learner.train_from_iterator(lines, trainer, length=len(lines))
    if (most := learner.get_vocab_size()) < size:
        raise too_large(size, most)
    model = json.loads(learner.to_str())["model"]
    return _empty(kind, model, special)


def too_large(size: int, most: int) -> UserError:
    """Return the error of a --size for a corpus that gives at most `most` pieces."""
    largest = most // ROW_MULTIPLE * ROW_MULTIPLE
    if largest < 2 * ROW_MULTIPLE:
        return UserError(
            "the corpus",
            why="is too small for a vocabulary of any size",
            to_set="give more text",
        )
    to_set = f"set --size {largest}, the largest possible, or give more text"
    return UserError("--size", size, "which is too large for this corpus", to_set)


def too_small(size: int, needed: int, others: str) -> UserError:
    """Return the error of a --size for a corpus whose characters and `others` need more."""
    return UserError(
        "--size",
        size,
        "which is too small for this corpus: its characters and the "
        f"{others} alone need {needed} pieces",
        f"set --size {padded_rows(needed)} or more, or a lower --character_coverage",
    )


def _alphabet(lines: Iterable[str], coverage: float, required: str) -> list[str]:
    """Return the most frequent characters that make up `coverage` of a text, and the required."""
    counts = collections.Counter(c for line in lines for c in line if not c.isspace())
    if not counts:
        raise corpus.no_text("the corpus")
    left, letters = coverage * counts.total(), {*required}
    for letter, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if left <= 0:
            break
        letters.add(letter)
        left -= count
    return sorted(letters)


def _empty(kind: str, model: dict[str, Any], special: SpecialTokens) -> tokenizers.Tokenizer:
    """Return a tokenizer with the pieces of a trained model, or without any."""
    pieces, unknown = model.get("vocab", {}), special.tokens["unk"]
    if kind == "wordpiece":
        tokenizer = tokenizers.Tokenizer(
            models.WordPiece(pieces, unk_token=unknown, continuing_subword_prefix=CONTINUATION)
        )
        tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=False)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
    else:
        merges = [tuple(merge) for merge in model.get("merges", [])]
        tokenizer = tokenizers.Tokenizer(models.BPE(pieces, merges))
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    if pieces:
        for role, name in special.tokens.items():
            lstrip = role == "mask" and special.mask_takes_blank
            token = tokenizers.AddedToken(name, special=True, normalized=False, lstrip=lstrip)
            tokenizer.add_special_tokens([token])
        cls, sep = special.tokens["cls"], special.tokens["sep"]
        second = "1" if special.has_types else "0"
        between = " ".join([f"{sep}:0"] * special.separators)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {between} $B:{second} {sep}:{second}",
            special_tokens=[(name, pieces[name]) for name in (cls, sep)],
        )
    return tokenizer


def write_folder(
    tokenizer: tokenizers.Tokenizer, folder: str, special: SpecialTokens, overwrite: bool = False
) -> None:
    """Write tokenizer.json and the names of the special tokens into `folder`, both or none."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= {f"{role}_token": name for role, name in special.tokens.items()}
    config["clean_up_tokenization_spaces"] = False
    names = ["input_ids", *(["token_type_ids"] if special.has_types else []), "attention_mask"]
    config["model_input_names"] = names
    content = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    contents = {
        os.path.join(folder, "tokenizer.json"): f"{tokenizer.to_str(pretty=True)}\n".encode(),
        os.path.join(folder, "tokenizer_config.json"): content.encode(),
    }
    write_files(contents, overwrite)
