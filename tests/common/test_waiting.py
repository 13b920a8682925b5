"""What takes long says so, again and again, and nothing is said of what does not."""

import threading

import pytest

from common.waiting import waiting


def test_a_long_block_is_reported_until_it_ends(capsys):
    lines, enough = [], threading.Event()

    def show(line):
        lines.append(line)
        if len(lines) == 3:
            enough.set()

    def read():
        with waiting("reading", 0.01, show):
            assert enough.wait(10)
            raise KeyError

    with pytest.raises(KeyError):
        read()
    said = len(lines)
    assert all(line.startswith("reading: ") and line.endswith(" s so far") for line in lines)
    with waiting("a short block", 60.0):
        pass
    assert len(lines) == said
    assert capsys.readouterr().err == ""
