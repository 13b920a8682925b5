"""Pairs are read from files and the hub, and made by rules."""

import json

import pytest

from evaluation import minimal_pairs

SENTENCE = "Câinele vecinului este mai mare decât casa lui mică ."
PASSAGE = f"Un început . {SENTENCE} Ultima propoziție .".split()


def test_pairs_of_a_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"good": "a b", "bad": "b a", "kind": "order"}, {"good": "a", "bad": "b"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert minimal_pairs.read_file(str(path)) == [("a b", "b a", "order"), ("a", "b", "")]
    # Other ends of lines than \n are characters of JSON.
    row = {"good": "a\u2028b", "bad": "b\x85a"}
    path.write_text("\ufeff" + json.dumps(row, ensure_ascii=False) + "\n")
    assert minimal_pairs.read_file(str(path)) == [("a\u2028b", "b\x85a", "")]
    path.write_text("")
    assert minimal_pairs.read_file(str(path)) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "pairs.jsonl:1 is not an object such as"),
        ('{"good": "a"}', "pairs.jsonl:1 is not an object such as"),
        ("[1]", "pairs.jsonl:1 is not an object such as"),
        ('{"good": "a", "bad": " "}', "pairs.jsonl:1 has no text under good or bad"),
        ('{"good": "a", "bad": 3}', "pairs.jsonl:1 has no text under good or bad"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, said):
    path = tmp_path / "pairs.jsonl"
    path.write_text(line)
    with pytest.raises(ValueError, match="cannot be read"):
        minimal_pairs.read_file(str(tmp_path / "absent"))
    with pytest.raises(ValueError, match=said):
        minimal_pairs.read_file(str(path))


def test_rules_change_a_sentence_in_one_way():
    pairs = list(minimal_pairs.make([PASSAGE], "ro", seed=0))
    assert [pair.kind for pair in pairs] == ["agreement", "word order", "diacritics"]
    assert {pair.good for pair in pairs} == {SENTENCE}
    agreement, order, diacritics = (pair.bad for pair in pairs)
    assert agreement == SENTENCE.replace("este", "sunt")
    assert sorted(order.split()) == sorted(SENTENCE.split())
    assert order.split()[0] == "Câinele"
    assert sum(a != b for a, b in zip(order.split(), SENTENCE.split(), strict=True)) == 2
    changed = [(a, b) for a, b in zip(SENTENCE.split(), diacritics.split(), strict=True) if a != b]
    assert changed in ([("Câinele", "Cainele")], [("decât", "decat")], [("mică", "mica")])


def test_other_languages_have_the_rules_that_fit():
    assert [p.kind for p in minimal_pairs.make([PASSAGE], "en", seed=0)] == ["word order"]
    again = list(minimal_pairs.make([PASSAGE] * 5, "ro", seed=3))
    assert again == list(minimal_pairs.make([PASSAGE] * 5, "ro", seed=3))
    assert len(again) == 15
