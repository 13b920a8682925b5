"""Proof that a published folder's tokenizer gives the ids of the trainer's vocabulary.

    compare(vocabulary, Path("ro_hf"), [*odd_texts(), *lines])     # how many texts and ids

A text that spells a special token ("</s>", "<extra_id_7>", "[MASK]", and "<0x0A>" with byte
fallback) is ordinary text in training and that token when it is published. Such texts are counted,
not compared.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import UserError
from convert.formats.sentencepiece_model import BLANK, sentinels
from convert.proof.odd_texts import texts_of
from convert.tokenizer import TokenizerFolder, TrainedVocabulary, Vocabulary, load_sentencepiece

_AT_ONCE = 1000  # texts
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_REMEDY = (
    "make another vocabulary with python -m vocabulary.train, or set --allow_unpublishable if the "
    "model is never to be published"
)


class Compared(NamedTuple):
    """Numbers of texts with equal ids, of their ids, of ties, and of texts left out."""

    texts: int
    ids: int
    ties: int
    special: int

    def __str__(self) -> str:
        more = f", {self.ties} texts tie" if self.ties else ""
        more += f", {self.special} spell a special token" if self.special else ""
        return f"{self.texts:,} texts, {self.ids:,} equal ids{more}"


def compare(vocabulary: Vocabulary, folder: Path, texts: Iterable[str]) -> Compared:
    """Compare the ids of special tokens and texts, and return how many are equal.

    Texts made of the vocabulary's pieces are added. Each text is also compared with sentinels or
    masks between its words; for an encoder also as a list of words and as a pair. A tie is not a
    difference: "...." may be "..." and "." in either order with the same score, so the last bit of
    a float decides. Even SentencePiece's own Python and TensorFlow encoders differ there.

    Raises:
      UserError: the folder gives a special token or a text other ids.
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    score = None
    if isinstance(vocabulary, TrainedVocabulary):
        _check_ids(_ids_of_t5(vocabulary), _ids_of_t5(tokenizer))
        pairs = functools.partial(_t5_pairs, vocabulary, tokenizer)
        if not vocabulary.is_bytes:
            score = load_sentencepiece(vocabulary.path, vocabulary.extra_ids).GetScore
    else:
        _check_ids(_ids_of_encoder(vocabulary), _ids_of_encoder(tokenizer))
        pairs = functools.partial(_encoder_pairs, vocabulary.load(), tokenizer)
    names = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    names |= {name for name in tokenizer.get_vocab() if _BYTE.fullmatch(name)}
    all_texts = [*texts_of(sorted(tokenizer.get_vocab().keys() - names)), *texts]
    special = re.compile("|".join(map(re.escape, names)) or r"(?!)")
    counts = {"texts": 0, "ids": 0, "ties": 0, "special": 0}
    for start in range(0, len(all_texts), _AT_ONCE):
        batch = all_texts[start : start + _AT_ONCE]
        plain = [text for text in batch if not special.search(text)]
        counts["special"] += len(batch) - len(plain)
        for text, ours, theirs in pairs(plain):
            if ours != theirs:
                if not is_tie(ours, theirs, tokenizer.convert_ids_to_tokens, score):
                    cause = vocabulary.unusual()
                    raise _difference(text, ours, theirs, tokenizer, cause)
                counts["ties"] += 1
            counts["texts"] += 1
            counts["ids"] += len(ours)
    return Compared(**counts)


_Pairs = Iterator[tuple[str, list[int], list[int]]]


def _t5_pairs(vocabulary: TrainedVocabulary, tokenizer: Any, texts: Sequence[str]) -> _Pairs:
    """Yield texts, each also with sentinels, and the ids of both, eos included."""
    encode = encoder_of(vocabulary)
    texts = [*texts, *map(_put_sentinels, texts)] if count_sentinels(vocabulary) else texts
    published_ids = tokenizer(list(texts)).input_ids if texts else []
    for text, theirs in zip(texts, published_ids, strict=True):
        yield text, [*encode(text), vocabulary.eos_id], theirs


def _encoder_pairs(trained: Any, tokenizer: Any, texts: Sequence[str]) -> _Pairs:
    """Yield texts, plain, as words, as a pair and with masks, and the ids of both."""
    encode = lambda text: trained.encode(text, add_special_tokens=False).ids
    cls, sep, mask = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token
    ask = lambda *given, **how: (
        tokenizer(*given, add_special_tokens=False, verbose=False, **how).input_ids
    )
    # Byte-level BPE marks a word by its leading space, so word lists must include it.
    glue = "" if ask(["a", "a"], is_split_into_words=True) == encode("a a") else " "
    normal = trained.normalizer.normalize_str if trained.normalizer else str
    for text in texts:
        ids = encode(text)
        yield text, [cls, *ids, sep], tokenizer(text, verbose=False).input_ids
        words = text.split()[:50]
        if not words or BLANK in text or any(normal(word)[:1] == " " for word in words):
            continue  # NFKC writes U+1FFE with a blank before it, which a list of words loses
        whole = encode(" ".join(words))
        as_words = [word if i == 0 else glue + word for i, word in enumerate(words)]
        yield f"{text} (as words)", whole, ask(as_words, is_split_into_words=True)
        half = len(words) // 2
        start, end = " ".join(words[:half]), " ".join(words[half:])
        head = encode(start)
        if mask and start and whole[: len(head)] == head:
            masked = [*head, tokenizer.mask_token_id, *whole[len(head) :]]
            yield f"{text} (with a mask)", masked, ask(f"{start} {mask} {end}")
        pair = [i for i in tokenizer(start, end).input_ids if i not in (cls, sep)]
        yield f"{text} (as a pair)", [i for i in head + encode(end) if i not in (cls, sep)], pair


