"""What a page shows: the right lines in the right chart, as JSON, whatever a run lacks."""

import json
import math

import numpy as np
import pytest

from fakes import fake_runs
from report.charts import charts_of
from report.content import content, plain
from report.folder import Folder
from report.run import Cache, load

NOW = fake_runs.BEGIN + 2000


@pytest.fixture
def loaded(tmp_path):
    return load(Folder(str(fake_runs.complete(tmp_path / "tiny"))))


def chart(page, title):
    (found,) = [c for c in page["charts"] if c["title"].startswith(title)]
    return found


def test_charts_have_their_lines(loaded):
    page = content([loaded], NOW)
    titles = [c["title"] for c in page["charts"] if c["main"]]
    assert titles == [
        *("Loss, nats a token", "Accuracy", "Learning rate", "Tokens a second", "MFU"),
        *("Waiting for data", "Steps a second", "Peak memory of a device", "Records read"),
        "qa: exact",
    ]
    loss = chart(page, "Loss")["lines"]
    assert [line["label"] for line in loss] == ["training", "validation, my_task", "expected"]
    assert loss[0]["steps"] == list(range(100, 1001, 100))
    assert loss[0]["values"][0] == 6.0
    assert loss[0]["seconds"][:2] == [100, 200]
    assert (loss[2]["steps"], loss[2]["values"]) == ([1000], [2.5])
    assert chart(page, "MFU")["unit"] == "%"
    assert [c["title"] for c in page["charts"] if not c["main"]] == [
        "data/epoch/my_corpus",
        "some/other",
    ]


def test_a_run_is_described(loaded):
    run = content([loaded], NOW)["runs"][0]
    assert (run["name"], run["step"], run["total"], run["state"]) == ("tiny", 1000, 1000, "ended")
    assert (run["device"], run["restarts"], run["rate"]) == ("4 × TPU v4", 1, 2.0)
    assert run["corpora"] == [{"corpus": "my_corpus", "records": 10_000.0, "epoch": 0.0}]
    assert run["changes"][0]["rows"] == [("TRAIN_STEPS", "500", "1000")]
    assert run["tables"] == [
        {"task": "qa", "columns": ["exact"], "rows": [[500, 0.25], [1000, 0.75]]}
    ]
    assert [s[0] for s in run["spans"]].count("running") == 2
    assert run["infills"]["Merg la <extra_id_0> azi."][-1] == (1000, "Merg la [școală <b>] azi.")


def test_runs_are_laid_over_each_other(tmp_path, loaded):
    other = load(Folder(str(fake_runs.complete(tmp_path / "other", loss=9.0))))
    page = content([loaded, other], NOW)
    assert [line["run"] for line in chart(page, "Loss")["lines"]] == [0, 0, 1, 1, 0, 1]
    same = load(Folder(str(fake_runs.complete(tmp_path / "deep/tiny"))))
    names = [run["name"] for run in content([loaded, same], NOW)["runs"]]
    assert names == [loaded.path, same.path]


def test_upstreams_own_runs_have_a_loss(tmp_path):
    """They log no loss a token where it is weighed otherwise."""
    train = {"loss": [(1, 9.0)], "learning_rate/current": [(1, 0.5)]}
    folder = fake_runs.run(tmp_path / "up", {"train": train})
    page = content([load(Folder(str(folder)))], NOW)
    assert chart(page, "Loss")["lines"][0]["values"] == [9.0]
    assert chart(page, "Learning")["lines"][0]["values"] == [0.5]


def test_no_run_and_an_empty_one_are_pages_too(tmp_path):
    assert content([], NOW)["charts"] == []
    (tmp_path / "empty").mkdir()
    page = content([load(Folder(str(tmp_path / "empty")))], NOW)
    assert page["runs"][0]["state"] == "unknown"
    assert page["charts"] == []


