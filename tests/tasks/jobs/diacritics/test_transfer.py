"""The letters of the input stay, whatever is decoded; and a decoding with its letters is kept."""

import random

import pytest

from tasks import vocabularies
from tasks.jobs.diacritics.letters import LETTERS, alphabet

RO = alphabet("ro")
TEXTS = ["Fața vine mâine, 5 € la Ștefan Ω…", "x", "", "ȘI ție îți țin 中", "TOATĂ ÎNVĂȚĂTURA"]
VOCABULARIES = {
    "pieces": lambda: vocabularies.sentencepiece(vocabularies.ro_mini_model),
    "bytes": vocabularies.byt5,
}


def forms_of(letters, letter):
    return letters.forms.get(letter, letter)


def corrupted(draw, text, letters):
    """A text with some letters dropped, repeated, replaced or in another form."""
    found = []
    for letter in text:
        other = draw.choice(forms_of(letters, letters.bare(letter)) + letters.bare(letter))
        found += draw.choice([[other]] * 6 + [[], [other, other], [draw.choice("aâzȘ �🙂\n")]])
    return "".join(found)


@pytest.mark.parametrize("language", LETTERS)
def test_the_bare_letters_are_those_of_the_input(language):
    draw, letters = random.Random(0), alphabet(language)
    any_letter = [*letters.bases, *"aeiostAEIOST .,7é"]
    drawn = ["".join(draw.choices(any_letter, k=draw.randrange(80))) for _ in range(20)]
    for spelled in (*TEXTS, *drawn):
        for text in (letters.bare(spelled), spelled):
            found = letters.transfer(corrupted(draw, spelled, letters), text)
            assert letters.bare(found) == letters.bare(text)
            kept = zip(found, text, strict=True)
            assert all(a == b for a, b in kept if b in letters.bases)


@pytest.mark.parametrize("language", LETTERS)
def test_a_decoding_of_the_same_letters_is_the_output(language):
    draw, letters = random.Random(0), alphabet(language)
    for _ in range(20):
        bare = letters.bare("".join(draw.choices([*letters.bases, *"aeiost ,7é"], k=60)))
        decoded = "".join(draw.choice(forms_of(letters, letter)) for letter in bare)
        assert letters.transfer(decoded, bare) == decoded


@pytest.mark.parametrize("kind", VOCABULARIES)
@pytest.mark.parametrize("text", TEXTS)
def test_what_a_vocabulary_can_spell_is_restored(kind, text):
    """A character that it cannot spell is the input's own."""
    vocabulary = VOCABULARIES[kind]()
    decoded = vocabulary.decode(vocabulary.encode(text))
    assert RO.transfer(decoded, RO.bare(text)) == text


@pytest.mark.parametrize(
    ("text", "decoded", "wanted"),
    [
        ("Fata vine maine", "Fața", "Fața vine maine"),  # cut
        ("Fata vine maine", "", "Fata vine maine"),
        ("Fata vine maine", "fața vina  mâine mâine!", "Fața vine mâine"),
        ("în țară", "in tara", "în țară"),  # diacritics that are there stay
        ("SI ASA", "și așa", "SI ASA"),
        ("SI ASA", "ȘI AȘA", "ȘI AȘA"),
        ("sunt", "sînt", "sunt"),
        ("si", "şi", "si"),  # a cedilla is a letter of other languages
    ],
)
def test_examples(text, decoded, wanted):
    assert RO.transfer(decoded, text) == wanted
