"""Remote paths are accessed only where allowed and reachable, and never without a timeout."""

import threading

import pytest

from common.tables import NotChecked
from preflight import reachability


def test_an_address_that_does_not_answer_is_not_checked(monkeypatch):
    def refuse(*_):
        raise OSError("fake")

    monkeypatch.setattr(reachability.socket, "create_connection", refuse)
    with pytest.raises(NotChecked, match="cannot be reached"):
        reachability.require_reachable("gs://bucket/run", offline=False)
    reachability.require_reachable("runs/here", offline=True)


def test_an_answer_is_awaited_until_the_timeout():
    with pytest.raises(NotChecked, match="has not answered within 0 s"):
        reachability.answer_within(0.01, threading.Event().wait, "the corpus")
    with pytest.raises(KeyError):
        reachability.answer_within(5, lambda: {}["x"], "x")


@pytest.mark.parametrize(("offline", "error"), [(True, NotChecked), (False, ValueError)])
def test_a_missing_file_may_be_on_the_machine_that_trains(offline, error, tmp_path):
    (tmp_path / "here").touch()
    reachability.require_file(str(tmp_path / "here"), offline, "make it")
    with pytest.raises(error, match=r"there is no file .*make it"):
        reachability.require_file(str(tmp_path / "none"), offline, "make it")


@pytest.mark.parametrize(("said", "error"), [("cannot be reached", NotChecked), ("x", ValueError)])
def test_only_network_errors_are_not_checked(said, error):
    def refuse():
        raise ValueError(f"the hub {said}")

    with pytest.raises(error, match=said):
        reachability.answer_within(5, refuse, "the corpus")
