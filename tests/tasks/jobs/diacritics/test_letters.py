"""Only listed letters change, one for one, and their forms are the inverse of stripping."""

import pytest

from tasks.jobs.diacritics.letters import LETTERS, alphabet


@pytest.mark.parametrize(
    ("language", "text", "bare"),
    [
        (
            *("ro", "Ția, șapte „ăl” îl ÂNĂ: 5 € — café, Brâncuși… naïve Łódź ŞŢ"),
            "Tia, sapte „al” il ANA: 5 € — café, Brancusi… naïve Łódź ŞŢ",
        ),
        ("pl", "Zażółć gęślą jaźń Łódź", "Zazolc gesla jazn Lodz"),
        ("vi", "Tiếng Việt, Đà Nẵng", "Tieng Viet, Da Nang"),
        ("tr", "Iğdır İzmir ılık", "Igdir Izmir ilik"),
    ],
)
def test_nothing_but_the_languages_own_letters_is_rewritten(language, text, bare):
    assert alphabet(language).bare(text) == bare


@pytest.mark.parametrize("language", LETTERS)
def test_forms_are_the_inverse_of_stripping(language):
    letters = alphabet(language)
    assert letters.bases
    for letter, base in letters.bases.items():
        assert letter != base
        assert letters.bare(letter) == base
        assert letter in letters.forms[base]
        assert letter not in letters.forms
    for base, forms in letters.forms.items():
        assert forms[0] == base
        assert letters.bare(base) == base


def test_turkish_dots_are_its_own():
    assert [alphabet("tr").forms[letter] for letter in "Ii"] == ["Iİ", "iı"]