def _put_sentinels(text: str) -> str:
    words = text.split()
    parts = []
    for start in range(0, len(words), 5):
        parts += [f"<extra_id_{start // 5 % 100}>", *words[start : start + 5]]
    return " ".join([*parts, "<extra_id_99>"])


def _check_ids(trained: dict[str, int | None], published: dict[str, int | None]) -> None:
    for name in [*trained, *published]:
        if published.get(name) != trained.get(name):
            raise UserError(
                name,
                why=f"is {published.get(name)} in the Hugging Face tokenizer and "
                f"{trained.get(name)} in the trainer's vocabulary",
                to_set=_REMEDY,
            )


def _ids_of_t5(tokenizer: Any) -> dict[str, int | None]:
    if isinstance(tokenizer, TrainedVocabulary):
        last, names = tokenizer.vocab_size - 1, {"eos": tokenizer.eos_id, "unk": tokenizer.unk_id}
        ids = {f"<extra_id_{n}>": last - n for n in range(count_sentinels(tokenizer))}
        return {"pad": 0, **names, **ids}
    ids = {f"<extra_id_{n}>": i for n, i in enumerate(sentinel_ids(tokenizer))}
    return ids | {name: getattr(tokenizer, f"{name}_token_id") for name in ("pad", "eos", "unk")}


def _ids_of_encoder(tokenizer: Any) -> dict[str, int | None]:
    if isinstance(tokenizer, TokenizerFolder):
        ids = tokenizer.load().get_vocab()
        return {role: ids[token] for role, token in tokenizer.roles.items()}
    roles = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
    ids_by_role = {role: getattr(tokenizer, f"{role}_token_id") for role in roles}
    return {role: i for role, i in ids_by_role.items() if i is not None}


def is_tie(
    a: list[int],
    b: list[int],
    names: Callable[[list[int]], list[str]],
    score: Callable[[int], float] | None = None,
) -> bool:
    """Return whether `a` and `b` are the same text in the same pieces, in another order.

    With the `score` of an id they may be other pieces whose sum is the same in float32, in which
    SentencePiece adds along a text: n terms are exact to n times the last bit of their sum.
    """
    if "".join(names(a)) != "".join(names(b)):
        return False
    if score is None or sorted(a) == sorted(b):
        return sorted(a) == sorted(b)
    sums = [math.fsum(map(score, ids)) for ids in (a, b)]
    return abs(sums[0] - sums[1]) <= max(len(a), len(b)) * 2**-23 * max(map(abs, sums))


def sentinel_ids(tokenizer: Any) -> list[int]:
    """Return the ids of a transformers tokenizer's sentinels, from `<extra_id_0>`."""
    return [*sentinels(tokenizer.get_vocab().items()).values()]


def count_sentinels(vocabulary: TrainedVocabulary) -> int:
    """Return how many sentinels a vocabulary has."""
    if vocabulary.is_bytes:
        return vocabulary.extra_ids
    model = load_sentencepiece(vocabulary.path, vocabulary.extra_ids)
    return len(sentinels((model.IdToPiece(i), i) for i in range(len(model))))


def encoder_of(vocabulary: TrainedVocabulary) -> Callable[[str], list[int]]:
    """Return the trainer's encoder of a text; a sentinel in it takes the blank before it along.

    So span corruption writes sentinels, though SentencePiece gives the blank an id of its own if
    the model's sentinels lack the mark ▁. A byte vocabulary knows no sentinels in a text.
    """
    if not vocabulary.is_bytes:
        return load_sentencepiece(vocabulary.path, vocabulary.extra_ids, marked=True).encode

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        for i, part in enumerate(re.split(r"<extra_id_(\d+)>", text)):  # texts, numbers by turns
            if i % 2 and int(part) < vocabulary.extra_ids:
                ids.append(vocabulary.vocab_size - 1 - int(part))
            else:
                ids += vocabulary.encode(f"<extra_id_{part}>" if i % 2 else part)
        return ids

    return encode


def _difference(
    text: str, trained: list[int], published: list[int], tokenizer: Any, unusual: str
) -> UserError:
    pairs = zip(trained, published, strict=False)
    index = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(trained), len(published)))
    window = slice(max(index - 2, 0), index + 4)
    cause = f" (its {unusual} may be the cause)" if unusual else ""
    names = tokenizer.convert_ids_to_tokens
    return UserError(
        "the published tokenizer",
        why=f"differs from training at id {index} of {text[:80]!r}: training has "
        f"{trained[window]} {names(trained[window])}, the published one {published[window]} "
        f"{names(published[window])}{cause}",
        to_set=_REMEDY,
    )
