"""When to log, evaluate and save during training.

    plan = TrainingPlan(total_steps=2_500, eval_period=1_000, save_period=2_000)
    check_periods(plan)
    step = state.step
    while trigger := next_trigger(step, plan):
        ...                                  # train until `trigger.step`
        step = trigger.step                  # then do what is due there

A step is a count of updates already applied: step 0 is before the first one, and the last trigger
is at `total_steps`. Periods count from step 0, not from where a run resumed, so that a resumed run
triggers at the steps of an uninterrupted one. For the plan above:

    step    log   evaluate  save
    1000    yes   yes
    2000    yes   yes       yes
    2500    yes   yes       yes      the end does everything that is done at all
"""

import dataclasses

from common.errors import UserError
from t5x.checkpointing.config import SaveCheckpointConfig


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """Periods of a run in steps; None means never."""

    total_steps: int  # the step at which training ends
    eval_period: int | None = None  # between evaluations
    save_period: int | None = None  # between checkpoints
    # Between log entries; None: at every evaluation, or without any at every checkpoint.
    stats_period: int | None = None
    checkpoint_steps: tuple[int, ...] = ()  # further ones to save at; ignored past `total_steps`


def training_plan(
    total_steps: int,
    eval_period: int | None,
    stats_period: int | None,
    save: SaveCheckpointConfig | None,
    evaluates: bool,
) -> TrainingPlan:
    """Return the plan for the periods of a gin file, where 0 and None mean never."""
    return TrainingPlan(
        total_steps,
        eval_period=(eval_period or None) if evaluates else None,
        save_period=save.period if save else None,
        stats_period=stats_period or eval_period or None,
        checkpoint_steps=tuple((save.checkpoint_steps if save else None) or ()),
    )


@dataclasses.dataclass(frozen=True)
class Trigger:
    """The next step at which anything is due, and what is."""

    step: int
    log: bool
    evaluate: bool
    save: bool


def next_trigger(step: int, plan: TrainingPlan) -> Trigger | None:
    """Return the first trigger after `step`, or None if `step` is the end or past it."""
    if step >= plan.total_steps:
        return None
    log_period = plan.stats_period or plan.eval_period or plan.save_period
    periods = [log_period, plan.eval_period, plan.save_period]
    ahead = [(step // period + 1) * period for period in periods if period]
    ahead += [at for at in plan.checkpoint_steps if at > step]
    at = min([plan.total_steps, *ahead])
    end = at == plan.total_steps

    def due(period: int | None) -> bool:
        return period is not None and period > 0 and (end or at % period == 0)

    saves = bool(plan.save_period or plan.checkpoint_steps)
    return Trigger(
        step=at,
        log=end or due(log_period),
        evaluate=due(plan.eval_period),
        save=due(plan.save_period) or at in plan.checkpoint_steps or (end and saves),
    )


def check_periods(plan: TrainingPlan) -> None:
    """Check that a plan's periods fit each other.

    Upstream trains in rounds of the shorter of the evaluation and the checkpoint period, so each
    of the two must be a multiple of the shorter. The same is required here, so that one gin file
    runs in both. Raise UserError with the gin setting to change. Types and limits of the numbers
    are checked by `t5x.settings.limits`.
    """
    if plan.eval_period and plan.save_period:
        short, long = sorted((plan.eval_period, plan.save_period))
        if long % short:
            raise UserError(
                "EVAL_PERIOD (train.eval_period)",
                plan.eval_period,
                f"but utils.SaveCheckpointConfig.period is {plan.save_period}, and one must be a "
                "multiple of the other",
                f"set EVAL_PERIOD to a divisor or a multiple of {plan.save_period}",
            )
    if plan.eval_period and plan.stats_period and plan.eval_period % plan.stats_period:
        raise UserError(
            "train.stats_period",
            plan.stats_period,
            f"but must divide EVAL_PERIOD (train.eval_period), which is {plan.eval_period}, or "
            "evaluations would have no training loss beside them",
            "set one of them",
        )


def check_end(plan: TrainingPlan, first_step: int) -> None:
    """Raise UserError if a run that begins at `first_step` would be past its end."""
    if plan.total_steps < first_step:
        raise UserError(
            "TRAIN_STEPS (train.total_steps)",
            plan.total_steps,
            f"but the run starts at step {first_step}, so there is nothing to train",
            f"set TRAIN_STEPS to more than {first_step}",
        )
