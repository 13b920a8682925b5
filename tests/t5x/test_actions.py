"""A run ends when its metric has been no better for so many evaluations, not sooner."""

import json
import math

import clu.values
import numpy as np
import pytest

from fakes import toy
from fakes.refuses import refuses
from t5x import actions, trainer
from t5x.monitoring.event_log import numeric_metrics

LOSS = "unnormalized_loss_per_target_token"


def steps_until_the_end(values, **settings):
    action = trainer.EarlyStoppingAction(metric=("toy", "exact"), **settings)
    for step, value in enumerate(values, 1):
        # As upstream's trainer gives it, and as ours does.
        given = clu.values.Scalar(value) if step % 2 else float(value)
        if action.run(None, {"toy": {"exact": given}}):
            return step
    return None


@pytest.mark.parametrize(
    ("values", "settings", "end"),
    [
        ([1, 2, 3, 4], {"mode": "max", "patience": 2}, None),
        ([1, 2, 2, 2, 2], {"mode": "max"}, 4),
        ([9, 5, 6, 5, 6, 5, 5], {"mode": "max"}, 7),  # better than the one before, not than 9
        ([3, 2, 2.5], {"mode": "min", "patience": 2}, 3),
        ([3, 4], {"mode": "min", "patience": 1}, 1),
        ([1.0, 1.05, 1.2], {"mode": "max", "patience": 2, "atol": 0.1}, 2),
        ([1.0, 1.11, 1.12], {"mode": "max", "patience": 2, "atol": 0.1}, 3),
        ([10, 11.5, 13], {"mode": "max", "patience": 2, "rtol": 0.1}, None),
        ([-10, -9.5], {"mode": "max", "patience": 2, "rtol": 0.1}, 2),
        ([1, math.nan, math.nan], {"mode": "min", "patience": 2}, None),
    ],
)
def test_it_ends_when_each_value_is_no_better_than_the_one_before(values, settings, end):
    assert steps_until_the_end(values, **settings) == end


@pytest.mark.parametrize("at", range(6))
def test_what_was_measured_before_counts(at):
    values = [1, 2, 1, 2, 3, 2, 2, 9]
    past = [{"toy": {"exact": float(value)}} for value in values]
    action = trainer.EarlyStoppingAction(("toy", "exact"), "max", patience=3)
    action.run(None, past[2])  # of a course that was left
    ends = [action.recall(past[:at]), *(action.run(None, one) for one in past[at:])]
    assert at - 1 + ends.index(True) == 6


def test_a_run_that_had_ended_has_ended():
    action = trainer.EarlyStoppingAction(("toy", "exact"), "max", patience=2)
    measured = {20: {"toy": {"exact": 0.5}}, 10: {"toy": {"exact": 0.5}}, 30: {}}
    recalled = lambda step: actions.recall(
        {"INFER_EVAL": [action, object()]}, {"infer": measured, "evaluate": {}}.get, step
    )
    assert [recalled(step) for step in (0, 10, 19, 20, 30)] == [False, False, False, True, True]


def test_a_run_that_is_killed_stops_where_it_would_have(tmp_path, monkeypatch):
    """Killed while 8 is evaluated, after its checkpoint: the run ends at 12."""
    seen, killed = [], []

    def evaluate(self, batches):
        seen.append(int(self.state.step))
        if seen[-1] == 8 and not killed:
            killed.append(8)
            raise MemoryError
        return {LOSS: {4: 1.0, 8: 3.0, 12: 3.0}.get(seen[-1], 0.0), "accuracy": 0.0}

    monkeypatch.setattr(trainer.Trainer, "evaluate", evaluate)

    def train():
        action = trainer.EarlyStoppingAction((toy.TASK, LOSS), "min", patience=3)
        return toy.train(
            tmp_path,
            train_eval_dataset_cfg=toy.data("validation"),
            actions={"TRAIN_EVAL": [action]},
            total_steps=40,
        )[0]

    with pytest.raises(MemoryError):
        train()
    assert train() == 12
    assert seen == [4, 8, 8, 12]
    assert train() == 12  # and once more it is known at once
    assert seen == [4, 8, 8, 12]


