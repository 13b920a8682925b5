"""Tokenization of documents, in batches and without Python.

seqio's own `tokenize` makes one small call for each document. Here batches of documents are
tokenized by tensorflow_text's FastSentencepieceTokenizer if it agrees with SentencePiece on a
sample of the vocabulary's own pieces, else by the vocabulary's `encode_tf`. (If two ways to cut a
word have the same score, as in long runs of dots, the two may choose differently.)
"""

import functools
import re
from collections.abc import Callable, Mapping

import numpy as np
import sentencepiece
import seqio
import tensorflow as tf
from absl import logging

from common.errors import UserError, first_line
from common.source import DEFAULT_READING, Reading
from tasks import vocabularies
from tasks.corpus import slices, tf_callbacks
from tasks.corpus.records.counts import SPELLED
from tasks.text.token_chunks import unbatch
from tasks.tokenizer_vocabulary import TokenizerVocabulary

DOCUMENTS_A_CALL = 64


def tokenize(
    dataset: tf.data.Dataset,
    output_features: dict[str, seqio.Feature],
    key: str = "text",
    reading: Reading = DEFAULT_READING,
) -> tf.data.Dataset:
    """Replace the text `key` of every document by its ids, without EOS, under "targets".

    Text that spells a sentinel ("<extra_id_0>") becomes the unknown id, so that a sentinel in the
    inputs is always a mask. A vocabulary without sentinels is accepted. Other features are dropped.

    Raises:
      UserError: the vocabulary has sentinels, but no unknown id.
    """
    vocabulary = output_features["targets"].vocabulary
    encode = batch_encoder(vocabulary)
    allowed = np.arange(vocabulary.vocab_size, dtype=np.int32)
    if sentinels := vocabularies.sentinels_if_any(vocabulary):
        if vocabulary.unk_id is None:
            raise UserError(
                "the vocabulary",
                vocabularies.name_of(vocabulary),
                "which has sentinels but no unknown token, that a text which spells one becomes",
                "name its unk_token in the tokenizer_config.json beside it",
            )
        allowed[list(sentinels)] = vocabulary.unk_id

    count = count_pieces(vocabulary, reading)

    def fn(texts):
        ids = encode(texts)
        flat = tf.gather(allowed, ids.flat_values)
        return {"targets": ids.with_flat_values(count(flat, texts))}

    batches = dataset.map(lambda x: x[key], synchronous=True).batch(DOCUMENTS_A_CALL)
    return unbatch(batches.map(fn, synchronous=True))


def tokenize_examples(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    reading: Reading = DEFAULT_READING,
) -> tf.data.Dataset:
    """Replace the texts of every example by their ids, as `seqio.preprocessors.tokenize` does.

    Each text is kept as `<name>_pretokenized`, unless the example has one of its own. Examples of
    string scalars are tokenized many at a time, by the vocabulary's `encode_tf`. Others, with
    features of other shapes, are left to seqio.
    """
    if any(spec.shape.rank != 0 for spec in dataset.element_spec.values()):
        return seqio.preprocessors.tokenize(dataset, output_features)

    def encoded(name: str, texts: tf.Tensor) -> tf.RaggedTensor:
        vocabulary = output_features[name].vocabulary
        is_bytes = isinstance(vocabulary, seqio.ByteVocabulary)  # its `encode_tf` takes one text
        ids = (batch_encoder(vocabulary) if is_bytes else vocabulary.encode_tf)(texts)
        return ids.with_flat_values(count_pieces(vocabulary, reading)(ids.flat_values, texts))

    def fn(batch):
        texts = {k: v for k, v in batch.items() if k in output_features}
        pretokenized = {f"{name}_pretokenized": text for name, text in texts.items()}
        return pretokenized | batch | {name: encoded(name, text) for name, text in texts.items()}

    return unbatch(dataset.batch(DOCUMENTS_A_CALL).map(fn, synchronous=True))


def count_pieces(
    vocabulary: seqio.Vocabulary, reading: Reading
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return a function that counts ids, int32 [n], of texts, string [k], and returns the ids.

    It counts for the reading, in less than a hundredth of the time that tokenization takes.
    """
    if reading.counter is None:
        return lambda ids, texts: ids
    split, counter = slices.full(reading.split), reading.counter
    unk_id = -1 if vocabulary.unk_id is None else vocabulary.unk_id

    special = "|".join(map(re.escape, vocabularies.special_names(vocabulary)))

    def add(pieces, unknown, spelled):
        counts = {"pieces": pieces, "unknown_pieces": unknown, SPELLED: spelled}
        counter.add({name: int(n) for name, n in counts.items()}, split)
        return np.int64(0)

    add = tf_callbacks.guard(add, np.int64(0))

    total = lambda mask: tf.reduce_sum(tf.cast(mask, tf.int64))

    def count(ids, texts):
        # A search, several times as fast as a match of entire texts.
        without = tf.strings.regex_replace(texts, special, "", replace_global=False)
        spelled = total(tf.not_equal(texts, without))
        counts = [tf.size(ids), total(tf.equal(ids, unk_id)), spelled]
        counted = tf.numpy_function(add, counts, tf.int64, stateful=False)
        with tf.control_dependencies([counted]):
            return tf.identity(ids)

    return count


def batch_encoder(vocabulary: seqio.Vocabulary):
    """Return a function from string [n] to ragged int32 [n, None]."""
    if isinstance(vocabulary, seqio.ByteVocabulary):
        first = vocabulary.vocab_size - vocabulary.extra_ids - 256

        def encode_bytes(texts):
            letters = tf.strings.bytes_split(texts)
            ids = tf.cast(tf.io.decode_raw(letters.flat_values, tf.uint8)[:, 0], tf.int32)
            return letters.with_flat_values(ids + first)

        return encode_bytes
    if isinstance(vocabulary, TokenizerVocabulary):
        return vocabulary.encode_batch_tf
    return _fast_encoder(vocabulary.sp_model) or vocabulary.encode_tf


@functools.cache  # all pipelines of the process share a model's tables
def _fast_encoder(model: bytes) -> Callable | None:
    """Return tensorflow_text's tokenizer, or None if SentencePiece disagrees."""
    import tensorflow_text as tf_text

    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model)
    sample = _sample(tokenizer)
    try:
        with tf.init_scope():  # not in the graph of the pipeline that needs it first
            fast = tf_text.FastSentencepieceTokenizer(model=model)
            if fast.tokenize(sample).to_list() == tokenizer.EncodeAsIds(sample):
                return fast.tokenize
        reason = "gives other ids"
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = first_line(error)
    logging.info("the fast tokenizer %s for this vocabulary; using the plain one", reason)
    return None


def _sample(tokenizer) -> list[str]:
    """Return texts with many pieces, spaces, unknown letters, and letters encoded as bytes."""
    n = tokenizer.GetPieceSize()
    step = max(n // 2000, 1)
    pieces = [tokenizer.IdToPiece(i) for i in range(3, n, step)]
    text = "".join(piece for piece in pieces if not piece.startswith("<")).replace("▁", " ")
    odd = ["", " ", "  două  blancuri ", "한국어 ☃ 𝔘 \u0301", "a\nb\tc"]
    odd += ["a\u200cb", "12.345,67 — „da“"]
    return [text[i : i + 300] for i in range(0, len(text), 300)] + odd
