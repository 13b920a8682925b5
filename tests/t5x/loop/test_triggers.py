"""Triggers against the plain definition, which asks of every step whether it is due."""

import itertools

import pytest

from fakes.refuses import refuses
from t5x.loop.triggers import TrainingPlan as Plan
from t5x.loop.triggers import Trigger, check_end, check_periods, next_trigger


def walk(plan, step=0):
    while trigger := next_trigger(step, plan):
        yield trigger
        step = trigger.step


PLANS = [
    Plan(*settings)
    for settings in itertools.product(
        (1, 12, 17), (None, 4, 20), (None, 2, 8), (None, 1, 2), ((), (3, 5, 99))
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
            log=end or due(step, log_period),
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
    ("plan", "setting", "value"),
    [
        (Plan(10, eval_period=1000, save_period=1500), "EVAL_PERIOD (train.eval_period)", 1000),
        (Plan(10, eval_period=1500, save_period=1000), "EVAL_PERIOD (train.eval_period)", 1500),
        (Plan(10, eval_period=100, stats_period=30), "train.stats_period", 30),
        (Plan(10, eval_period=100, stats_period=200), "train.stats_period", 200),
    ],
)
def test_periods_that_do_not_fit_are_refused(plan, setting, value):
    with refuses(setting, value):
        check_periods(plan)


def test_a_run_cannot_start_past_its_end():
    plan = Plan(total_steps=100)
    check_end(plan, first_step=100)
    with refuses("TRAIN_STEPS (train.total_steps)", 100):
        check_end(plan, first_step=101)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(10, eval_period=1000, save_period=10_000),
        Plan(10, eval_period=10_000, save_period=1000, stats_period=100),
        Plan(0),
        Plan(10, save_period=7, checkpoint_steps=(1, 2, 500)),
    ],
)
def test_plans_that_fit_pass(plan):
    check_periods(plan)
    assert list(walk(plan)) == due_triggers(plan)
