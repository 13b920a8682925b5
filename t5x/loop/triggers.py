"""When to log, evaluate and save during training.

    plan = TrainingPlan(total_steps=2_500, eval_period=1_000, save_period=2_000)
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
import logging

from common.errors import UserError
from t5x.checkpointing.config import SaveCheckpointConfig


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """Periods of a run in steps; None means never."""

    total_steps: int  # the step at which training ends
    eval_period: int | None = None  # between evaluations
    save_period: int | None = None  # between checkpoints
    # Between log entries; None: at every evaluation alone, or without any at every checkpoint.
    stats_period: int | None = None
    checkpoint_steps: tuple[int, ...] = ()  # further ones to save at; ignored past `total_steps`


def training_plan(
    total_steps: int,
    eval_period: int | None,
    stats_period: int | None,
    save: SaveCheckpointConfig | None,
    evaluates: bool,
) -> TrainingPlan:
    """Return the plan for the periods of a gin file, where 0 and None mean never.

    Checkpoints are evaluated where they are saved, so the longer of the two periods must be a
    multiple of the shorter. If it is not, it is rounded down to one, and a warning says so. Types
    and limits of the numbers are checked by `t5x.settings.limits`.
    """
    save_period = save.period if save else None
    eval_period = eval_period or None
    if evaluates and eval_period and save_period:
        short, long = sorted((eval_period, save_period))
        multiple = long - long % short
        if multiple != long:
            logging.getLogger(__name__).warning(
                "EVAL_PERIOD is %d and utils.SaveCheckpointConfig.period %d: the longer is taken "
                "as %d, a multiple of the shorter, so that what is saved is evaluated",
                *(eval_period, save_period, multiple),
            )
        eval_period, save_period = min(eval_period, multiple), min(save_period, multiple)
    return TrainingPlan(
        total_steps,
        eval_period=eval_period if evaluates else None,
        save_period=save_period,
        stats_period=stats_period or eval_period,
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
        log=end or due(log_period) or due(plan.eval_period),  # a loss beside the evaluation's
        evaluate=due(plan.eval_period),
        save=due(plan.save_period) or at in plan.checkpoint_steps or (end and saves),
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
