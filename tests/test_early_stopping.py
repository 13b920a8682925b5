"""A run ends when its metric has been no better for so many evaluations, not sooner."""

import math

import pytest

from t5x import early_stopping, trainer


def steps_until_the_end(values, **settings):
    action = trainer.EarlyStoppingAction(metric=("toy", "exact"), **settings)
    for step, value in enumerate(values, 1):
        if action.run(None, {"toy": {"exact": value}}):
            return step
    return None


@pytest.mark.parametrize(
    ("values", "settings", "end"),
    [
        ([1, 2, 3, 4], {"mode": "max", "patience": 1}, None),
        ([1, 2, 2, 2, 2], {"mode": "max", "patience": 3}, 5),
        ([1, 2, 1, 1, 3, 1, 1, 1], {"mode": "max", "patience": 3}, 8),  # counted anew
        ([3, 2, 2.5], {"mode": "min", "patience": 1}, 3),
        ([1.0, 1.05, 1.2], {"mode": "max", "patience": 1, "atol": 0.1}, 2),
        ([1.0, 1.11, 1.12], {"mode": "max", "patience": 1, "atol": 0.1}, 3),
        ([10, 10.5, 12], {"mode": "max", "patience": 2, "rtol": 0.1}, None),
        ([10, 10.5, 11], {"mode": "max", "patience": 2, "rtol": 0.1}, 3),
        ([-10, -9.5], {"mode": "max", "patience": 1, "rtol": 0.1}, 2),
        ([math.nan, math.nan], {"mode": "min", "patience": 2}, 2),
        ([1, math.nan, 0.5], {"mode": "min", "patience": 2}, None),
    ],
)
def test_it_waits_for_something_better(values, settings, end):
    assert steps_until_the_end(values, **settings) == end


def test_a_metric_that_is_not_measured_is_named():
    action = early_stopping.EarlyStoppingAction(("toy", "exact"), "max")
    with pytest.raises(ValueError, match=r"\('toy', 'exact'\), which is not measured.*'loss'"):
        action.run(None, {"toy": {"loss": 1.0}})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metric": "exact", "mode": "max"}, r"metric is 'exact'; set it to a task and a metric"),
        ({"metric": ("a", "b"), "mode": "best"}, r"mode is 'best'; set it to 'max' or 'min'"),
        ({"metric": ("a", "b"), "mode": "max", "patience": 0}, r"patience is 0; set it to 1 or"),
        ({"metric": ("a", "b"), "mode": "max", "atol": -1}, r"atol is -1; set it to 0 or more"),
    ],
)
def test_bad_settings_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        trainer.EarlyStoppingAction(**settings)


def test_actions_that_would_never_be_asked_are_refused():
    early_stopping.check_actions(None, ["TRAIN"])
    early_stopping.check_actions({"TRAIN": []}, ["TRAIN"])
    with pytest.raises(ValueError, match=r"has 'EVAL', which is no time to act; set it to one of"):
        early_stopping.check_actions({"EVAL": []}, ["TRAIN"])
    with pytest.raises(ValueError, match=r"'INFER_EVAL', but nothing is evaluated so; set train.i"):
        early_stopping.check_actions({"INFER_EVAL": []}, ["TRAIN", "TRAIN_EVAL"])
