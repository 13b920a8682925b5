"""Check the vocabulary of an encoder: a Hugging Face `tokenizer.json` and its special tokens."""

import contextlib
import os
import random
from collections.abc import Sequence

from vocabulary import sentencepiece_model as spm
from vocabulary.check_results import VocabularyCheck

_FILE = "tokenizer.json"
# What masked sequences need; without "unk" every text must be spelled by bytes.
_NEEDED = ("mask", "pad", "cls", "sep")
_MOST_UNKNOWN = 0.001  # of the pieces of a text


def find_tokenizer(path: str) -> str | None:
    """Return the folder of a tokenizer.json, of a path or hub name; None if it is SentencePiece's.

    A folder with a SentencePiece model is T5's, whose tokenizer.json is made from the model. Raise
    ValueError for a hub model with neither.
    """
    if path.endswith(_FILE):
        return os.path.dirname(path) or "."
    if os.path.isdir(path):
        names = os.listdir(path)
        return (
            path if _FILE in names and not {"spiece.model", "vocabulary.model"} & {*names} else None
        )
    if os.path.exists(path) or "://" in path or path.endswith(".model"):
        return None
    try:
        spm.find_model(path)
    except ValueError as error:
        return _from_hub(path, error)
    return None


def _from_hub(name: str, error: ValueError) -> str:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    try:
        found = hf_hub_download(name, _FILE)
    except (HfHubHTTPError, HFValidationError, OSError):
        raise error from None
    with contextlib.suppress(EntryNotFoundError):  # else they are known by their usual spelling
        hf_hub_download(name, "tokenizer_config.json")
    return os.path.dirname(found)


def check_tokenizer(folder: str) -> tuple[int, list[VocabularyCheck]]:
    """Return the number of ids, and the checks that need only the files.

    Raise ValueError if `folder` has no tokenizer.json that can be read.
    """
    from tasks.tokenizer_vocabulary import TokenizerVocabulary  # with TensorFlow

    vocabulary = TokenizerVocabulary(folder)
    roles, size = vocabulary.roles, vocabulary.vocab_size
    checks = [VocabularyCheck("algorithm", "ok", type(vocabulary.tokenizer.model).__name__)]
    for role in _NEEDED:
        detail = "none, which masked_lm needs: name it in tokenizer_config.json"
        if role in roles:
            detail = f"{roles[role]}, {vocabulary.pieces[roles[role]]}"
        checks.append(VocabularyCheck.of(f"{role} id", role in roles, detail))
    distinct = [roles[role] for role in _NEEDED if role in roles]
    same = len(distinct) != len({*distinct})
    detail = "two of mask, pad, cls and sep are one token" if same else "each its own"
    checks.append(VocabularyCheck.of("distinct ids", not same, detail))
    starts = int(vocabulary.word_starts().sum())
    ok = len(vocabulary.special_ids) < starts < size
    detail = f"{starts:,} of {size:,} pieces" + ("" if ok else ": whole words cannot be masked")
    checks.append(VocabularyCheck.of("begin a word", ok, detail, otherwise="warn"))
    return size, checks


def check_texts(folder: str, texts: Sequence[str]) -> list[VocabularyCheck]:
    """Compare the ids of the training with those of `transformers`; count unknown pieces.

    Each text is compared as one of a corpus, and with the mask token between its words.
    """
    from transformers import AutoTokenizer

    from tasks.tokenizer_vocabulary import TokenizerVocabulary

    name = "equal ids in seqio and Hugging Face"
    vocabulary = TokenizerVocabulary(folder)
    texts = [*_sample_texts(vocabulary.pieces, {*vocabulary.special_ids}), *texts]
    found, lengths = vocabulary.encode_texts(texts)
    reference = AutoTokenizer.from_pretrained(folder)
    ends = lengths.cumsum()
    for text, end, length in zip(texts, ends, lengths, strict=True):
        ids = found[end - length : end].tolist()
        wanted = reference(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        masked = f" {vocabulary.pieces[vocabulary.mask_id or 0]} ".join(text.split())
        with_mask = reference(masked, add_special_tokens=False)["input_ids"]
        for ours, theirs in ((ids, wanted), (vocabulary.encode(masked), with_mask)):
            if ours != theirs:
                at = next(
                    (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
                    min(len(ours), len(theirs)),
                )
                detail = f"they differ at id {at} of {text[:80]!r}"
                return [VocabularyCheck(name, "fail", detail)]
    checks = [VocabularyCheck(name, "ok", f"{len(texts):,} texts, {len(found):,} ids")]
    return [*checks, *_unknown(vocabulary, texts, found)]


def _unknown(vocabulary, texts: Sequence[str], ids) -> list[VocabularyCheck]:
    """Return how many pieces of `texts` are unknown, nothing if none can be."""
    if vocabulary.unk_id is None:
        return []
    share = float((ids == vocabulary.unk_id).mean()) if len(ids) else 0.0
    words = sum(len(text.split()) for text in texts)
    detail = f"{share:.3%} of the pieces; {len(ids) / max(words, 1):.2f} pieces a word"
    return [VocabularyCheck.of("unknown", share <= _MOST_UNKNOWN, detail, otherwise="warn")]


def _sample_texts(pieces: Sequence[str], special: set[int], count: int = 100) -> list[str]:
    """Return texts made from the pieces themselves, so that every language is covered."""
    generator = random.Random(0)
    plain = [p.replace("##", "") for i, p in enumerate(pieces) if i not in special and p]
    texts = ["", "a", "  two  spaces ", "line\nbreak\ttab", "1.234,56 €"]
    for _ in range(count):
        drawn = " ".join(generator.choices(plain, k=30))
        texts.append(drawn.replace("▁", " ").replace("Ġ", " "))
    return texts
