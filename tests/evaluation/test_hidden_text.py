"""Hidden text is chosen in the text, and the same for all vocabularies."""

import dataclasses

import numpy as np
import pytest

from convert.tokenizer import TrainedVocabulary
from evaluation import hidden_text, text_encoder
from evaluation.hidden_text import HiddenText
from fakes.paths import ROOT

WORDS = ("Ana", "are", "mere", "și", "pere", ",", "dar", "nu", "are", "nuci", ".")
MODEL = str(ROOT / "data" / "ro_mini" / "ro_mini.model")
VOCABULARIES = (TrainedVocabulary(MODEL, 0), TrainedVocabulary("bytes", 100))


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=["pieces", "bytes"])
@pytest.mark.parametrize("spans", [((2, 3),), ((0, 2), (5, 8)), ((9, 11),), ((0, 11),)])
def test_input_and_target_hold_the_text_once(vocabulary, spans):
    encoder = text_encoder.of_vocabulary(vocabulary, "here")
    inputs, targets, ends = HiddenText(WORDS, spans).example(encoder)
    assert ends == (text_encoder.EOS, encoder.sentinels[len(spans)])
    assert inputs[-1] == text_encoder.EOS
    marks = encoder.sentinels[: len(spans)]
    assert [i for i in inputs if i in encoder.sentinels] == list(marks)
    assert [i for i in targets if i in encoder.sentinels] == list(marks)
    hidden = dict(zip(marks, _parts(targets, marks), strict=True))
    text = [piece for i in inputs[:-1] for piece in hidden.get(i, [i])]
    assert text == encoder.ids_of(" ".join(WORDS))


def _parts(targets, marks):
    starts = [targets.index(mark) for mark in marks]
    return [targets[a + 1 : b] for a, b in zip(starts, [*starts[1:], None], strict=True)]


def test_more_spans_than_sentinels_are_refused():
    encoder = text_encoder.of_vocabulary(VOCABULARIES[0], "here")
    few = dataclasses.replace(encoder, sentinels=encoder.sentinels[:2])
    assert HiddenText(WORDS, ((0, 1), (2, 3))).example(few).ends == (text_encoder.EOS,)
    with pytest.raises(ValueError, match="3 hidden spans and the vocabulary only 2 sentinels"):
        HiddenText(WORDS, ((0, 1), (2, 3), (4, 5))).example(few)


def test_the_published_byt5_ends_no_text_at_its_letters():
    """Its sentinels are ids of bytes, those of ă and of Cyrillic letters among them."""
    encoder = text_encoder.of_vocabulary(TrainedVocabulary("bytes", 0), "here")
    ends = HiddenText(("casă", "și", "masă"), ((1, 2),)).example(encoder).ends
    assert not {*ends} & {*encoder.ids_of("ă î ș Привет")}


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


def test_passages_are_cut_at_words():
    document = " ".join(f"word{i}" for i in range(200))
    passages = list(hidden_text.cut_passages([document, "too short", document], 3, max_chars=300))
    assert len(passages) == 3
    assert all(len(" ".join(words)) <= 300 for words in passages)
    assert " ".join(" ".join(words) for words in passages) in document
    few = list(hidden_text.cut_passages([document, document], 9, max_chars=300, per_document=2))
    assert few == [*passages[:2], *passages[:2]]
