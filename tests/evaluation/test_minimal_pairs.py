"""Pairs are read from files."""

import json

import pytest

from evaluation import minimal_pairs


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
