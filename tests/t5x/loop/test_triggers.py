"""Triggers against the plain definition, which asks of every step whether it is due."""

import itertools

import pytest

from fakes.refuses import refuses
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.loop.triggers import TrainingPlan as Plan
from t5x.loop.triggers import Trigger, check_end, next_trigger, training_plan


def walk(plan, step=0):
    while trigger := next_trigger(step, plan):
        yield trigger
        step = trigger.step


PLANS = [
    Plan(*settings)
    for settings in itertools.product(
        (1, 12, 17), (None, 4, 20), (None, 2, 8), (None, 1, 2, 3), ((), (3, 5, 99))
    )
]


def test_triggers_are_the_due_steps_and_no_others():
    for plan in PLANS:
        assert list(walk(plan)) == due_triggers(plan), plan


def due_triggers(plan):
    log_period = plan.stats_period or plan.eval_period or plan.save_period

    def due(step, period):
        return bool(period) and (step % period == 0 or step == plan.total_steps)

    expected = []
    for step in range(1, plan.total_steps + 1):
        end = step == plan.total_steps
        trigger = Trigger(
            step,
            log=end or due(step, log_period) or due(step, plan.eval_period),
            evaluate=due(step, plan.eval_period),
            save=due(step, plan.save_period)
            or step in plan.checkpoint_steps
            or (end and bool(plan.checkpoint_steps)),
        )
        if any((trigger.log, trigger.evaluate, trigger.save)):
            expected.append(trigger)
    return expected


def test_a_resumed_run_stops_where_an_uninterrupted_one_does():
    plan = Plan(total_steps=100, eval_period=20, save_period=40, stats_period=5)
    everything = list(walk(plan))
    for first in range(100):
        assert list(walk(plan, first)) == [
            trigger for trigger in everything if trigger.step > first
        ]


@pytest.mark.parametrize(
    ("eval_period", "save_period", "periods", "warns"),
    [
        (1000, 10_000, (1000, 10_000), False),
        (10_000, 1000, (10_000, 1000), False),
        (70, 100, (70, 70), True),
        (100, 70, (70, 70), True),
        (70, 1000, (70, 980), True),
        (1000, 300, (900, 300), True),
        (None, 7, (None, 7), False),
        (7, None, (7, None), False),
    ],
)
def test_the_longer_period_becomes_a_multiple_of_the_shorter(
    eval_period, save_period, periods, warns, caplog
):
    plan = training_plan(
        5000, eval_period, None, SaveCheckpointConfig(period=save_period), evaluates=True
    )
    assert (plan.eval_period, plan.save_period) == periods
    assert plan.stats_period == plan.eval_period
    assert bool(caplog.records) == warns


def test_what_is_not_evaluated_is_saved_when_it_is_asked_for(caplog):
    plan = training_plan(5000, 70, None, SaveCheckpointConfig(period=100), evaluates=False)
    assert (plan.eval_period, plan.save_period, plan.stats_period) == (None, 100, 70)
    assert not caplog.records


def test_a_run_cannot_start_past_its_end():
    plan = Plan(total_steps=100)
    check_end(plan, first_step=100)
    with refuses("TRAIN_STEPS (train.total_steps)", 100):
        check_end(plan, first_step=101)
