"""Each writer writes its format, and wandb is imported only where it is used."""

import functools
import json
import sys
import types

import jax
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from fakes.refuses import refuses
from t5x.monitoring import metric_writers
from t5x.monitoring.metric_writers import MetricWriters


def write(names, folder):
    made = MetricWriters(names, str(folder))
    made("train").write_scalars(100, {"loss": 5.5, "timing/seqs_per_second": 2.0})
    made("train").write_texts(100, {"config": "a = 1"})
    made("training_eval/toy").write_scalars(100, {"loss": float("nan")})
    made.flush()
    made.close()


def test_tensorboard_gets_a_folder_each(tmp_path):
    write(["tensorboard"], tmp_path)
    read = EventAccumulator(str(tmp_path / "train")).Reload()
    (event,) = read.Tensors("loss")
    assert (event.step, tensor_util.make_ndarray(event.tensor_proto)) == (100, 5.5)
    assert {"loss", "timing/seqs_per_second", "config"} <= set(read.Tags()["tensors"])
    assert list((tmp_path / "training_eval/toy").iterdir())


def test_lines_of_json(tmp_path):
    write(["jsonl"], tmp_path)
    train, validation = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert train.pop("time") > 1.7e9
    expected = {"folder": "train", "step": 100, "loss": 5.5, "timing/seqs_per_second": 2.0}
    assert train == expected
    assert validation["loss"] is None  # JSON knows no NaN
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.fixture
def wandb(monkeypatch):
    """A module that records the calls of its functions."""
    module, calls = types.ModuleType("wandb"), []
    module.run = None

    def init(**settings):
        module.run = "run"
        calls.append(("init", settings))

    module.init = init
    module.define_metric = lambda *a, **k: calls.append(("define", a, k))
    module.log = lambda values: calls.append(("log", values))
    module.finish = lambda: (calls.append("finish"), setattr(module, "run", None))
    module.Html = lambda text: f"<{text}>"
    module.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return calls


def test_wandb_has_one_run_a_folder_that_a_restart_resumes(wandb, tmp_path):
    for _ in range(2):
        metric_writers.check_names(["wandb"])
        write(["wandb"], tmp_path / "my run")
    inits = [call[1] for call in wandb if call[0] == "init"]
    assert len(inits) == 2
    assert inits[0] == inits[1]
    assert (inits[0]["name"], inits[0]["resume"]) == ("my run", "allow")
    logs = [call[1] for call in wandb if call[0] == "log"]
    assert logs[0] == {"step": 100, "train/loss": 5.5, "train/timing/seqs_per_second": 2.0}
    assert logs[1]["train/config"] == "<a = 1>"
    assert "training_eval/toy/loss" in logs[2]
    assert wandb.count("finish") == 2


def test_wandb_made_by_gin_has_its_own_settings(wandb, tmp_path):
    write([functools.partial(metric_writers.WandbWriter, project="mine")], tmp_path)
    assert wandb[0][1]["project"] == "mine"


@pytest.fixture
def trackio(monkeypatch):
    """A module whose runs record what is done with them."""
    calls = []

    class Run:
        log = staticmethod(lambda metrics, step: calls.append(("log", step, metrics)))
        finish = staticmethod(lambda: calls.append("finish"))

    module = types.ModuleType("trackio")
    module.init = lambda **settings: (calls.append(("init", settings)), Run())[1]
    module.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "trackio", module)
    return calls


def test_trackio_has_one_run_a_folder_that_a_restart_resumes(trackio, tmp_path):
    for _ in range(2):
        metric_writers.check_names(["trackio"])
        write(["trackio"], tmp_path / "my run")
    inits = [call[1] for call in trackio if call[0] == "init"]
    assert inits[0] == inits[1]
    assert inits[0]["name"].startswith("my run")
    assert inits[0]["resume"] == "allow"
    logs = [call for call in trackio if call[0] == "log"]
    assert logs[0] == ("log", 100, {"train/loss": 5.5, "train/timing/seqs_per_second": 2.0})
    assert "training_eval/toy/loss" in logs[1][2]
    assert trackio.count("finish") == 2


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_without_its_package_one_sentence_says_what_to_install(name):
    assert name not in sys.modules
    for names in (["tensorboard", name], [metric_writers.WRITERS[name]]):
        with refuses("watch.Watch.writers") as refusal:
            metric_writers.check_names(names)
        assert f"pip install {name}" in refusal.value.to_set


def test_other_hosts_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    write(["tensorboard", "jsonl"], tmp_path)
    assert not list(tmp_path.iterdir())
