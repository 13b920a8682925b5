"""Finds the special tokens of a Hugging Face tokenizer by their roles.

    tokens = tokens_by_role([tokenizer_config, special_tokens_map], tokenizer.token_to_id)
    tokens["mask"]      # "[MASK]"

A config names the token of a role; otherwise the usual spellings are tried.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

FILES = ("tokenizer_config.json", "special_tokens_map.json")  # next to tokenizer.json
MOST_SENTINELS = 10_000  # after the pieces of a vocabulary; T5 has 100, umT5 300
# The spellings of each role in BERT, RoBERTa and Gemma.
_SPELLINGS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<bos>"),
    "sep": ("[SEP]", "</s>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", "<bos>", "[CLS]"),
    "eos": ("</s>", "<eos>", "[SEP]"),
}


def tokens_by_role(
    configs: Iterable[Mapping[str, Any]], id_of: Callable[[str], int | None]
) -> dict[str, str]:
    """Return the special tokens by role: pad, unk, cls, sep, mask, bos, eos.

    The first config that names a role's token wins; otherwise the usual spellings are tried.
    `id_of` returns None for a text that is not a token.
    """
    settings: dict[str, Any] = {}
    for config in configs:
        settings = {**config, **settings}
    tokens = {}
    for role, spellings in _SPELLINGS.items():
        token = settings.get(f"{role}_token")
        content = token.get("content") if isinstance(token, dict) else token
        for spelling in (content, *spellings):
            if isinstance(spelling, str) and id_of(spelling) is not None:
                tokens[role] = spelling
                break
    return tokens
