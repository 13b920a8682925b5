"""One spelling for one letter: what is done to a text before it meets a vocabulary.

    normalize("Bunǎ  ziua,\\tţară")          -> "Bunǎ ziua, ţară"
    normalize("ţară, s\\u0326i", cedilla=True) -> "țară, și"

In this order: Unicode NFC (a letter and its combining sign become one letter), Romanian cedilla
letters to comma-below ones (old fonts had only the former; Turkish means them, hence the switch),
runs of blanks to one space, line ends bare, at most one empty line, nothing at either end.
`normalize` is for strings (training a vocabulary), `preprocess` for a task's tf.data column.
"""

import re
import unicodedata

CEDILLA = {"ş": "ș", "ţ": "ț", "Ş": "Ș", "Ţ": "Ț"}

# Blanks that are no line ends.
_BLANKS = "\t\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u0085"
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (f"[{_BLANKS}]+", " "),
        (" ?\n ?", "\n"),
        ("\n{3,}", "\n\n"),
        (r"\A[ \n]+|[ \n]+\Z", ""),
    )
)
_DOCUMENTS_A_CALL = 64


def normalize(text: str, cedilla: bool = False, nfc: bool = True, whitespace: bool = True) -> str:
    """Returns `text` in the spelling that the vocabulary knows.

    Args:
      text: any Unicode string.
      cedilla: write Romanian ş ţ Ş Ţ with comma below.
      nfc: compose letters and combining signs.
      whitespace: one space for a run of blanks, at most one empty line, none at the ends.
    """
    if nfc:
        text = unicodedata.normalize("NFC", text)
    if cedilla:
        for old, new in CEDILLA.items():
            text = text.replace(old, new)
    if whitespace and not _is_tidy(text):
        for pattern, replacement in _RULES:
            text = pattern.sub(replacement, text)
    return text


def _is_tidy(text: str) -> bool:
    """Says of most one-line texts, at a glance, that there is no blank to change in them."""
    return text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " "


def remove_spaces(text: str) -> str:
    """Returns `text` without any white space, as the "no spaces" variants train on it."""
    return "".join(text.split())


def preprocess(
    dataset,
    key: str = "text",
    cedilla: bool = False,
    nfc: bool = True,
    whitespace: bool = True,
    spaces: bool = True,
):
    """Normalizes feature `key` (a string scalar) of a tf.data.Dataset.

    `spaces=False` takes every blank out afterwards. Other features pass unchanged.
    """
    import numpy as np
    import tensorflow as tf

    from tasks.streaming import tf_callbacks
    from tasks.text import inline_map

    def each(text: bytes) -> bytes:
        text = normalize(text.decode("utf-8", "replace"), cedilla, nfc, whitespace)
        return (text if spaces else remove_spaces(text)).encode("utf-8", "replace")

    nothing = np.array([], object)

    def all_of(texts):
        out = np.empty(texts.shape, object)
        out[:] = [each(text) for text in texts]
        return out

    call = tf_callbacks.guard(all_of, nothing)

    def fn(example):
        texts = tf.numpy_function(call, [example[key]], tf.string, stateful=False)
        return {**example, key: tf.ensure_shape(texts, [None])}

    # Batches, because a call into Python costs more than the work on one document; and one after
    # the other, since Python does no two at a time.
    return inline_map.map_each(dataset.batch(_DOCUMENTS_A_CALL), fn).unbatch()
