"""One spelling for one letter, the same in Python and in a tf.data column."""

import random
import re

import pytest
import tensorflow as tf

from tasks.text import normalize

TEXTS = [
    "",
    " \t\n ",
    "Bună ziua, ţară şi ŞCOALĂ",
    "s\u0326i t\u0327ara\u0306 Â i\u0302",
    "două\u00a0\u2003 blancuri\t\tși\ufeff",
    "rând\r\n\r\n\r\n\r\nrând \n rând\r\n",
    "fine\u2028ligne\u0085fin",
]


def _random_texts(n=200):
    rng = random.Random(0)
    letters = "aăsș ş\u0326\u0302\t\n\r\u00a0\u2009\u3000éÅ한국\u1112\u1161"
    return ["".join(rng.choice(letters) for _ in range(60)) for _ in range(n)]


@pytest.mark.parametrize("cedilla", [True, False])
@pytest.mark.parametrize("whitespace", [True, False])
def test_the_pipeline_equals_the_function(cedilla, whitespace):
    texts = TEXTS + _random_texts()
    dataset = tf.data.Dataset.from_tensor_slices({"text": texts, "id": range(len(texts))})
    dataset = normalize.preprocess(dataset, cedilla=cedilla, whitespace=whitespace)
    found = list(dataset.as_numpy_iterator())
    expected = [normalize.normalize(t, cedilla, True, whitespace) for t in texts]
    assert [x["text"].decode() for x in found] == expected
    assert [x["id"] for x in found] == list(range(len(texts)))


def test_white_space_follows_four_rules():
    blank = "[\t\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u0085]+"
    rules = [(blank, " "), (" ?\n ?", "\n"), ("\n{3,}", "\n\n"), (r"\A[ \n]+|[ \n]+\Z", "")]
    for text in TEXTS + _random_texts() + [t.replace("a", "\n") for t in _random_texts()]:
        expected = text
        for pattern, replacement in rules:
            expected = re.sub(pattern, replacement, expected)
        assert normalize.normalize(text, nfc=False) == expected


def test_twice_is_once():
    for text in TEXTS + _random_texts():
        once = normalize.normalize(text, cedilla=True)
        assert normalize.normalize(once, cedilla=True) == once


def test_cedillas_become_commas_only_where_asked():
    assert normalize.normalize("ţară şi Ţ Ş", cedilla=True) == "țară și Ț Ș"
    assert normalize.normalize("şeker") == "şeker"
    # decomposed as well: s and t with a combining cedilla compose to the cedilla letters
    assert normalize.normalize("s\u0327i", cedilla=True) == "și"
    assert normalize.normalize("a\u0306") == "ă"


def test_no_spaces_variant_has_none():
    dataset = tf.data.Dataset.from_tensors({"text": "Ana are\u00a0mere.\n\nȘi nuci.", "id": 3})
    (example,) = normalize.preprocess(dataset, spaces=False).as_numpy_iterator()
    assert example["text"].decode() == "Anaaremere.Șinuci."
    assert example["id"] == 3
    assert normalize.remove_spaces("Ana are mere.") == "Anaaremere."
