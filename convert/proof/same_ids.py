"""Proof that a Hugging Face tokenizer gives the ids of the trainer's vocabulary.

assert_same_ids(vocabulary, AutoTokenizer.from_pretrained("ro_hf"), texts)
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from common.errors import UserError
from convert.formats.tokenizer_files import SENTINEL
from convert.tokenizer import TrainedVocabulary, load_sentencepiece

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


def assert_same_ids(vocabulary, tokenizer, texts: Iterable[str]) -> int:
    """Raise UserError at the first text or sentinel whose ids differ; return the number of ties.

    A tie is not a difference: "...." is "..." and "." in either order, with the same score, and the
    last bit of a float decides. SentencePiece's own Python and TensorFlow encoders differ there.
    `vocabulary` is a `TrainedVocabulary` or seqio's; the transformers `tokenizer` must end every
    text in eos, as the trainer does. Sentinels in `texts` count if they are between spaces.
    """
    highest, count = vocabulary.vocab_size - 1, _count_sentinels(vocabulary)
    wanted = {f"<extra_id_{n}>": highest - n for n in range(count)}
    wanted |= {"pad": 0, "eos": vocabulary.eos_id, "unk": vocabulary.unk_id}
    found = {f"<extra_id_{n}>": i for n, i in enumerate(sentinel_ids(tokenizer))}
    found |= {name: getattr(tokenizer, f"{name}_token_id") for name in ("pad", "eos", "unk")}
    for name in [*wanted, *found]:
        if found.get(name) != wanted.get(name):
            raise UserError(
                f"{name} is {found.get(name)} in the Hugging Face tokenizer and {wanted.get(name)} "
                "in the trainer's vocabulary"
            )
    ties = 0
    for text in texts:
        ours, theirs = [*_encode(vocabulary, text), vocabulary.eos_id], tokenizer(text).input_ids
        if theirs != ours:
            if not is_tie(ours, theirs, tokenizer.convert_ids_to_tokens):
                raise UserError(_difference(text, ours, theirs, tokenizer))
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
    names = {name: i for name, i in tokenizer.get_vocab().items() if SENTINEL.fullmatch(name)}
    return [names[name] for name in sorted(names, key=lambda name: int(re.sub(r"\D", "", name)))]


def _count_sentinels(vocabulary) -> int:
    """Return how many sentinels a vocabulary has, inside its model or behind it."""
    if _is_bytes(vocabulary):
        return vocabulary.extra_ids
    if isinstance(vocabulary, TrainedVocabulary):
        model = load_sentencepiece(vocabulary.path, vocabulary.extra_ids)
    else:
        model = vocabulary.tokenizer
    return sum(bool(SENTINEL.fullmatch(model.IdToPiece(i))) for i in range(len(model)))


def _encode(vocabulary, text: str) -> list[int]:
    """Return the trainer's ids; a byte vocabulary knows no sentinels in text, so insert them."""
    if not _is_bytes(vocabulary):
        return list(vocabulary.encode(text))
    ids: list[int] = []
    for i, part in enumerate(re.split(r"<extra_id_(\d+)>", text)):  # texts and numbers by turns
        if i % 2 and int(part) < vocabulary.extra_ids:
            ids.append(vocabulary.vocab_size - 1 - int(part))
        else:
            ids += vocabulary.encode(f"<extra_id_{part}>" if i % 2 else part)
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
