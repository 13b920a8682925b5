"""Hidden text is chosen in the text, and the same for all vocabularies."""

import numpy as np
import pytest

from evaluation import hidden_text
from evaluation.hidden_text import HiddenText

WORDS = ("Ana", "are", "mere", "și", "pere", ",", "dar", "nu", "are", "nuci", ".")


def test_bytes_are_those_of_the_hidden_words():
    text = HiddenText(WORDS, ((0, 2), (3, 4)))
    assert text.hidden == ["Ana are", "și"]
    assert text.num_bytes == 7 + 3


@pytest.mark.parametrize("length", [20, 33, 150, 400])
def test_spans_hide_15_percent_of_the_words(length):
    words = tuple(f"w{i}" for i in range(length))
    lengths, starts = [], []
    for seed in range(400):
        spans = hidden_text.hide_spans(words, np.random.default_rng(seed)).spans
        edges = [edge for span in spans for edge in span]
        assert edges == sorted(set(edges))  # no span is empty or touches another
        assert 0 < edges[0] < edges[-1] < length
        hidden = sum(b - a for a, b in spans)
        assert hidden == round(0.15 * length)
        lengths += [b - a for a, b in spans]
        starts.append(edges[0])
    assert 2 <= np.mean(lengths) <= 4.5
    assert len(set(starts)) > 3


def test_hidden_words_are_words_of_letters():
    found = list(hidden_text.hide_words(WORDS, np.random.default_rng(0), count=20))
    assert sorted(text.hidden[0] for text in found) == sorted(w for w in WORDS if w.isalpha())
    hindi = ("हिन्दी", "में", "और", "२०", "।")
    found = hidden_text.hide_words(hindi, np.random.default_rng(0), count=20)
    assert {text.hidden[0] for text in found} == {"हिन्दी", "में", "और"}
    thai = ("วันนี้อากาศดีมาก", "และ", "iPhone")
    (found,) = hidden_text.hide_words(thai, np.random.default_rng(0), count=20)
    assert found.hidden == ["iPhone"]


def test_passages_are_cut_at_words():
    document = " ".join(f"word{i}" for i in range(200))
    passages = list(hidden_text.cut_passages([document, "too short", document], 3, max_chars=300))
    assert len(passages) == 3
    assert all(len(" ".join(words)) <= 300 for words in passages)
    assert " ".join(" ".join(words) for words in passages) in document
    few = list(hidden_text.cut_passages([document, document], 9, max_chars=300, per_document=2))
    assert few == [*passages[:2], *passages[:2]]
