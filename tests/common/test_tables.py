"""Exceptions become results, results become a table, and only failures fail."""

import os
import pty
import sys

import pytest

from common import tables
from common.errors import UserError
from common.tables import FAILS, NOT_CHECKED, NotChecked, ok, run_check, spread, warning


def raising(error):
    def check():
        raise error

    return run_check("check", check)


def test_an_error_is_a_row_of_its_fields():
    row = raising(UserError("x", 3, "not a multiple of 2", "set x to a multiple of 2"))
    assert (row.verdict, row.figure, row.to_set) == (
        FAILS,
        "x is 3, not a multiple of 2",
        "set x to a multiple of 2",
    )
    assert raising(ValueError("no cure.")).figure == "no cure"


def test_what_cannot_look_is_not_checked_and_neither_is_a_check_that_stops():
    assert raising(NotChecked("no network")).verdict == NOT_CHECKED
    row = raising(KeyError("lost"))
    assert row.verdict == NOT_CHECKED
    assert "KeyError" in row.figure


def test_only_what_fails_fails():
    rows = [run_check(n, lambda r=r: r) for n, r in (("a", ok("1")), ("b", warning("2", "less")))]
    rows.append(raising(NotChecked("why")))
    assert tables.passed(rows)
    assert not tables.passed([*rows, raising(ValueError("no"))])
    assert tables.summary(rows) == "1 ok, 1 warning, 1 not checked"


def test_numbers_are_spelled():
    texts = [tables.counted(n, "copy") for n in (1, 2, 3000)]
    assert texts == ["1 copy", "2 copies", "3,000 copies"]
    assert tables.counted(2, "host") == "2 hosts"
    assert [tables.counted(n, "epoch", ".2g") for n in (0.999, 1.52)] == ["1 epoch", "1.5 epochs"]


def test_sizes_and_times_have_a_unit_that_fits():
    sizes = [tables.data_size(n) for n in (12, 1110, 999_600, 24.3e9, 1.5e15)]
    assert sizes == ["12 B", "1.11 KB", "1 MB", "24.3 GB", "1,500 TB"]
    spans = [tables.time_span(n) for n in (1, 7.52, 150, 7200, 5e6)]
    assert spans == ["1 second", "7.5 seconds", "2.5 minutes", "2 hours", "1,389 hours"]
    assert tables.time_span(600, "chip") == "10 chip-minutes"


@pytest.mark.parametrize(("columns", "widest"), [(40, 56), (80, 80), (100, 100), (300, 120)])
def test_the_table_is_as_wide_as_the_terminal(columns, widest, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    path = f"/{'x' * 60}"
    long = run_check("sentinels in text", lambda: warning("word " * 40, f"set it to 5 in {path}"))
    short = run_check("size", lambda: ok("512"))
    lines = tables.table([long, short]).splitlines()
    assert max(len(line) for line in lines if path not in line) in range(widest - 6, widest + 1)
    assert lines[0].split()[:3] == ["check", "verdict", "figure"]
    assert " ".join(lines).count("word") == 40
    assert path in " ".join(lines).split(), "it is cut"
    assert lines[-1].split() == ["size", "ok", "512"]


@pytest.mark.parametrize(
    ("is_terminal", "variables", "has_colour"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": ""}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_a_verdict_has_a_colour_on_a_terminal(is_terminal, variables, has_colour, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    leader, follower = pty.openpty() if is_terminal else os.pipe()
    rows = [run_check("a", lambda: ok("1")), run_check("b", lambda: warning("2"))]
    with os.fdopen(leader), os.fdopen(follower, "w") as stdout:
        monkeypatch.setattr(sys, "__stdout__", stdout)
        _, first, second = tables.table([*rows]).splitlines()
    assert "\x1b" not in first
    assert ("\x1b[33mwarning" in second) == has_colour


@pytest.mark.parametrize("count", [1, 13, 500])
def test_rows_are_spread_and_keep_their_ends(count):
    points = [(step, 1.0) for step in range(count)]
    rows = spread(points, 12)
    assert len(rows) <= 12
    assert rows[0] == points[0]
    assert rows[-1] == points[-1]
