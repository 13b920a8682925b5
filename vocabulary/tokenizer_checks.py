"""Check the vocabulary of an encoder: a Hugging Face `tokenizer.json` and its special tokens."""

import os
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
    ValueError for a hub model that cannot be read.
    """
    path = spm.download(path)
    if path.endswith(_FILE):
        return os.path.dirname(path) or "."
    names = os.listdir(path) if os.path.isdir(path) else []
    return path if _FILE in names and not {*spm.MODEL_FILES} & {*names} else None


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
    ids = [roles[role] for role in _NEEDED if role in roles]
    same = len(ids) != len({*ids})
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
    plain = [p for i, p in enumerate(vocabulary.pieces) if p and i not in vocabulary.special_ids]
    drawn = spm.texts_of([piece.replace("##", "") for piece in plain], between=" ", count=100)
    texts = [*drawn, *texts]
    reference = AutoTokenizer.from_pretrained(folder)
    found: list[int] = []
    for text in texts:
        ids = vocabulary.encode_texts([text])[0].tolist()
        wanted = reference(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        masked = f" {vocabulary.pieces[vocabulary.mask_id or 0]} ".join(text.split())
        with_mask = reference(masked, add_special_tokens=False)["input_ids"]
        if ids != wanted or vocabulary.encode(masked) != with_mask:
            return [VocabularyCheck(name, "fail", f"they differ in {text[:80]!r}")]
        found += ids
    checks = [VocabularyCheck(name, "ok", f"{len(texts):,} texts, {len(found):,} ids")]
    if vocabulary.unk_id is not None:
        share = found.count(vocabulary.unk_id) / max(len(found), 1)
        words = sum(len(text.split()) for text in texts)
        detail = f"{share:.3%} of the pieces; {len(found) / max(words, 1):.2f} pieces a word"
        ok = share <= _MOST_UNKNOWN
        checks.append(VocabularyCheck.of("unknown", ok, detail, otherwise="warn"))
    return checks
