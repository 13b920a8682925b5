"""One spelling for one letter: what is done to a text before it meets a vocabulary.

    normalize("Bunǎ  ziua,\\tţară")          -> "Bunǎ ziua, ţară"
    normalize("ţară, s\\u0326i", cedilla=True) -> "țară, și"

In this order: Unicode NFC (a letter and its combining sign become one letter), Romanian cedilla
letters to comma-below ones (old fonts had only the former; Turkish means them, hence the switch),
runs of blanks to one space, line ends bare, at most one empty line, nothing at either end.
`normalize` is for Python strings (training a vocabulary), `preprocess` for a task's tf.data
column; both give the same text.
"""

import re
import unicodedata

CEDILLA = {"ş": "ș", "ţ": "ț", "Ş": "Ș", "Ţ": "Ț"}

# Blanks that are no line ends, spelled out because Python and RE2 disagree about \s.
_BLANKS = "\t\v\f\r \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_RULES = (
    (f"[{_BLANKS}\u2028\u2029\u0085]+", " "),
    (" ?\n ?", "\n"),
    ("\n{3,}", "\n\n"),
    (r"\A[ \n]+|[ \n]+\z", ""),
)
_PYTHON_RULES = tuple((re.compile(p.replace(r"\z", r"\Z")), r) for p, r in _RULES)


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
    if whitespace:
        for pattern, replacement in _PYTHON_RULES:
            text = pattern.sub(replacement, text)
    return text


def normalize_tf(text, cedilla: bool = False, nfc: bool = True, whitespace: bool = True):
    """`normalize` for a string tensor of any shape."""
    import tensorflow as tf
    import tensorflow_text as tf_text

    if nfc:
        text = tf_text.normalize_utf8(text, "NFC")
    if cedilla:
        for old, new in CEDILLA.items():
            text = tf.strings.regex_replace(text, old, new)
    if whitespace:
        for pattern, replacement in _RULES:
            text = tf.strings.regex_replace(text, pattern, replacement)
    return text


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
    """Normalizes feature `key` (string, any shape) of a tf.data.Dataset.

    `spaces=False` takes every blank out afterwards. Other features pass unchanged.
    """
    import tensorflow as tf

    def fn(example):
        text = normalize_tf(example[key], cedilla, nfc, whitespace)
        if not spaces:
            text = tf.strings.regex_replace(text, f"[{_BLANKS}\n\u2028\u2029\u0085]+", "")
        return {**example, key: text}

    return dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)