@pytest.mark.parametrize("first", [True, False])
def test_an_evaluation_that_is_repeated_counts_once(tmp_path, monkeypatch, first):
    """Killed after the loss of the first evaluation, or of that at 8, was logged."""
    at, seen, killed = 0 if first else 8, [], []

    def evaluate(self, batches):
        seen.append(int(self.state.step))
        return {LOSS: 100.0 - seen[-1], "accuracy": 0.0}

    monkeypatch.setattr(trainer.Trainer, "evaluate", evaluate)

    class Kill:
        def run(self, train_state, metrics_by_task):
            if seen[-1] == at and not killed:
                killed.append(at)
                raise MemoryError
            return False

    def train():
        action = trainer.EarlyStoppingAction((toy.TASK, LOSS), "min", patience=2)
        return toy.train(
            tmp_path,
            train_eval_dataset_cfg=toy.data("validation"),
            actions={"TRAIN_EVAL": [action, Kill()]},
            run_eval_before_training=first,
            total_steps=12,
        )[0]

    with pytest.raises(MemoryError):
        train()
    assert train() == 12, "the loss falls at every evaluation"
    assert seen.count(at) == 2


def test_a_metric_that_is_not_measured_is_named_with_the_known(caplog):
    measured = {"toy": {"loss": 1.0}}
    with refuses("trainer.EarlyStoppingAction.metric", ("toy", "exact")):
        actions.EarlyStoppingAction(("toy", "exact"), "max").run(None, measured)
    # As upstream, whose recipes name losses of tasks that one run has and another lacks.
    assert not trainer.TerminateOnNanAction("toy", "exact").run(None, measured)
    assert "'exact'" in caplog.text
    assert "'loss'" in caplog.text


def test_a_metric_without_its_task_is_refused():
    with refuses("trainer.EarlyStoppingAction.metric", "exact"):
        trainer.EarlyStoppingAction(metric="exact", mode="max")


@pytest.mark.parametrize("mode", ["EVAL", "INFER_EVAL"])
def test_actions_that_would_never_be_asked_are_refused(mode):
    actions.check_actions(None, ["TRAIN"])
    actions.check_actions({"TRAIN": []}, ["TRAIN"])
    with refuses("train.actions") as refusal:
        actions.check_actions({mode: []}, ["TRAIN", "TRAIN_EVAL"])
    assert repr(mode) in refusal.value.why


@pytest.mark.parametrize("value", [3, True, "0.5", np.ones(2), np.int32(1), None])
def test_a_value_of_another_type_does_not_count(value, caplog):
    of = lambda value: {"toy": {"exact": value}}
    action = trainer.EarlyStoppingAction(("toy", "exact"), "max", patience=2)
    assert not action.recall([of(1.0), of(value)])
    if value is not None:
        assert not action.run(None, of(value))
        assert "does not count" in caplog.text
    assert action.run(None, of(np.float32(1.0))), "the values around it are compared"
    assert not trainer.TerminateOnNanAction("toy", "exact").run(None, of(value))


@pytest.mark.parametrize("value", [3, True, np.int32(1), 0.5, np.float32(0.5)])
def test_a_value_counts_after_a_restart_as_before(value):
    measured = {"toy": {"exact": value}}
    action = trainer.EarlyStoppingAction(("toy", "exact"), "max", patience=2)
    ended = [action.run(None, measured) for _ in range(2)][-1]
    logged = json.loads(json.dumps(numeric_metrics(measured)))
    assert action.recall([logged, logged]) == ended


@pytest.mark.parametrize(("value", "ends"), [(1.0, False), (np.nan, True), (np.inf, True)])
def test_a_metric_that_is_no_number_ends_training(value, ends):
    action = trainer.TerminateOnNanAction(task="toy", metric="loss")
    assert action.run(None, metrics_by_task={"toy": {"loss": value}}) is ends
