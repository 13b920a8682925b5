"""Lines come back as lines, with their own blanks, whatever pieces the model was given."""

import io
import json
import sys

import pytest

from tasks import restoring


def test_blanks_are_those_of_the_original():
    assert restoring.onto("  fata\tvine ", "fața vine") == "  fața\tvine "
    assert restoring.onto("fata", "fața mea") == "fața mea"  # not its letters: as it was written


def test_pieces_are_put_together_line_by_line():
    texts = ["una doua", "", "  tata.", " "]
    pieces = [("una", "una"), ("doua", "două"), ("tata.", "tată.")]
    assert list(restoring.lines(texts, pieces)) == ["una două", "", "  tată.", " "]


@pytest.mark.parametrize("pieces", [[], [("unadoua trei", "x")]])
def test_pieces_of_another_text_are_refused(pieces):
    with pytest.raises(ValueError, match="not those of the line 'una'"):
        list(restoring.lines(["una"], pieces))


class Stdin:
    def __init__(self, data):
        self.buffer = io.BytesIO(data)


def test_the_way_there_and_back(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "stdin", Stdin("Fata  şi\n\ntata".encode()))
    assert restoring.main(["read"]) == 0
    lines = capsys.readouterr().out
    assert lines == "Fata  și\n\ntata\n"  # cedillas are normalized, blanks are not
    (tmp_path / "lines").write_text(lines)
    pairs = [("Fata si", "Fața și"), ("tata", "tată")]
    made = [{"inputs": {"inputs_pretokenized": a}, "prediction": b} for a, b in pairs]
    (tmp_path / "made").write_text("\n".join(map(json.dumps, made)))
    assert restoring.main(["write", str(tmp_path / "lines"), str(tmp_path / "made")]) == 0
    assert capsys.readouterr().out == "Fața  și\n\ntată\n"


@pytest.mark.parametrize(("data", "said"), [(b"r\xe3u", "no UTF-8"), (b" \n", "no text")])
def test_bad_input_is_one_sentence(monkeypatch, capsys, data, said):
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    assert restoring.main(["read"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_call_of_another_form_says_which_there_are(capsys):
    assert restoring.main(["sing"]) == 2
    assert "say `read`" in capsys.readouterr().err
