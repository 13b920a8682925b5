"""Every error of a command is one sentence and a status; a traceback goes to a log."""

import pathlib
import re

import numpy as np
import pytest

from common import errors


def ended(function, capsys) -> tuple[int, str]:
    """Return status and the one line printed."""
    with pytest.raises(SystemExit) as caught:
        errors.guarded(function)()
    (line,) = capsys.readouterr().err.splitlines()
    return caught.value.code, line


def raises(error):
    def function():
        raise error

    return function


def test_a_value_is_returned_and_an_exit_is_left_alone():
    assert errors.guarded(lambda: 3)() == 3
    with pytest.raises(SystemExit) as caught:
        errors.guarded(raises(SystemExit(7)))()
    assert caught.value.code == 7


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("x is 1; set it to 2."), 2),
        (RuntimeError("x is 1; set it to 2."), 1),
        (FloatingPointError("x is 1; set it to 2."), 1),
    ],
)
def test_our_own_sentences_are_printed_as_they_are(error, status, capsys):
    assert ended(raises(error), capsys) == (status, "Error: x is 1; set it to 2.")


def test_places_that_gin_appends_are_left_out(capsys):
    error = ValueError("x is 1.\n  In call to configurable 'train' (<function train>)")
    assert ended(raises(error), capsys) == (2, "Error: x is 1.")


def test_ctrl_c_is_one_sentence_and_the_status_of_a_shell(capsys):
    assert ended(raises(KeyboardInterrupt()), capsys) == (130, "Stopped by Ctrl-C.")


def unexpected():
    return [
        raises(TypeError("one\ntwo")),
        raises(KeyError("name")),
        raises(OSError(28, "No space left on device")),
        raises(RecursionError("too deep")),
        raises(AssertionError()),
        lambda: np.zeros(3).reshape(2),  # a ValueError of a library
    ]


@pytest.mark.parametrize("function", unexpected())
def test_any_other_error_names_the_log_with_its_traceback(function, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(errors.tempfile, "tempdir", str(tmp_path))
    status, line = ended(function, capsys)
    assert status == 1
    assert "Traceback (most" not in line
    path = re.search(r"The traceback is in (\S+)\.$", line)[1]
    assert pathlib.Path(path).parent == tmp_path
    assert pathlib.Path(path).read_text().startswith("Traceback (most recent call last)")


def test_a_command_with_a_log_of_its_own_keeps_the_traceback_there(capsys, monkeypatch):
    kept = []
    monkeypatch.setattr(errors, "write_log", lambda text: kept.append(text) or "runs/x/log_0.txt")
    _, line = ended(raises(TypeError("of code")), capsys)
    assert line == "Error: TypeError: of code. The traceback is in runs/x/log_0.txt."
    assert "TypeError: of code" in kept[0]


def test_a_log_that_cannot_be_written_hides_no_error(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(errors.tempfile, "tempdir", str(tmp_path / "absent"))
    assert "TypeError: of code." in ended(raises(TypeError("of code")), capsys)[1]
