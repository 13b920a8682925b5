"""Workers that share a folder run each trial once, and give back what they have not finished."""

import concurrent.futures
import pathlib
import socket
import threading
import time
from typing import NamedTuple

import pytest

from common.errors import UserError
from evaluation import trials
from fakes.refuses import refuses


class Trial(NamedTuple):
    name: str
    seed: int


TRIALS = [Trial("a text", seed) for seed in range(30)]


def nothing(_) -> None:
    """Leave what a trial has left."""


@pytest.fixture
def work(tmp_path):
    (tmp_path / "claims").mkdir()
    return tmp_path


def test_workers_never_run_the_same_trial(work):
    path, runs, cleaned, taken = work / "results.jsonl", [], [], threading.Event()

    def run(trial):
        runs.append(trial)
        assert taken.wait(60)  # until another worker has asked for a trial that runs
        time.sleep(0.001)  # lets the others try
        return {"value": trial.seed}

    def run_all(_):
        for trial in TRIALS:
            if not trials.run_claimed(trial, run, cleaned.append, work, path):
                taken.set()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        [*pool.map(run_all, range(8))]
    assert sorted(runs) == TRIALS
    results = trials.read(path, Trial)
    assert sorted(results) == TRIALS
    assert all(line["value"] == trial.seed for trial, line in results.items())
    assert {*cleaned} == {*TRIALS}
    assert not [*(work / "claims").iterdir()]


def test_what_a_trial_has_left_is_removed_after_its_line_is_written(work):
    path, lines = work / "results.jsonl", []
    clean = lambda trial: lines.append(trials.read(path, Trial)[trial])
    assert trials.run_claimed(TRIALS[0], lambda _: {"value": 2}, clean, work, path)
    assert lines == [{"name": "a text", "seed": 0, "value": 2}]


@pytest.mark.parametrize("written", [1, 20, -2])
def test_a_line_that_is_cut_short_costs_its_own_trial_alone(written, work):
    """The disk was full, or another worker is writing it."""
    path = work / "results.jsonl"
    for trial in TRIALS[:2]:
        assert trials.run_claimed(trial, lambda t: {"value": t.seed}, nothing, work, path)
    whole = path.read_text()
    first, second = whole.splitlines(keepends=True)
    path.write_text(first + second[:written])
    assert [*trials.read(path, Trial)] == TRIALS[:1]
    for trial in (TRIALS[2], TRIALS[1]):
        assert trials.run_claimed(trial, lambda t: {"value": t.seed}, nothing, work, path)
    results = trials.read(path, Trial)
    assert {trial: line["value"] for trial, line in results.items()} == dict(
        zip(TRIALS[:3], range(3), strict=True)
    )


@pytest.mark.parametrize("ended", [None, "elsewhere"])
def test_a_worker_starts_while_others_give_their_claims_back(ended, work, monkeypatch):
    claims = [work / "claims" / trials.name_of(trial) for trial in TRIALS[2:]]
    for claim in claims:
        claim.write_text("elsewhere 1 now\n")
    listed = pathlib.Path.iterdir

    def listed_late(folder):
        paths = [*listed(folder)]
        for claim in claims:
            claim.unlink(missing_ok=True)
        return iter(paths)

    monkeypatch.setattr(pathlib.Path, "iterdir", listed_late)
    pending = lambda results: [trial for trial in TRIALS[:2] if trial not in results]
    run = lambda trial: {"value": trial.seed}
    path = work / "results.jsonl"
    results = trials.run_all(Trial, pending, run, nothing, work, path, ended)
    assert sorted(results) == TRIALS[:2]


def test_a_claim_of_a_dead_worker_is_taken_away_on_request(work):
    path = work / "results.jsonl"
    pending = lambda results: [trial for trial in TRIALS[:2] if trial not in results]
    run = lambda trial: {"value": trial.seed}
    claim = work / "claims" / trials.name_of(TRIALS[0])
    claim.write_text(f"{socket.gethostname()} 1 now\n")
    assert not trials.run_claimed(TRIALS[0], run, nothing, work, path)
    others = work / "claims" / "of_another_host"
    others.write_text("elsewhere 1 now\n")
    results = trials.run_all(Trial, pending, run, nothing, work, path, socket.gethostname())
    assert sorted(results) == TRIALS[:2]
    assert [*(work / "claims").iterdir()] == [others]


@pytest.mark.parametrize("other", [None, "elsewhere 2 now\n"])
def test_a_worker_whose_claim_was_taken_away_ends_its_trial(other, work):
    """Another worker of its machine was killed, and all claims of the machine were released."""
    claim, path = work / "claims" / trials.name_of(TRIALS[0]), work / "results.jsonl"

    def run(_):
        claim.unlink()
        if other:
            claim.write_text(other)
        return {"value": 1}

    assert trials.run_claimed(TRIALS[0], run, nothing, work, path)
    assert [*trials.read(path, Trial)] == TRIALS[:1]
    assert [file.read_text() for file in (work / "claims").iterdir()] == [other] * bool(other)


def test_a_failed_trial_gives_its_claim_back(work):
    def fail(_):
        raise UserError(why="fails")

    with refuses():
        trials.run_claimed(TRIALS[0], fail, nothing, work, work / "results.jsonl")
    assert not [*(work / "claims").iterdir()]
    assert not trials.read(work / "results.jsonl", Trial)


def test_trials_that_others_have_are_waited_for(work, monkeypatch):
    """The other worker finishes meanwhile."""
    path = work / "results.jsonl"
    claim = work / "claims" / trials.name_of(TRIALS[0])
    claim.write_text("elsewhere 1 now\n")

    def finish(_):
        claim.unlink()
        trials.run_claimed(TRIALS[0], lambda _: {"by": "elsewhere"}, nothing, work, path)

    monkeypatch.setattr(time, "sleep", finish)
    pending = lambda results: [trial for trial in TRIALS[:2] if trial not in results]
    results = trials.run_all(Trial, pending, lambda _: {"by": "here"}, nothing, work, path)
    assert [results[trial]["by"] for trial in TRIALS[:2]] == ["elsewhere", "here"]
