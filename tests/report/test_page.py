"""A page's content is JSON and describes each run, whatever a run lacks."""

import json
import math

import pytest

from fakes import fake_runs
from report.page import content, plain
from report.run_data import Folder, load

NOW = fake_runs.BEGIN + 2000


@pytest.fixture
def loaded(tmp_path):
    return load(Folder(str(fake_runs.complete(tmp_path / "tiny"))))


def chart(page, title):
    (found,) = [c for c in page["charts"] if c["title"].startswith(title)]
    return found


def test_a_run_is_described(loaded):
    run = content([loaded], NOW)["runs"][0]
    assert (run["name"], run["step"], run["total"], run["state"]) == ("tiny", 1000, 1000, "ended")
    assert (run["device"], run["restarts"], run["rate"]) == ("4 × TPU v4", 1, 2.0)
    assert run["corpora"] == [{"corpus": "my_corpus", "records": 10_000.0, "epoch": 0.0}]
    assert run["changes"][0]["rows"] == [("TRAIN_STEPS", "500", "1000")]
    assert run["tables"] == [
        {"task": "qa", "columns": ["step", "exact"], "rows": [[500, 0.25], [1000, 0.75]]}
    ]
    assert [s[0] for s in run["spans"]].count("running") == 2
    assert run["infills"]["Merg la <extra_id_0> azi."][-1] == (1000, "Merg la [școală <b>] azi.")


def test_a_timeline_begins_with_its_first_span(tmp_path):
    """Compiling takes 90 s, and its event is written at the end."""
    events = [{"event": "start", "step": 0}, {"event": "compile", "seconds": 90.0, "time": NOW}]
    events[0]["time"] = NOW - 80
    run = load(Folder(str(fake_runs.run(tmp_path / "r", {}, events))))
    spans = content([run], NOW)["runs"][0]["spans"]
    assert [(kind, begin) for kind, begin, *_ in spans] == [("compile", 0.0), ("running", 10.0)]


def test_what_was_read_counts_over_starts_of_equal_length(tmp_path):
    starts = [{"event": "start", "step": step, "time": fake_runs.BEGIN + step} for step in (0, 10)]
    read = {"data/records/a": [(10, 100.0), (20, 100.0)]}  # killed after each entry of its log
    run = load(Folder(str(fake_runs.run(tmp_path / "killed", {"train": read}, starts))))
    page = content([run], NOW)
    assert page["runs"][0]["corpora"] == [{"corpus": "a", "records": 200.0}]
    assert chart(page, "Records read")["lines"][0]["values"] == [100.0, 200.0]


def test_what_was_read_is_shown_by_phase(tmp_path):
    start = {"event": "start", "step": 0, "phases": {"0": {"a": 1, "b": 0}, "20": {"a": 0, "b": 1}}}
    read = {
        "data/records/a": [(10, 100.0), (20, 200.0), (30, 40.0)],  # a restart counts from 0
        "data/records/b": [(10, 0.0), (20, 0.0), (30, 70.0)],
    }
    run = load(Folder(str(fake_runs.run(tmp_path / "phased", {"train": read}, [start]))))
    assert content([run], NOW)["runs"][0]["corpora"] == [
        {"phase": "steps 0 to 20", "corpus": "a", "records": 200.0},
        {"phase": "steps 0 to 20", "corpus": "b", "records": 0.0},
        {"phase": "steps 20 to 30", "corpus": "a", "records": 40.0},
        {"phase": "steps 20 to 30", "corpus": "b", "records": 70.0},
    ]


def test_no_run_and_an_empty_one_are_pages_too(tmp_path):
    assert content([], NOW)["charts"] == []
    (tmp_path / "empty").mkdir()
    page = content([load(Folder(str(tmp_path / "empty")))], NOW)
    assert page["runs"][0]["state"] == "unknown"
    assert page["charts"] == []


def test_nan_and_infinity_become_null(tmp_path):
    loss = {"loss": [(1, math.nan), (2, math.inf), (3, 1 / 3)]}
    page = content([load(Folder(str(fake_runs.run(tmp_path / "r", {"train": loss}))))], NOW)
    assert chart(json.loads(json.dumps(page, allow_nan=False)), "Loss")["lines"][0]["values"] == [
        None,
        None,
        0.333333,
    ]
    assert plain(None) is None


def test_runs_of_one_name_are_named_by_their_paths(tmp_path, loaded):
    same = load(Folder(str(fake_runs.complete(tmp_path / "deep/tiny"))))
    names = [run["name"] for run in content([loaded, same], NOW)["runs"]]
    assert names == [loaded.path, same.path]


def test_the_last_row_of_a_table_is_the_baseline(tmp_path):
    metrics = {"f1": [(1, 0.25), (2, 0.5)], "recall": [(2, 0.75)], "baseline/f1": [(2, 0.4)]}
    folder = fake_runs.run(tmp_path / "r", {"inference_eval/qa": metrics})
    (table,) = content([load(Folder(str(folder)))], NOW)["runs"][0]["tables"]
    assert table["columns"] == ["step", "f1", "recall"]
    assert table["rows"] == [[1, 0.25, None], [2, 0.5, 0.75], ["baseline", 0.4, None]]


def test_a_classifier_has_its_last_confusion_matrix(tmp_path):
    classes = ("a", "a/b", "так")
    metrics = {f"f1/{name}": [(1, 0.5), (2, 0.75)] for name in classes}
    counts = {(x, y): 10 * i + j for i, x in enumerate(classes) for j, y in enumerate(classes)}
    metrics |= {f"confusion/{x}/{y}": [(1, 99), (2, n)] for (x, y), n in counts.items()}
    metrics |= {f"confusion/{x}/(no class)": [(2, 0)] for x in classes}
    folder = fake_runs.run(tmp_path / "r", {"inference_eval/qa": metrics})
    page = content([load(Folder(str(folder)))], NOW)
    steps, matrix = page["runs"][0]["tables"]
    assert steps["columns"] == ["step", *(f"f1/{name}" for name in classes)]
    assert matrix["columns"][1:] == [*classes, "(no class)"]
    assert matrix["rows"] == [[x, *(counts[x, y] for y in classes), 0] for x in classes]
    assert {chart["title"] for chart in page["charts"]} == {f"qa: f1/{name}" for name in classes}


def test_long_tables_and_timelines_are_thinned(tmp_path):
    start = {"event": "start", "step": 0}
    saves = [{"event": "save", "step": s, "seconds": s / 100} for s in range(2500)]
    metric = {"f1": [(s, 0.5) for s in range(1000)]}
    folder = fake_runs.run(tmp_path / "long", {"inference_eval/qa": metric}, [start, *saves])
    run = content([load(Folder(str(folder)))], NOW)["runs"][0]
    kinds = [kind for kind, *_ in run["spans"]]
    assert (len(kinds), kinds.count("running")) == (2000, 1)
    assert min(seconds for _, _, seconds, *_ in run["spans"]) > 4  # the shortest are left out
    rows = run["tables"][0]["rows"]
    assert (len(rows), rows[0][0], rows[-1][0]) == (200, 0, 999)
