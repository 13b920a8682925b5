"""Which tokens of a Hugging Face tokenizer play which roles.

by_role([json.loads(tokenizer_config), json.loads(special_tokens_map)], tokenizer.token_to_id)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

FILES = ("tokenizer_config.json", "special_tokens_map.json")  # beside tokenizer.json
# By role, the spellings of BERT, RoBERTa and Gemma.
_SPELLINGS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<bos>"),
    "sep": ("[SEP]", "</s>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", "<bos>", "[CLS]"),
    "eos": ("</s>", "<eos>", "[SEP]"),
}


def by_role(
    configs: Iterable[Mapping[str, Any]], id_of: Callable[[str], int | None]
) -> dict[str, str]:
    """Return the special tokens by role: pad, unk, cls, sep, mask, bos, eos.

    They are those that the first of `configs` names, or have their usual spelling; `id_of` returns
    None for what is no token.
    """
    named: dict[str, Any] = {}
    for config in configs:
        named = {**config, **named}
    found = {}
    for role, spellings in _SPELLINGS.items():
        token = named.get(f"{role}_token")
        content = token.get("content") if isinstance(token, dict) else token
        for spelling in (content, *spellings):
            if isinstance(spelling, str) and id_of(spelling) is not None:
                found[role] = spelling
                break
    return found
