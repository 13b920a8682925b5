"""What counts as equal tokens; what CTranslate2 computes is a slow test's."""

import numpy as np
import pytest

from convert.served import ctranslate2_writer

LOGITS = np.array([[0.0, 1.0, 9.0], [0.0, 8.0, 2.0], [5.0, 4.9, 0.0]])


def compare(tokens, found, logits=LOGITS, moved=LOGITS):
    return ctranslate2_writer.compare([tokens], [logits], [found], [moved])


def test_equal_tokens_and_their_drift():
    moved = LOGITS + [[0.1], [-0.2], [0.0]]
    found = compare([2, 1, 0], [2, 1, 0], moved=moved)
    assert found["drift"] == pytest.approx(0.2)
    assert (found["tokens"], found["tokens_equal"], found["largest_logit"]) == (3, 3, 9.0)


def test_another_token_is_counted_if_it_was_nearly_a_tie_and_refused_otherwise():
    moved = LOGITS + [[0.0], [0.1], [0.3]]
    found = compare([2, 1, 0], [2, 1, 1], moved=moved)
    assert (found["tokens_equal"], found["drift"]) == (2, pytest.approx(0.3))
    with pytest.raises(ValueError, match="decodes 2 where PyTorch decodes 1, which is ahead by 6"):
        compare([2, 1, 0], [2, 2, 0])


def test_what_follows_another_token_is_not_compared():
    moved = LOGITS + [[0.0], [0.0], [99.0]]
    logits = LOGITS.copy()
    logits[1, 2] = 7.9
    found = compare([2, 1, 0], [2, 2, 2], logits, np.where(moved > 50, 99, logits))
    assert (found["tokens_equal"], found["drift"]) == (1, 0.0)


def test_an_output_that_ends_early_is_not_equal():
    assert ctranslate2_writer._to_eos([5, 6, 1, 7]) == [5, 6, 1]
    assert ctranslate2_writer._to_eos(list(range(2, 18))) == list(range(2, 18))
    found = compare([2, 1, 0], [2, 1], moved=LOGITS[:2])
    assert found["tokens_equal"] == 2
