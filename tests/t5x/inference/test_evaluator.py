"""A task is measured by its own metrics, and the predictions are joined in one file."""

import functools
import json

import jax
import pytest
import seqio

from fakes import toy
from t5x.inference.evaluator import (
    PREDICTIONS_FILE,
    InferenceEvaluator,
    publish_predictions,
)
from t5x.monitoring.compile_stats import CompileStats
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs


@pytest.fixture(scope="module")
def case():
    """A model and its state over two devices."""
    model, partitioner = toy.shared_model(), PjitPartitioner(devices=jax.devices()[:2])
    return model, partitioner, toy.state(state_specs(model, partitioner))


def test_metrics_are_computed_in_the_examples_order(case, monkeypatch, tmp_path):
    """A predictor that copies its inputs is right everywhere; one that shifts them, nowhere."""
    model, partitioner, state = case
    cfg = toy.data("validation", batch_size=6)
    evaluator = InferenceEvaluator(cfg, seqio.Evaluator, model, partitioner, str(tmp_path))

    def copy(mode, params, examples, *_):
        examples = list(examples)
        if mode == "score":
            return [float(i) for i in range(len(examples))]
        return [example["encoder_input_tokens"] for example in examples]

    monkeypatch.setattr(evaluator, "predictor", copy)
    results = evaluator.evaluate(state.params, 0)
    assert results == {toy.TASK: {"exact": 1.0, "likelihood": 9.5}}
    shifted = lambda mode, *args: copy(mode, *args)[1:] + copy(mode, *args)[:1]
    monkeypatch.setattr(evaluator, "predictor", shifted)
    assert evaluator.evaluate(state.params, 0)[toy.TASK]["exact"] < 0.5


@pytest.mark.parametrize("host", [0, 1])
def test_only_the_first_host_writes_predictions(case, tmp_path, monkeypatch, host):
    model, partitioner, _ = case
    monkeypatch.setattr(jax, "process_index", lambda: host)
    writing = functools.partial(seqio.Evaluator, logger_cls=[seqio.JSONLogger])
    cfg = toy.data("validation", batch_size=6)
    evaluator = InferenceEvaluator(cfg, writing, model, partitioner, str(tmp_path))
    assert len(evaluator.evaluator.loggers) == 1 - host
    assert [path.name for path in tmp_path.iterdir()] == ["inference_eval"][host:]


def test_a_second_evaluation_compiles_nothing(case, tmp_path):
    model, partitioner, state = case
    cfg = toy.data("validation", batch_size=6)
    evaluator = InferenceEvaluator(cfg, seqio.Evaluator, model, partitioner, str(tmp_path))
    other = jax.tree.map(lambda x: x + 1, state.params)
    stats = CompileStats()
    assert set(evaluator.evaluate(state.params, 0)) == {toy.TASK}
    first = len(stats.seconds)
    assert set(evaluator.evaluate(other, 1)) == {toy.TASK}
    assert len(stats.seconds) == first > 0


def logged(folder, task, step, predictions):
    (folder / "inference_eval").mkdir(exist_ok=True)
    lines = (json.dumps({"input": {}, "prediction": each}) + "\n" for each in predictions)
    (folder / "inference_eval" / f"{task}-{step:06}.jsonl").write_text("".join(lines))


def read(folder):
    lines = (folder / PREDICTIONS_FILE).read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [(one["task"], one["step"], one["prediction"]) for one in found]


def test_the_predictions_of_an_evaluation_are_joined_in_one_file(tmp_path):
    logged(tmp_path, "a", 10, ["unu", "ș\n"])
    logged(tmp_path, "b", 10, ["doi"])
    logged(tmp_path, "b", 2000000, ["trei"])
    publish_predictions(str(tmp_path), ["a", "b"], 10)
    assert read(tmp_path) == [("a", 10, "unu"), ("a", 10, "ș\n"), ("b", 10, "doi")]
    publish_predictions(str(tmp_path), ["a", "b"], 2000000)
    assert read(tmp_path) == [("b", 2000000, "trei")]
    publish_predictions(str(tmp_path), ["a", "b"], 7)  # whose loggers wrote no predictions
    assert read(tmp_path) == [("b", 2000000, "trei")]
