"""The table of attacks adds up the outcomes of each, and resumes."""

import json
import sys

from absl import logging

from fakes.paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))

import attack


def test_outcomes_are_counted_and_kept(tmp_path, monkeypatch, capsys):
    levels = []

    def rows(*_, **__):
        levels.append(logging.get_verbosity())
        return [("a", "survived")] * 3 + [("b", "x")]

    logging.set_verbosity(logging.INFO)
    monkeypatch.setattr(attack.attack_checkpoints, "rows", rows)
    monkeypatch.setattr(attack.attack_checkpoints, "SURVIVED", "survived")
    monkeypatch.setattr(
        attack.attack_port, "rows", lambda: [("a", "started in 1 s"), ("b", "lost")]
    )
    answers = [attack.attack_servers.COMPLETE, attack.attack_servers.REFUSED, "lost: 3"]
    monkeypatch.setattr(attack.attack_servers, "rows", lambda: [(answer,) for answer in answers])
    monkeypatch.setattr(attack.attack_values, "rows", lambda _: [(attack.attack_values.GOOD,)])
    monkeypatch.setattr(attack.formats, "REMOTE_PART_BYTES", 1)
    monkeypatch.setattr(sys, "argv", ["attack", "--results", str(tmp_path)])
    assert attack.main() == 1
    assert levels == [logging.INFO], "a start that names what it skips is heard"
    lines = capsys.readouterr().out.splitlines()[2:]
    counts = [line.split("|")[2:5] for line in lines]
    assert [[int(n) for n in row] for row in counts] == [[4, 3, 1], [2, 1, 1], [3, 2, 1], [1, 1, 0]]
    (tmp_path / "port.json").write_text(json.dumps(["kept", 5, 5]))
    attack.main()
    assert "| kept | 5 | 5 | 0 |" in capsys.readouterr().out
