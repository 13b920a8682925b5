"""Events are lines that survive restarts and broken ends."""

import json
import time

import numpy as np
import pytest

from t5x.monitoring.event_log import NAME, EventLog, numeric_metrics


def events(folder):
    return [json.loads(line) for line in (folder / NAME).read_text().splitlines()]


@pytest.fixture
def log(tmp_path):
    made = EventLog(str(tmp_path))
    yield made
    made.close()


def test_an_event_has_its_time_and_fields(log):
    before = time.time()
    log.write("save", step=3, seconds=0.5)
    with log.timed("evaluate", step=4, task="ă"):
        pass
    with pytest.raises(KeyError), log.timed("evaluate"):
        raise KeyError
    log.write("infill", sentences={"a": "b\u2028c"})  # an end of a line to Python
    (saved,), (evaluated,), (infilled,) = map(log.events, ("save", "evaluate", "infill"))
    assert before <= saved.pop("time") <= time.time()
    assert saved == {"event": "save", "step": 3, "seconds": 0.5}
    assert (evaluated["event"], evaluated["task"]) == ("evaluate", "ă")
    assert 0 <= evaluated["seconds"] < 60
    assert infilled["sentences"] == {"a": "b\u2028c"}


def test_a_start_logs_its_configuration_only_if_it_is_new(tmp_path):
    for config in ("a = 1", "a = 1", "a = 2", "a = 1", None):
        log = EventLog(str(tmp_path))
        log.start(config, step=0)
        log.close()
    kept = [event.get("config") for event in events(tmp_path)]
    assert kept == ["a = 1", None, "a = 2", "a = 1", None]


def test_a_log_that_cannot_be_written_stops_no_run(tmp_path):
    (tmp_path / NAME).mkdir()
    log = EventLog(str(tmp_path))
    log.write("save", step=1)
    log.close()


def test_metrics_are_found_by_step_and_the_last_ones_count(log):
    for step, value in ((2, 0.5), (4, 0.25), (4, 0.75)):
        with log.timed("infer", step=step) as noted:
            noted["metrics"] = numeric_metrics(
                {"toy": {"exact": np.float32(value), "text": "a", "n": 3}}
            )
    log.write("infer", step=6)  # of a run that noted no metrics
    exact = {
        step: found["toy"]["exact"] for step, found in log.metrics_by_step("infer").items() if found
    }
    assert exact == {2: 0.5, 4: 0.75}
    assert log.metrics_by_step("infer")[4] == {"toy": {"exact": 0.75, "n": 3.0}}
    assert log.metrics_by_step("evaluate") == {}


def test_a_saved_step_is_unmeasured_until_it_is_measured_or_the_run_has_ended(log):
    for step in (4, 6, 8):
        log.write("save", step=step)
    log.write("evaluate", step=4)  # one of several
    log.write("measured", step=6)
    log.write("end", step=8)
    assert [step for step in (2, 4, 6, 8) if log.saved_unmeasured(step)] == [4]


def test_a_line_cut_short_costs_no_other(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"event": "start", "st')
    log = EventLog(str(tmp_path))
    log.write("start", step=3)
    log.write("start", step=4)
    assert [one["step"] for one in log.events("start")] == [3, 4]
    log.close()
