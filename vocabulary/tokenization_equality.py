"""Check that two tokenizers give the same ids, text by text.

`check_equal_ids` compares three encoders: seqio's in TensorFlow, which feeds the training, seqio's
in Python, and the Hugging Face tokenizer made from the same model. `check_same_pieces` compares a
model with its trimmed or extended version.
"""

import os
import tempfile
from collections.abc import Iterable, Sequence

from convert.tokenizer import assert_same_ids, is_tie, write_tokenizer
from vocabulary import sentencepiece_model as spm
from vocabulary.check_results import VocabularyCheck


def check_equal_ids(path: str, texts: Sequence[str], extra_ids: int = 0) -> VocabularyCheck:
    """Check that seqio, in Python and in TensorFlow, and the Hugging Face tokenizer agree.

    `path` is a SentencePiece model or a run's folder, or a folder or hub name with Hugging Face
    files. Each text is compared plain and with sentinels between words.
    """
    import seqio
    from transformers import AutoTokenizer

    name = "equal ids in seqio and Hugging Face"
    texts = [*texts, *(_with_sentinels(text) for text in texts)]
    model_path = spm.find_model(path)
    try:
        vocabulary = seqio.SentencePieceVocabulary(model_path, extra_ids=extra_ids)
        with tempfile.TemporaryDirectory() as folder:
            if model_path != path and os.path.basename(model_path) == "spiece.model":
                folder = path
            else:
                write_tokenizer(model_path, folder, extra_ids=extra_ids)
            ties = assert_same_ids(vocabulary, AutoTokenizer.from_pretrained(folder), texts)
        ids = _assert_same_in_tensorflow(vocabulary, texts)
    except (ValueError, RuntimeError) as error:  # SentencePiece raises RuntimeError
        return VocabularyCheck(name, "fail", str(error))
    detail = f"{len(texts):,} texts, {ids:,} ids, half with sentinels"
    return VocabularyCheck(name, "ok", detail + (f"; {ties} texts tie" if ties else ""))


def check_same_pieces(
    old: spm.ModelProto, new: spm.ModelProto, sources: spm.Sources, texts: Iterable[str]
) -> VocabularyCheck:
    """Check that words whose pieces are all kept, and use no new piece, are tokenized as before.

    `sources` are the old ids of each new id, several for a new piece. Each word is checked once.
    """
    name = "kept pieces tokenize words as before"
    before, after = spm.processor(old), spm.processor(new)
    kept = {ids[0] for ids in sources if len(ids) == 1}
    words = {word for text in texts for word in text.split()}
    same = 0
    for word in sorted(words):
        wanted, new_ids = before.encode(word), after.encode(word)
        if not kept.issuperset(wanted) or any(len(sources[i]) > 1 for i in new_ids):
            continue
        found = [sources[i][0] for i in new_ids]
        if found != wanted and not is_tie(wanted, found, before.id_to_piece):
            return VocabularyCheck(name, "fail", f"{word[:80]!r} was {wanted} and is {found}")
        same += 1
    detail = f"{same:,} of {len(words):,}; the others use changed pieces"
    return VocabularyCheck(name, "ok", detail)


def _assert_same_in_tensorflow(vocabulary, texts: Sequence[str]) -> int:
    """Return the number of ids; raise ValueError if seqio's two encoders differ, ties aside."""
    names = vocabulary.tokenizer.id_to_piece
    total = 0
    for text in texts:
        python, graph = vocabulary.encode(text), vocabulary.encode_tf(text).numpy().tolist()
        if python != graph and not is_tie(python, graph, names):
            raise ValueError(f"seqio's TensorFlow ids differ from its Python ids for {text[:80]!r}")
        total += len(python)
    return total


def _with_sentinels(text: str) -> str:
    words = text.split()
    marked = []
    for start in range(0, len(words), 5):
        marked += [f"<extra_id_{start // 5 % spm.NUM_SENTINELS}>", *words[start : start + 5]]
    return " ".join(marked)
