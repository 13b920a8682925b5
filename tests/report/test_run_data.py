"""A run is read from its folder, whatever is damaged or missing in it."""

import json

import fsspec
import numpy as np
import pytest

from fakes import fake_runs
from report.page import content
from report.phases import joined
from report.run_data import Folder, load
from t5x.monitoring.event_files import read_events


def test_json_lines_are_read_without_event_files(tmp_path):
    line = lambda **more: json.dumps({"time": fake_runs.BEGIN, "folder": "train", **more})
    text = "\n".join([line(step=1, loss=5.0, z_loss=None), "trunca", line(step=2, loss=4.0)])
    (tmp_path / "metrics.jsonl").write_text(text)
    tasks = tmp_path / "inference_eval/qa-metrics.jsonl"
    tasks.parent.mkdir()
    tasks.write_text('{"step": 5, "f1": 0.5}\n')
    run = load(Folder(str(tmp_path)))
    assert run.series["train"]["loss"].values.tolist() == [5.0, 4.0]
    assert np.isnan(run.series["train"]["z_loss"].values[0])
    assert run.notes == ["metrics.jsonl: 1 lines are damaged."]
    assert run.series["inference_eval/qa"]["f1"].values.tolist() == [0.5]


@pytest.mark.parametrize("kind", ["jsonl", "events"])
def test_another_split_in_a_folder_of_the_run_is_another_task(tmp_path, kind):
    """launch/finetune.sh measures the test split in MODEL_DIR/test."""
    fake_runs.run(tmp_path, {"train": {"loss": [(3, 1.0)]}})
    for place, rows in (("", [(1, 0.1), (2, 0.2), (3, 0.3)]), ("test/", [(2, 0.9)])):
        folder = tmp_path / f"{place}inference_eval"
        if kind == "events":
            scalars = [("f1", step, value, fake_runs.BEGIN + step) for step, value in rows]
            fake_runs.event_file(folder / "qa/events.out.tfevents.1", scalars)
        else:
            folder.mkdir(parents=True)
            lines = [json.dumps({"step": step, "f1": value}) for step, value in rows]
            (folder / "qa-metrics.jsonl").write_text("\n".join(lines))
    page = content([load(Folder(str(tmp_path)))], fake_runs.BEGIN)
    tables = {table["task"]: table["rows"] for table in page["runs"][0]["tables"]}
    assert tables == {
        "qa": [[1, 0.1], [2, 0.2], [3, 0.3]],
        "test/inference_eval/qa": [[2, 0.9]],
    }


def test_checkpoints_may_be_evaluated_in_any_order(tmp_path):
    """In a folder of t5x.eval no restart has repeated the steps before."""
    rows = [(3000, 0.3), (1000, 0.1), (2000, 0.2), (1000, 0.15)]
    scalars = [("eval/f1", *row, fake_runs.BEGIN + i) for i, row in enumerate(rows)]
    fake_runs.event_file(tmp_path / "inference_eval/qa/events.out.tfevents.1", scalars)
    lines = [json.dumps({"step": step, "exact": value}) for step, value in rows]
    (tmp_path / "inference_eval/qa-metrics.jsonl").write_text("\n".join(lines))
    (run,) = joined([load(Folder(str(tmp_path)))])
    for tag in ("eval/f1", "exact"):
        series = run.series["inference_eval/qa"][tag]
        assert series.steps.tolist() == [1000, 2000, 3000]
        assert series.values.tolist() == pytest.approx([0.15, 0.2, 0.3])
    (table,) = content([run], fake_runs.BEGIN)["runs"][0]["tables"]
    assert [row[0] for row in table["rows"]] == [1000, 2000, 3000]


def test_a_damaged_file_is_named_and_the_rest_is_read(tmp_path):
    folder = fake_runs.complete(tmp_path / "tiny")
    path = folder / "train/events.out.tfevents.2.host"
    fake_runs.event_file(path, [("accuracy", 1100, 0.9, fake_runs.BEGIN + 1100)], more=b"\0" * 99)
    run = load(Folder(str(folder)))
    (note,) = run.notes
    assert note.startswith(f"train/{path.name}: 99 of {path.stat().st_size} bytes")
    assert run.series["train"]["accuracy"].steps[-1] == 1100


def test_checkpoints_are_skipped_and_unchanged_files_are_read_once(tmp_path, monkeypatch):
    folder = fake_runs.complete(tmp_path / "tiny")
    fake_runs.event_file(folder / "checkpoint_5/events.out.tfevents.9", [("loss", 1, 1.0)])
    cache, reads = {}, []
    counting = lambda data: reads.append(len(data)) or read_events(data)
    monkeypatch.setattr("report.run_data.read_events", counting)
    for _ in range(3):
        load(Folder(str(folder)), cache)
    assert len(reads) == 3  # training, validation, the task
    fake_runs.event_file(folder / "train/events.out.tfevents.2.host", [("loss", 1, 1.0)])
    load(Folder(str(folder)), cache)
    assert len(reads) == 4


def test_a_bucket_is_read_like_a_folder(tmp_path):
    """Through fsspec, as gs:// is; this one is in memory."""
    local = fake_runs.complete(tmp_path / "tiny")
    fsspec.filesystem("memory").put(str(local), "/bucket/tiny", recursive=True)
    far, near = load(Folder("memory://bucket/tiny")), load(Folder(str(local)))
    assert Folder("memory://bucket/tiny").exists()
    assert not Folder("memory://bucket/other").exists()
    pages = [content([run], fake_runs.BEGIN) for run in (far, near)]
    assert pages[0]["charts"] == pages[1]["charts"]
    assert pages[0]["runs"][0] | {"path": ""} == pages[1]["runs"][0] | {"path": ""}
