"""Pairs are read from files, and from the hub by language."""

import json

import pytest

from evaluation import minimal_pairs
from fakes.loopback_hub import connected
from fakes.refuses import refuses


def test_pairs_of_a_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"good": "a b", "bad": "b a", "kind": "order"}, {"good": "a", "bad": "b"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert minimal_pairs.read_file(str(path)) == [("a b", "b a", "order"), ("a", "b", "")]
    # Other ends of lines than \n are characters of JSON.
    row = {"good": "a\u2028b", "bad": "b\x85a"}
    path.write_text("\ufeff" + json.dumps(row, ensure_ascii=False) + "\n")
    assert minimal_pairs.read_file(str(path)) == [("a\u2028b", "b\x85a", "")]
    path.write_text('{"good": "a", "bad": "b", "kind": null}')
    assert minimal_pairs.read_file(str(path)) == [("a", "b", "")]
    path.write_text("")
    assert minimal_pairs.read_file(str(path)) == []


LINES = ['{"good": "a"}', "[1]", '{"good": "a", "bad": " "}', '{"good": "a", "bad": 3}']
LINES += [json.dumps({"good": "a", "bad": "b", "kind": kind}) for kind in (3, 0, True, ["a"], {})]


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_line_is_named(tmp_path, line):
    path = tmp_path / "pairs.jsonl"
    path.write_text(line)
    with refuses(tmp_path / "absent"):
        minimal_pairs.read_file(str(tmp_path / "absent"))
    with refuses(f"{path}:1"):
        minimal_pairs.read_file(str(path))


ROWS = b"""sen\twrong_sen\tphenomenon
Ana are mere.\tAna au mere.\tSV-#
Ei sunt aici.\tEi este aici.\tSV-#
"""


def test_pairs_of_a_language_and_an_unknown_one(tmp_path):
    configs = [f"- config_name: {c}\n  data_files: {c}/data.tsv\n" for c in ("ron", "tur")]
    card = f"---\nconfigs:\n{''.join(configs)}---\n".encode()
    files = {"README.md": card, "ron/data.tsv": ROWS, "tur/data.tsv": ROWS}
    with connected({"jumelet/multiblimp": files}, tmp_path):
        good, other = minimal_pairs.read_hub("ron")
        with refuses() as refusal:
            minimal_pairs.read_hub("xho")
    assert tuple(good) == ("Ana are mere.", "Ana au mere.", "SV-#")
    assert tuple(other) == ("Ei sunt aici.", "Ei este aici.", "SV-#")
    assert "xho" in refusal.value.why
    assert "--pairs" in refusal.value.to_set
