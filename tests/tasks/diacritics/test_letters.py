"""Only listed letters change, one for one, and their forms are the inverse of stripping."""

import pytest

from tasks.diacritics.letters import LETTERS, alphabet


def test_nothing_but_the_languages_own_letters_is_rewritten():
    text = "Ția, șapte „ăl” îl ÂNĂ: 5 € — café, Brâncuși… naïve Łódź ŞŢ"
    assert (
        alphabet("ro").bare(text) == "Tia, sapte „al” il ANA: 5 € — café, Brancusi… naïve Łódź ŞŢ"
    )


@pytest.mark.parametrize("language", LETTERS)
def test_forms_are_the_inverse_of_stripping(language):
    letters = alphabet(language)
    assert letters.bases
    for letter, base in letters.bases.items():
        assert letter != base
        assert letters.bare(letter) == base
        assert letter in letters.forms[base]
        assert letters.forms[letter] == letter  # what has a diacritic keeps it
    for base in letters.ambiguous:
        assert letters.forms[base][0] == base
        assert letters.bare(base) == base
    assert letters.forms["?"] == "?"


def test_turkish_dots_are_its_own():
    assert alphabet("tr").bare("Iğdır İzmir ılık") == "Igdir Izmir ilik"
    assert alphabet("tr").forms["I"] == "Iİ"
    assert alphabet("tr").forms["i"] == "iı"


def test_polish_and_vietnamese_are_stripped_too():
    assert alphabet("pl").bare("Zażółć gęślą jaźń Łódź") == "Zazolc gesla jazn Lodz"
    assert alphabet("vi").bare("Tiếng Việt, Đà Nẵng") == "Tieng Viet, Da Nang"


def test_an_unknown_language_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match=r"language is 'xx'.*cs, hu, pl, ro, tr, vi"):
        alphabet("xx")
