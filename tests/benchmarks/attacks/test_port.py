"""The table of strangers has a row a kind, and names a pod that did not start."""

import pytest

from benchmarks.attacks import port


def test_a_row_for_each_kind_and_one_for_all(monkeypatch, capsys):
    kinds = {name: port.STRANGERS[name] for name in ("http", "leaves at once")}
    monkeypatch.setattr(port, "STRANGERS", kinds)
    found = port.rows()
    assert [name for name, _ in found] == ["http", "leaves at once", "all 2 at once"]
    assert all(outcome.startswith("started in ") for _, outcome in found)
    monkeypatch.setattr(port, "rows", lambda: [*found, ("x", "lost: y")])
    with pytest.raises(SystemExit) as ended:
        port.main()
    assert ended.value.code == 1
    assert capsys.readouterr().out.endswith("\n4 tried, 3 survived, 1 lost\n")


def test_a_pod_that_does_not_start_is_lost(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("Worker 1 of 3 has not started")

    monkeypatch.setattr(port, "start_among", fails)
    assert {outcome for _, outcome in port.rows()} == {"lost: Worker 1 of 3 has not started"}
