"""ROUGE is that of the rouge-score library, and lengths are counted in words."""

import pytest
from rouge_score import rouge_scorer

from tasks.summarization import ROUGE, rouge, rouge_of_words
from tasks.text import sentence_split

TARGETS = ["The cat sat on the mat. It slept.", "Prices rose by 3 %."]
PREDICTIONS = ["It slept. A cat was sitting on the mat.", "Nothing at all"]


def test_rouge_equals_the_library_called_directly():
    scorer = rouge_scorer.RougeScorer(list(ROUGE), use_stemmer=True)
    lines = lambda text: "\n".join(sentence_split.split(text))
    pairs = zip(TARGETS, PREDICTIONS, strict=True)
    found = [scorer.score(lines(target), lines(given)) for target, given in pairs]
    expected = {name: 50 * sum(each[name].fmeasure for each in found) for name in ROUGE}
    measured = rouge(TARGETS, PREDICTIONS)
    assert {name: measured[name] for name in ROUGE} == pytest.approx(expected)
    assert measured["rougeLsum"] > measured["rougeL"]  # sentences in another order


def test_a_pair_by_hand():
    found = rouge(["a b c d"], ["a b x"])
    assert found["rouge1"] == pytest.approx(100 * 2 * 2 / (4 + 3))
    assert found["rouge2"] == pytest.approx(100 * 2 * 1 / (3 + 2))
    assert (found["mean_words"], found["mean_target_words"]) == (3, 4)


@pytest.mark.parametrize(
    ("target", "other"), [("Мама мыла раму.", "Кот спит дома."), ("Țară, șa, în.", "Vară, ca, un.")]
)
def test_words_of_any_script_are_kept_together(target, other):
    same, none = rouge_of_words([target], [target]), rouge_of_words([target], [other])
    assert [same[name] for name in ROUGE] == [100] * 4
    assert [none[name] for name in ROUGE] == [0] * 4


def test_nothing_is_zero():
    assert set(rouge([], []).values()) == {0}
    assert rouge(["a"], [""])["rouge1"] == 0
