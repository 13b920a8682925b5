"""Runs that go on from one another are one curve, whatever else is drawn."""

import pytest

from fakes import fake_runs
from report import page
from report.phases import joined
from report.run_data import Folder, load

CONFIGS = {
    "base": "global_theta = 10000.0\nLENGTH = 128\n",
    "long": "global_theta = 160000.0\nLENGTH = 512\n",
    "decay": "global_theta = 160000.0\nLENGTH = 512\nCOOLDOWN_FROM = 'long/checkpoint_40'\n",
}


@pytest.fixture
def phase(tmp_path):
    def make(name, first, last, begun_from=None, task="web"):
        config = CONFIGS[name.rpartition("/")[2]]
        start = {"event": "start", "step": first, "begun_from": begun_from, "total_steps": last}
        events = [start | {"config": config}, {"event": "end", "step": last}]
        events = [{"time": fake_runs.BEGIN + event["step"], **event} for event in events]
        steps = range(first + 10, last + 1, 10)
        curves = {"loss": [(s, 9 - s / 10) for s in steps]}
        curves[f"data/records/{task}"] = [(s, 10.0 * (s - first)) for s in steps]
        folders = {"train": curves, f"training_eval/{task}": {"loss": [(last, 5.0)]}}
        return load(Folder(str(fake_runs.run(tmp_path / name, folders, events, config))))

    return make


def test_three_phases_are_one_run(phase):
    runs = [
        phase("base", 0, 30),
        phase("long", 30, 40, "gs://bucket/base/checkpoint_30"),
        phase("decay", 40, 60, "runs/long/checkpoint_40/", "best"),
    ]
    for given in (runs, runs[::-1]):
        (whole,) = joined(given)
        assert whole.series["train"]["loss"].steps.tolist() == [10, 20, 30, 40, 50, 60]
    shown = page.content([whole], fake_runs.BEGIN + 99)["runs"][0]
    assert (shown["name"], shown["step"], shown["total"]) == ("base → long → decay", 60, 60)
    assert (shown["restarts"], shown["state"]) == (0, "ended")
    assert [change["step"] for change in shown["changes"]] == [30, 40]
    assert ("LENGTH", "128", "512") in shown["changes"][0]["rows"]
    assert [(row["phase"], row["corpus"], row["records"]) for row in shown["corpora"]] == [
        ("steps 0 to 30", "best", 0.0),
        ("steps 0 to 30", "web", 300.0),
        ("steps 30 to 40", "best", 0.0),
        ("steps 30 to 40", "web", 100.0),
        ("steps 40 to 60", "best", 200.0),
        ("steps 40 to 60", "web", 0.0),
    ]


def test_a_run_that_trained_on_beyond_its_branches_is_shown_beside_them(phase):
    runs = [
        phase("base", 0, 60),
        phase("long", 30, 40, "runs/base/checkpoint_30"),
        phase("decay", 40, 50, "runs/base/checkpoint_40"),
    ]
    curves = {run.name: run.series["train"]["loss"].steps.tolist() for run in joined(runs)}
    assert curves == {
        "base": [10, 20, 30, 40, 50, 60],
        "base → long": [10, 20, 30, 40],
        "base → decay": [10, 20, 30, 40, 50],
    }
    ends = [end for run in joined(runs)[1:] for end in run.history.spans if end.kind == "end"]
    assert [end.step for end in ends] == [40, 50]


def test_of_two_runs_of_one_name_the_one_of_the_recorded_path_comes_before(phase):
    runs = [phase("a/base", 0, 30), phase("b/base", 0, 50)]
    runs += [phase("a/long", 30, 40, "gs://bucket/a/base/checkpoint_30")]
    runs += [phase("b/long", 50, 60, "gs://bucket/b/base/checkpoint_50")]
    for given in (runs, runs[::-1]):
        curves = [run.series["train"]["loss"].steps.tolist() for run in joined(given)]
        assert sorted(curves) == [[10, 20, 30, 40], [10, 20, 30, 40, 50, 60]]


def test_a_run_that_may_go_on_from_either_of_two_is_as_it_is(phase):
    runs = [phase("a/base", 0, 30), phase("b/base", 0, 30)]
    runs += [phase("long", 30, 40, "gs://bucket/base/checkpoint_30")]
    for order in (runs, runs[::-1]):
        curves = [run.series["train"]["loss"].steps.tolist() for run in joined(order)]
        assert sorted(curves) == [[10, 20, 30], [10, 20, 30], [40]]


def test_a_run_whose_origin_is_not_shown_is_as_it_is(phase):
    long = phase("long", 30, 40, "runs/base/checkpoint_30")
    assert joined([long])[0].series["train"]["loss"].steps.tolist() == [40]
    itself = phase("base", 0, 30, "gs://bucket/base/checkpoint_0")
    assert [run.name for run in joined([itself])] == ["base"]
    assert joined([]) == []
