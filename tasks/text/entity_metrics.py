"""F1 of named entities in labels of words, counted as seqeval does by default.

    scores(["B-PER I-PER O"], ["B-PER O O"])     # {"f1": 0.0, "accuracy": 0.667, …}

Entities are found as by CoNLL's evaluation: one begins at B- or S-, at I- or E- that continues none
of the same type, and at any label without such a mark, but for O.
"""

import collections
from collections.abc import Sequence

_MARKS = ("B", "I", "E", "S", "O")


def entities(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return type, first word and end of each entity."""
    found, begun, previous = [], None, ("O", "")
    for i, label in enumerate([*labels, "O"]):
        mark, _, kind = label.partition("-")
        if mark not in _MARKS:
            kind = label
        continues = mark in ("I", "E") and previous[0] in ("B", "I") and previous[1] == kind
        if begun is not None and not continues:
            found.append((previous[1], begun, i))
            begun = None
        if not continues and label != "O":
            begun = i
        previous = mark, kind
    return found


def scores(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return precision, recall, F1 and F1 of each type of entities, and accuracy of words, 0..1.

    Each text has labels with blanks between them. Words that have no prediction, since their text
    was cut, count as O.
    """
    wanted, given, right = (collections.Counter[str]() for _ in range(3))
    words = hits = 0
    for target, prediction in zip(targets, predictions, strict=True):
        known, said = target.split(), prediction.split()
        said = (said + ["O"] * len(known))[: len(known)]
        words += len(known)
        hits += sum(a == b for a, b in zip(known, said, strict=True))
        true, found = {*entities(known)}, {*entities(said)}
        for counts, which in ((wanted, true), (given, found), (right, true & found)):
            counts.update(kind for kind, _, _ in which)
    share = lambda a, b: a / b if b else 0.0
    all_wanted, all_given, all_right = (sum(c.values()) for c in (wanted, given, right))
    measured = {
        "precision": share(all_right, all_given),
        "recall": share(all_right, all_wanted),
        "f1": share(2 * all_right, all_given + all_wanted),
        "accuracy": share(hits, words),
    }
    for kind in sorted(wanted | given):
        measured[f"f1/{kind}"] = share(2 * right[kind], wanted[kind] + given[kind])
    return measured
