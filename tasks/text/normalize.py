"""Text normalization before tokenization.

    normalize("Bunǎ  ziua,\\tţară")          -> "Bunǎ ziua, ţară"
    normalize("ţară, s\\u0326i", cedilla=True) -> "țară, și"

In this order: Unicode NFC (a letter and its combining sign become one letter); Romanian cedilla
letters to comma-below ones (old fonts had only the former; Turkish needs them, hence the switch);
runs of white space to one space, bare line ends, at most one empty line, no space at either end.
`normalize` is for strings (training a vocabulary), `preprocess` for a tf.data pipeline.
"""

import re
import unicodedata
from collections.abc import Mapping

_COMMA_BELOW = dict(zip("şţŞŢ", "șțȘȚ", strict=True))

# White space other than line feeds.
_BLANKS = re.compile("[\t\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u0085]+")
_REPLACEMENT = "\ufffd".encode()
_EMPTY_LINES = re.compile("\n{3,}")
_DOCUMENTS_A_CALL = 64


def normalize(text: str, cedilla: bool = False, nfc: bool = True, whitespace: bool = True) -> str:
    """Return `text` in the spelling of the vocabulary.

    `cedilla` writes Romanian ş ţ Ş Ţ with comma below, `nfc` composes letters and combining signs,
    `whitespace` leaves one space of a run of white space, at most one empty line, none at the ends.
    """
    if nfc:
        text = unicodedata.normalize("NFC", text)
    if cedilla:
        text = replace_letters(text, _COMMA_BELOW)
    if whitespace:
        if "\n" not in text:
            return _tidy(text)
        text = "\n".join(map(_tidy, text.split("\n"))).strip("\n")
        text = _EMPTY_LINES.sub("\n\n", text)
    return text


def _tidy(line: str) -> str:
    """Return a line with one space for each run of white space, and none at either end."""
    if line.isprintable() and "  " not in line and line[:1] != " " and line[-1:] != " ":
        return line  # the quick way, of most lines
    return _BLANKS.sub(" ", line).strip(" ")


def replace_letters(text: str, replacements: Mapping[str, str]) -> str:
    """Return `text` with some letters replaced by others, which are not replaced themselves.

    Most texts have few of them, so this is much faster than str.translate, which looks up every
    character.
    """
    for letter, replacement in replacements.items():
        text = text.replace(letter, replacement)
    return text


def is_letter(character: str) -> bool:
    """Return whether a character is a letter, or a mark such as the vowel signs of Hindi.

    `str.isalpha` and `\\w` of `re` leave out marks, without which words of Hindi are consonants.
    """
    return character.isalpha() or unicodedata.category(character).startswith("M")


def remove_spaces(text: str) -> str:
    """Return `text` without white space, as the "no spaces" tasks train on it."""
    return "".join(text.split())


def preprocess(
    dataset,
    key: str = "text",
    cedilla: bool = False,
    nfc: bool = True,
    whitespace: bool = True,
    spaces: bool = True,
    reading=None,
):
    """Normalize feature `key`, strings; without `spaces` remove all white space afterwards.

    What comes in is counted for `reading`, a `common.source.Reading`.
    """
    # Imported here so that training a vocabulary needs no TensorFlow.
    import numpy as np
    import tensorflow as tf

    from tasks.corpus import slices, tf_callbacks

    def count(texts: list[bytes]) -> None:
        """Count what comes in; see `tasks.corpus.records.counts.TEXTS`."""
        if reading and reading.counter:
            replaced = sum(text.count(_REPLACEMENT) for text in texts)
            counts = {"text_bytes": sum(map(len, texts)), "replaced_characters": replaced}
            reading.counter.add(counts, slices.full(reading.split))

    def normalize_one(text: bytes) -> bytes:
        normalized = normalize(text.decode("utf-8", "replace"), cedilla, nfc, whitespace)
        return (normalized if spaces else remove_spaces(normalized)).encode("utf-8", "replace")

    def normalize_all(texts):
        out = np.empty(texts.shape, object)
        out[:] = [normalize_one(text) for text in texts]
        count(out.tolist())
        return out

    def fn(example):
        texts = tf.TensorSpec([None], tf.string)
        return {**example, key: tf_callbacks.call(normalize_all, texts, example[key])}

    # In batches, because a call into Python costs more than normalizing one document; not in
    # parallel, because of Python's lock.
    return dataset.batch(_DOCUMENTS_A_CALL).map(fn, synchronous=True).unbatch()
