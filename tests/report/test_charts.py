"""Metrics are drawn in the right charts, under the right names."""

import pytest

from fakes import fake_runs
from report.charts import charts_of
from report.run_data import Folder, load


def read(folder):
    return load(Folder(str(folder)))


@pytest.fixture
def loaded(tmp_path):
    return read(fake_runs.complete(tmp_path / "tiny"))


def chart(charts, title):
    (found,) = [c for c in charts if c.title.startswith(title)]
    return found


def test_charts_have_their_lines(loaded):
    charts = charts_of([loaded])
    assert [c.title for c in charts if c.is_main] == [
        *("Loss, nats a token", "Accuracy", "Learning rate", "Tokens per second", "MFU"),
        *("Waiting for data", "Steps per second", "Peak memory of a device", "Records read"),
        "qa: exact",
    ]
    loss = chart(charts, "Loss").lines
    assert [line.label for line in loss] == ["training", "validation, my_task", "expected"]
    assert [line.dashed for line in loss] == [False, True, True]
    assert loss[0].series.steps.tolist() == list(range(100, 1001, 100))
    assert loss[0].series.values[0] == 6.0
    assert (loss[2].series.steps.tolist(), loss[2].series.values.tolist()) == ([1000], [2.5])
    assert chart(charts, "MFU").unit == "%"
    assert chart(charts, "Records").lines[0].series.values[-1] == 10_000  # over both starts
    rest = [c.title for c in charts if not c.is_main]
    assert rest == ["data/epoch/my_corpus", "some/other"]


def test_runs_are_drawn_over_each_other(tmp_path, loaded):
    other = read(fake_runs.complete(tmp_path / "other", loss=9.0))
    assert [line.run for line in chart(charts_of([loaded, other]), "Loss").lines] == [
        *(0, 0, 1, 1, 0, 1)
    ]


def test_a_baseline_is_a_dashed_line_beside_its_metric(tmp_path):
    metrics = {"f1": [(1, 0.25), (2, 0.5)], "baseline/f1": [(1, 0.4), (2, 0.4)]}
    (found,) = charts_of([read(fake_runs.run(tmp_path / "r", {"inference_eval/qa": metrics}))])
    assert found.title == "qa: f1"
    assert {line.label: line.dashed for line in found.lines} == {"f1": False, "baseline/f1": True}


def test_upstreams_own_runs_have_a_loss(tmp_path):
    """They log no loss per token where targets are weighted otherwise."""
    train = {"loss": [(1, 9.0)], "learning_rate/current": [(1, 0.5)]}
    charts = charts_of([read(fake_runs.run(tmp_path / "up", {"train": train}))])
    assert chart(charts, "Loss").lines[0].series.values.tolist() == [9.0]
    assert chart(charts, "Learning").lines[0].series.values.tolist() == [0.5]
