"""Whole-word corruption hides words entirely and fills its examples."""

import numpy as np
import pytest

from fakes.objectives import MANY, STARTS, examples_of, rebuild, run, text
from tasks.objectives import registry


def test_hidden_words_are_complete():
    for example in examples_of("whole_words")[0]:
        found = rebuild(example)
        assert STARTS[[span[0] for span in found.spans]].all()
        assert STARTS[[shown[0] for shown in found.shown[1:] if len(shown)]].all()


def test_examples_are_nearly_full():
    examples, lengths = examples_of("whole_words")
    # Whichever of inputs and targets is full first ends an example.
    fill = [max(len(e[key]) + 1 - lengths[key] for key in lengths) for e in examples]
    assert np.median(fill) >= -2
    tokens = registry.get_objective("whole_words").lengths(512).tokens
    assert len(examples) < 1.12 * MANY / tokens


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_text_without_blanks_and_words_of_one_piece_are_hidden_too(share):
    tokens = text(5_000, share)
    for lengths in ({"inputs": 20, "targets": 8}, {"inputs": 128, "targets": 29}):
        examples = run("whole_words", tokens, lengths)
        rebuilt = np.concatenate([part for e in examples for part in rebuild(e).text])
        np.testing.assert_array_equal(rebuilt, tokens)
        assert all(len(e[key]) < lengths[key] for e in examples for key in lengths)
