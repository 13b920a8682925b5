"""Entities are found as CoNLL's evaluation finds them, and F1 is counted by hand."""

import pytest

from tasks.text.entity_metrics import entities, scores


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("B-PER I-PER O", [("PER", 0, 2)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("O I-LOC I-LOC", [("LOC", 1, 3)]),  # as in IOB1
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("B-ORG I-ORG E-ORG S-LOC", [("ORG", 0, 3), ("LOC", 3, 4)]),
        ("E-ORG I-ORG", [("ORG", 0, 1), ("ORG", 1, 2)]),
        ("B-X-Y I-X-Y", [("X-Y", 0, 2)]),
        ("NOUN NOUN VERB", [("NOUN", 0, 1), ("NOUN", 1, 2), ("VERB", 2, 3)]),
        ("O O", []),
    ],
)
def test_entities(labels, found):
    assert entities(labels.split()) == found


def test_f1_by_hand():
    targets = ["B-PER I-PER O B-LOC", "B-LOC O"]
    predictions = ["B-PER I-PER O B-PER", "B-LOC"]  # the last word was cut
    found = scores(targets, predictions)
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["f1/PER"] == pytest.approx(2 / 3)
    assert found["f1/LOC"] == pytest.approx(2 / 3)
    assert found["accuracy"] == pytest.approx(5 / 6)


def test_half_an_entity_is_none():
    assert scores(["B-PER I-PER"], ["B-PER O"])["f1"] == 0


def test_nothing_to_find_is_0():
    assert scores([], []) == {"precision": 0, "recall": 0, "f1": 0, "accuracy": 0}
