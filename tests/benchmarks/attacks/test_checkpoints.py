"""The table of damages counts what survived and what was lost."""

import random
import sys

import pytest

from benchmarks.attacks import checkpoints
from fakes import damage


@pytest.mark.slow
def test_attacks_are_made_and_survived(monkeypatch, capsys):
    found = checkpoints.rows(number=2, seed=3)
    assert [(where, outcome) for where, _, outcome in found] == [("start", "survived")] * 2
    assert all(what.startswith(tuple(f"{step}/" for step in damage.STEPS)) for _, what, _ in found)
    lost = [*found, ("command", "12/state deleted", "lost: why")]
    monkeypatch.setattr(checkpoints, "rows", lambda *_: lost)
    monkeypatch.setattr(sys, "argv", ["checkpoints"])
    assert checkpoints.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "command  12/state deleted: lost: why"
    assert lines[-3:] == ["| start | 2 | 2 | 0 |", "| command | 1 | 0 | 1 |", "| all | 3 | 2 | 1 |"]


def test_attacks_are_the_same_for_a_seed(tmp_path):
    def attacked(name):
        for step in (1, 2):
            (tmp_path / name / f"checkpoint_{step}/state").mkdir(parents=True)
            (tmp_path / name / f"checkpoint_{step}/state/_METADATA").write_text("{}")
        return checkpoints.attack(tmp_path / name, (1, 2), random.Random(0))

    assert attacked("a") == attacked("b") != []


def test_what_is_wrong_with_a_start_is_named(tmp_path):
    for step in damage.STEPS:
        (tmp_path / f"checkpoint_{step}").mkdir()
        (tmp_path / f"checkpoint_{step}/checkpoint").write_bytes(b"")

    def fault(step, *said, error=None, damaged=(12,)):
        return damage.fault(damage.Found(step, error, said), tmp_path, set(damaged))

    named = f"{tmp_path}/checkpoint_12 is damaged."
    assert fault(8, named) is None
    assert "did not name [12]" in fault(8)
    assert "although checkpoint_8 is intact" in fault(4, named)
    assert "checkpoint_8 is intact, and the run ended" in fault(None, error=named)
    assert "checkpoints [4, 8] are not in one" in fault(None, error=named, damaged=damage.STEPS)
    (tmp_path / "checkpoint_4/checkpoint").unlink()
    assert "it deleted [4]" in fault(8, named)
