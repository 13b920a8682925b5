"""Words of any script."""

import pytest

from tasks.text.words import unit, words


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Ana are mere.", ["Ana", "are", "mere."]),
        ("हिन्दी में 한국어 የአማርኛ", ["हिन्दी", "में", "한국어", "የአማርኛ"]),
        ("今天 iPhone很好。", ["今", "天", "iPhone", "很", "好", "。"]),
        ("ดีมาก", ["ดี", "ม", "า", "ก"]),
        ("မြန်မာ", ["မြ", "န်", "မာ"]),
        ("བོད་སྐད།", ["བོ", "ད", "་", "སྐ", "ད", "།"]),
        (" \n", []),
    ],
)
def test_words_are_what_blanks_separate_or_characters_with_their_marks(text, parts):
    assert words(text) == parts
    assert "".join(words(text)) == "".join(text.split()), "nothing is lost"


def test_the_unit_is_that_of_most_words():
    assert unit(["Ana are 好", "mere"]) == "word"
    assert unit(["Ana", "今天天气很好"]) == "character"
    assert unit([]) == "word"
