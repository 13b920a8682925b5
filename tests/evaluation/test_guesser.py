"""Hidden text becomes ids that hold it once."""

import dataclasses

import pytest

from convert.tokenizer import TrainedVocabulary
from evaluation import text_encoder
from evaluation.guesser import span_examples
from evaluation.hidden_text import HiddenText
from fakes.paths import ROOT
from fakes.refuses import refuses

WORDS = ("Ana", "are", "mere", "și", "pere", ",", "dar", "nu", "are", "nuci", ".")
MODEL = str(ROOT / "data" / "ro_mini" / "ro_mini.model")
VOCABULARIES = (TrainedVocabulary(MODEL, 0), TrainedVocabulary("bytes", 100))


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=["pieces", "bytes"])
@pytest.mark.parametrize("spans", [((2, 3),), ((0, 2), (5, 8)), ((9, 11),), ((0, 11),)])
def test_input_and_target_hold_the_text_once(vocabulary, spans):
    encoder = text_encoder.vocabulary_encoder(vocabulary, "here")
    (example,) = span_examples(HiddenText(WORDS, spans), encoder)
    inputs, targets = example.inputs, example.targets
    assert example.ends == (encoder.eos_id, encoder.sentinels[len(spans)])
    assert example.stops == {*example.ends} | encoder.word_starts
    assert inputs[-1] == encoder.eos_id
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
    encoder = text_encoder.vocabulary_encoder(VOCABULARIES[0], "here")
    few = dataclasses.replace(encoder, sentinels=encoder.sentinels[:2])
    (example,) = span_examples(HiddenText(WORDS, ((0, 1), (2, 3))), few)
    assert example.ends == (encoder.eos_id,)
    with refuses():
        span_examples(HiddenText(WORDS, ((0, 1), (2, 3), (4, 5))), few)


def test_the_published_byt5_ends_no_text_at_its_letters():
    """Its sentinels are ids of bytes, those of ă and of Cyrillic letters among them."""
    encoder = text_encoder.vocabulary_encoder(TrainedVocabulary("bytes", 0), "here")
    (example,) = span_examples(HiddenText(("casă", "și", "masă"), ((1, 2),)), encoder)
    assert not {*example.ends} & {*encoder.ids_of("ă î ș Привет")}
