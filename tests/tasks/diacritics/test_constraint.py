"""Whatever a model wants, only diacritics are added; and all true spellings stay possible."""

import random

import pytest

from tasks import vocabularies
from tasks.diacritics import constraint
from tasks.diacritics.letters import alphabet

TEXTS = ["Fata vine maine, 5 € la Ștefan Ω…", "x", "", "SI tie iti ţin 中"]
RO = alphabet("ro")
VOCABULARIES = {
    "pieces": lambda: vocabularies.sentencepiece(vocabularies.ro_mini_model),
    "bytes": vocabularies.byt5,
}


@pytest.fixture(scope="module", params=VOCABULARIES)
def vocabulary(request):
    return VOCABULARIES[request.param]()


@pytest.mark.parametrize("seed", range(5))
def test_any_choice_ends_in_the_same_letters(vocabulary, seed):
    draw = random.Random(seed)
    allowed, finish = constraint.DiacriticsConstraint(vocabulary)(TEXTS)
    for row, text in enumerate(TEXTS):
        ids = []
        while choices := allowed(row, ids):
            ids.append(draw.choice(choices))
        assert ids[-1] == vocabulary.eos_id
        assert ids.count(vocabulary.eos_id) == 1
        out = finish(row, ids)
        assert len(out) == len(text)
        assert RO.bare(out) == RO.bare(text)
        assert all(new == old for new, old in zip(out, text, strict=True) if old in RO.bases)


@pytest.mark.parametrize("text", ["Fața vine mâine.", "ȘTIINȚĂ și țânțari", "fara nimic"])
def test_the_true_text_is_always_possible(vocabulary, text):
    allowed, finish = constraint.DiacriticsConstraint(vocabulary)([RO.bare(text)])
    ids = [*vocabulary.encode(text), vocabulary.eos_id]
    for n, wanted in enumerate(ids):
        assert wanted in allowed(0, ids[:n])
    assert finish(0, ids) == text


def test_a_truncated_output_ends_as_the_input_does(vocabulary):
    _, finish = constraint.DiacriticsConstraint(vocabulary)(["Fata vine maine"])
    assert finish(0, vocabulary.encode("Fața")) == "Fața vine maine"
    assert finish(0, []) == "Fata vine maine"


def test_sentinels_are_never_written():
    vocabulary = VOCABULARIES["pieces"]()
    sentinels = set(vocabularies.sentinels(vocabulary))
    allowed, _ = constraint.DiacriticsConstraint(vocabulary)(["<extra_id_0> da"])
    ids = []
    while choices := allowed(0, ids):
        assert not sentinels & set(choices)
        ids.append(choices[0])


def spellings(vocabulary, text, words):
    """All texts that are found when every choice is tried in turn."""
    allowed, finish = constraint.DiacriticsConstraint(vocabulary, "ro", words)([text])
    open_, found = [[]], set()
    while open_:
        ids = open_.pop()
        choices = allowed(0, ids)
        found |= set() if choices else {finish(0, ids)}
        open_ += [[*ids, i] for i in choices]
    return found


@pytest.mark.parametrize(
    ("text", "words", "wanted"),
    [
        ("fata", ["fată", "fața"], {"fată", "fața"}),
        ("FATA", ["Fată", "fața"], {"FATĂ", "FAȚA"}),
        ("sa, sa", ["să"], {"să, să"}),
        ("e-i", ["vine"], {"e-i", "e-î"}),  # words that are not listed are free
        ("în", ["in"], {"în"}),  # diacritics that are there stay
    ],
)
def test_known_words_are_the_only_spellings(vocabulary, text, words, wanted):
    assert spellings(vocabulary, text, words) == wanted