def test_it_is_json_even_of_numbers_that_are_none(tmp_path):
    loss = {"loss": [(1, math.nan), (2, math.inf), (3, 1 / 3)]}
    page = content([load(Folder(str(fake_runs.run(tmp_path / "r", {"train": loss}))))], NOW)
    assert chart(json.loads(json.dumps(page, allow_nan=False)), "Loss")["lines"][0]["values"] == [
        None,
        None,
        0.333333,
    ]
    assert plain(None) is None


def test_lines_of_json_serve_where_there_are_no_event_files(tmp_path):
    line = lambda **more: json.dumps({"time": fake_runs.BEGIN, "folder": "train", **more})
    text = "\n".join([line(step=1, loss=5.0, z_loss=None), "cut sho", line(step=2, loss=4.0)])
    (tmp_path / "metrics.jsonl").write_text(text)
    tasks = tmp_path / "inference_eval/qa-metrics.jsonl"
    tasks.parent.mkdir()
    tasks.write_text('{"step": 5, "f1": 0.5}\n')
    run = load(Folder(str(tmp_path)))
    assert run.series["train"]["loss"].values.tolist() == [5.0, 4.0]
    assert np.isnan(run.series["train"]["z_loss"].values[0])
    assert run.notes == ["metrics.jsonl: 1 lines are broken."]
    assert content([run], NOW)["runs"][0]["tables"][0]["rows"] == [[5, 0.5]]


def test_a_broken_file_is_named_and_the_rest_is_shown(tmp_path):
    folder = fake_runs.complete(tmp_path / "tiny")
    path = folder / "train/events.out.tfevents.2.host"
    fake_runs.event_file(path, [("accuracy", 1100, 0.9, fake_runs.BEGIN + 1100)], more=b"\0" * 99)
    run = load(Folder(str(folder)))
    assert run.notes == [f"train/{path.name}: 99 of {path.stat().st_size} bytes are broken."]
    assert run.series["train"]["accuracy"].steps[-1] == 1100


def test_checkpoints_are_left_aside_and_unchanged_files_are_read_once(tmp_path, monkeypatch):
    folder = fake_runs.complete(tmp_path / "tiny")
    fake_runs.event_file(folder / "checkpoint_5/events.out.tfevents.9", [("loss", 1, 1.0)])
    cache, reads = Cache(), []
    monkeypatch.setattr("report.run.read_events", _counting(reads))
    for _ in range(3):
        load(Folder(str(folder)), cache)
    assert len(reads) == 3  # training, validation, the task
    fake_runs.event_file(folder / "train/events.out.tfevents.2.host", [("loss", 1, 1.0)])
    load(Folder(str(folder)), cache)
    assert len(reads) == 4


def _counting(reads):
    from t5x.monitoring.event_files import read_events

    return lambda data: reads.append(len(data)) or read_events(data)


def test_many_lines_share_the_points_of_a_page(tmp_path):
    steps = range(3000)
    tags = {f"t{i}": [(s, float(s % 7)) for s in steps] for i in range(3)}
    run = load(Folder(str(fake_runs.run(tmp_path / "r", {"train": tags}))))
    for chart_ in charts_of([run]):
        assert 1000 < len(chart_.lines[0].series) <= 2500


def test_a_bucket_is_read_like_a_folder(tmp_path):
    """Through fsspec, as gs:// is; here one in memory."""
    import fsspec

    local = fake_runs.complete(tmp_path / "tiny")
    fsspec.filesystem("memory").put(str(local), "/bucket/tiny", recursive=True)
    far, near = load(Folder("memory://bucket/tiny")), load(Folder(str(local)))
    assert Folder("memory://bucket/tiny").exists()
    assert not Folder("memory://bucket/other").exists()
    pages = [content([run], NOW) for run in (far, near)]
    assert pages[0]["charts"] == pages[1]["charts"]
    assert pages[0]["runs"][0] | {"path": ""} == pages[1]["runs"][0] | {"path": ""}
