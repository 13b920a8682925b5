"""The evaluation script measures each checkpoint by its task's metrics."""

import functools
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
import seqio

from fakes import toy
from fakes.refuses import refuses
from t5x import eval as eval_script
from t5x.checkpointing.config import RestoreCheckpointConfig
from t5x.partitioning import PjitPartitioner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Checkpoints of steps 3 and 7 with different parameters."""
    return toy.save(tmp_path_factory.mktemp("run"), 3, 7)


def evaluate(folder, output, mode="all", **changes):
    arguments = {
        "model": toy.shared_model(),
        "dataset_cfg": toy.data("validation", batch_size=8),
        "restore_checkpoint_cfg": RestoreCheckpointConfig(folder, mode=mode),
        "partitioner": PjitPartitioner(devices=jax.devices()[:2]),
        "output_dir": str(output),
        "inference_evaluator_cls": functools.partial(
            seqio.Evaluator, logger_cls=[seqio.JSONLogger]
        ),
        "summarize_config_fn": lambda *_: None,
    }
    return eval_script.evaluate(**{**arguments, **changes})


@pytest.fixture(scope="module")
def evaluated(folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("output")
    return output, evaluate(folder, output)


def test_every_checkpoint_is_evaluated_in_turn(evaluated):
    _, results = evaluated
    assert list(results) == [3, 7]
    values = [results[step][toy.TASK] for step in (3, 7)]
    assert all(v["exact"] == 0 for v in values)
    assert values[0]["likelihood"] != values[1]["likelihood"]


def test_metrics_and_predictions_are_written(evaluated):
    output, results = evaluated
    folder = output / "inference_eval"
    read = lambda name: [json.loads(x) for x in (folder / name).read_text().splitlines()]
    lines = read(f"{toy.TASK}-metrics.jsonl")
    assert [line["step"] for line in lines] == [3, 7]
    assert lines[1]["likelihood"] == pytest.approx(results[7][toy.TASK]["likelihood"])
    predictions = read(f"{toy.TASK}-000007.jsonl")
    assert [p["target"] for p in predictions] == toy.texts("validation")
    generated = (output / "generated_predictions.jsonl").read_text().splitlines()
    generated = [json.loads(line) for line in generated]
    assert generated == [{"task": toy.TASK, "step": 7, **p} for p in predictions]


def test_the_latest_alone_and_another_mesh_give_the_same(folder, evaluated, tmp_path, capsys):
    partitioner = PjitPartitioner(num_partitions=4)
    results = evaluate(folder, tmp_path, "latest", partitioner=partitioner)
    assert list(results) == [7]
    found = results[7][toy.TASK]["likelihood"]
    np.testing.assert_allclose(found, evaluated[1][7][toy.TASK]["likelihood"], rtol=1e-4)
    assert f"likelihood {found:.4g}" in capsys.readouterr().out


def test_skipped_records_are_reported(folder, tmp_path, capsys, monkeypatch):
    source = toy.data().provider.source
    found = {"read": 28, "skipped_empty": 8, "examples": 40, "cut_inputs": 4}
    monkeypatch.setattr(source, "counts", found)
    evaluate(folder, tmp_path, "latest")
    assert "8 of 28 records skipped" in capsys.readouterr().out


def test_a_dry_run_decodes_nothing(folder, tmp_path):
    assert evaluate(folder, tmp_path / "new", dry_run=True) == {}
    assert not (tmp_path / "new").exists()


def test_checkpoints_of_one_step_would_overwrite_each_other(folder, tmp_path):
    first, other = f"{folder}/checkpoint_3", tmp_path / "other/checkpoint_3"
    shutil.copytree(first, other)
    for second in (str(other), f"{first}/"):
        paths = RestoreCheckpointConfig([first, f"{folder}/checkpoint_7", second], "specific")
        with refuses("RestoreCheckpointConfig.path", second.rstrip("/")):
            evaluate(folder, tmp_path / "out", restore_checkpoint_cfg=paths)
    assert not (tmp_path / "out/inference_eval").exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_folder_of_a_run_keeps_its_configuration(folder, tmp_path, dry_run):
    (tmp_path / "model-info.txt").write_text("parameters: 5\n")
    (tmp_path / "config.gin").write_text("A = 1\n")
    overwrite = lambda run, *_: pathlib.Path(run, "config.gin").write_text("")
    with refuses("EVAL_OUTPUT_DIR or INFER_OUTPUT_DIR", str(tmp_path)):
        evaluate(folder, tmp_path, dry_run=dry_run, summarize_config_fn=overwrite)
    assert (tmp_path / "config.gin").read_text() == "A = 1\n"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dataset_cfg": toy.data("validation", batch_size=7)}, "batch_size"),
        ({"dataset_cfg": toy.data("validation", mixture_or_task_name=toy.BARE)}, "toy_bare"),
        ({"model": toy.model(vocab_size=128)}, "network.T5Config.vocab_size"),
        ({"mode": "specific"}, "checkpoint_"),
        ({"model": toy.model(emb_dim=32)}, "another shape"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(folder, tmp_path, changes, named):
    """Beside what tests/fakes/bad_values.py holds."""
    with pytest.raises(ValueError, match=named) as caught:
        evaluate(**{"folder": folder, "output": tmp_path, **changes})
    assert "\n" not in str(caught.value)
