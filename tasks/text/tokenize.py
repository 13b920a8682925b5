"""From documents to token ids, in batches and off the interpreter.

    ids = tokenize(dataset, output_features)      # {"text": string} -> {"targets": int32 [n]}

seqio's own `tokenize` makes one small call a document. Here documents are tokenized in batches by
tensorflow_text's FastSentencepieceTokenizer where it gives the ids that SentencePiece gives on a
sample of the vocabulary's own pieces, else by the vocabulary's `encode_tf`. (Where two ways to cut
a word score the same, as in long runs of dots, the two may choose differently.)
"""

import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from tasks import vocabularies
from tasks.text import inline_map
from tasks.text.token_chunks import unbatch

DOCUMENTS_A_CALL = 64
_FAST: dict[bytes, object] = {}  # fast tokenizers by their model's bytes


def tokenize(
    dataset: tf.data.Dataset,
    output_features: dict[str, seqio.Feature],
    key: str = "text",
) -> tf.data.Dataset:
    """Replaces the text `key` of every document by its ids, without EOS, under "targets".

    Text that spells a sentinel ("<extra_id_0>") becomes the unknown id, so that sentinels in the
    inputs are always masks. A vocabulary without sentinels will do.

    Args:
      dataset: elements with `key`, a string scalar; other features are dropped.
      output_features: the task's; "targets" has the vocabulary.
      key: the feature to read.
    """
    vocabulary = output_features["targets"].vocabulary
    encode = batch_encoder(vocabulary)
    allowed = np.arange(vocabulary.vocab_size, dtype=np.int32)
    allowed[list(vocabularies.sentinels_if_any(vocabulary))] = vocabulary.unk_id

    def fn(texts):
        ids = encode(texts)
        return {"targets": ids.with_flat_values(tf.gather(allowed, ids.flat_values))}

    batches = inline_map.map_each(dataset, lambda x: x[key]).batch(DOCUMENTS_A_CALL)
    return unbatch(batches.map(fn, num_parallel_calls=tf.data.AUTOTUNE))


def batch_encoder(vocabulary: seqio.Vocabulary):
    """Returns a function from string [n] to ragged int32 [n, None]."""
    if isinstance(vocabulary, seqio.ByteVocabulary):
        return lambda texts: (
            tf.cast(
                tf.strings.bytes_split(texts).with_flat_values(
                    tf.io.decode_raw(tf.strings.bytes_split(texts).flat_values, tf.uint8)[:, 0]
                ),
                tf.int32,
            )
            + (vocabulary.vocab_size - vocabulary.extra_ids - 256)
        )
    fast = _fast_tokenizer(vocabulary)
    if fast is not None:
        return fast.tokenize
    return vocabulary.encode_tf


def _fast_tokenizer(vocabulary: seqio.SentencePieceVocabulary):
    """As `_agreeing_tokenizer`, one for all pipelines: the processor's cache holds no more."""
    model = vocabulary.sp_model
    if model not in _FAST:
        _FAST[model] = _agreeing_tokenizer(vocabulary)
    return _FAST[model]


def _agreeing_tokenizer(vocabulary: seqio.SentencePieceVocabulary):
    """Returns tensorflow_text's fast tokenizer if it agrees with SentencePiece, else None."""
    import tensorflow_text as tf_text

    sample = _sample(vocabulary.tokenizer)
    expected = vocabulary.tokenizer.EncodeAsIds(sample)
    try:
        fast = tf_text.FastSentencepieceTokenizer(model=vocabulary.sp_model)
        if fast.tokenize(sample).to_list() == expected:
            return fast
        reason = "gives other ids"
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
    logging.info("the fast tokenizer %s for this vocabulary; using the plain one", reason)
    return None


def _sample(tokenizer) -> list[str]:
    """Texts that meet many pieces, blanks, unknown letters, and letters given as bytes."""
    n = tokenizer.GetPieceSize()
    step = max(n // 2000, 1)
    pieces = [tokenizer.IdToPiece(i) for i in range(3, n, step)]
    text = "".join(p for p in pieces if not p.startswith("<")).replace("▁", " ")
    odd = ["", " ", "  două  blancuri ", "한국어 ☃ 𝔘 \u0301", "a\nb\tc", "12.345,67 — „da“"]
    return [text[i : i + 300] for i in range(0, len(text), 300)] + odd
