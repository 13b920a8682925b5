"""Learning rates as a product of named factors.

    rate = create_learning_rate_scheduler(
        factors='constant * rsqrt_decay', base_learning_rate=1.0, warmup_steps=10_000)
    rate(0)        # 0.01
    rate(40_000)   # 0.005

A run that starts from another's checkpoint continues its step count, and so do these factors. For
warm-up and decay of a fine-tune from checkpoint_999900 to TRAIN_STEPS 1,001,900:

    create_learning_rate_scheduler(
        factors='constant * linear_warmup * linear_decay_to_zero', base_learning_rate=1e-3,
        warmup_steps=200, total_steps=2_000, step_offset=999_900)

The factors, with `s = max(0, step - step_offset)`:

    constant                 base_learning_rate
    linear_warmup            min(1, s / warmup_steps)
    linear_decay             base_learning_rate * min(s / warmup_steps,
                                                      1 + decay_factor * (warmup_steps - s)):
                             includes constant and linear_warmup
    linear_decay_to_zero     1 at warmup_steps, falling in a straight line to 0 at total_steps
    cosine_decay_to_zero     1 at warmup_steps, falling in half a cosine to 0 at total_steps
    linear_cooldown          1, falling in a straight line to 0 over the last cooldown_steps before
                             total_steps
    rsqrt_decay              1 / sqrt(max(s, warmup_steps))
    rsqrt_normalized_decay   sqrt(warmup_steps / max(s, warmup_steps))
    decay_every              decay_factor ** floor(s / steps_per_decay)
    cosine_decay             (1 + cos(pi * p)) / 2, where p is the elapsed part of the cycle:
                             frac(max(0, s - warmup_steps) / steps_per_cycle)

Where total_steps is set, warmup_steps and cooldown_steps below 1 are a share of it.

The rsqrt schedule is the T5 paper's (Raffel et al. 2020, section 3.1.2). `linear_cooldown`
ends any other product: `constant * rsqrt_decay * linear_cooldown`, or `constant * linear_warmup *
linear_cooldown`, which is warm-up, stable, decay (Hägele et al. 2024, arXiv 2405.18392). A
checkpoint before the decay and a later total_steps extend it; `Cooldown` makes such an end of a run
that has none.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from common.errors import UserError, nearest

# The factors, and the divisor of each, which must not be zero.
_DIVISORS = {
    "constant": None,
    "linear_warmup": "warmup_steps",
    "linear_decay": "warmup_steps",
    "linear_decay_to_zero": "total_steps",
    "cosine_decay_to_zero": "total_steps",
    "linear_cooldown": "cooldown_steps",
    "rsqrt_decay": "warmup_steps",
    "rsqrt_normalized_decay": "warmup_steps",
    "decay_every": "steps_per_decay",
    "cosine_decay": "steps_per_cycle",
}
FACTORS = tuple(_DIVISORS)

_SHARES = ("warmup_steps", "cooldown_steps")  # shares of total_steps if below 1
# Factors that never end; pretraining uses them.
_LASTING = ("constant", "rsqrt_decay", "rsqrt_normalized_decay")
_GIN_NAME = "utils.create_learning_rate_scheduler"
Step: TypeAlias = jax.Array | np.ndarray | int
_IDLE = 0.01  # below this share of the base almost nothing is learned
_LOOKS = 10_000


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A learning rate by step; see `create_learning_rate_scheduler`."""

    names: tuple[str, ...]
    base_learning_rate: float
    warmup_steps: float
    decay_factor: float
    steps_per_decay: float
    steps_per_cycle: float
    step_offset: float
    min_learning_rate: float
    total_steps: float
    cooldown_steps: float = 0

    def __call__(self, step: Step) -> jax.Array:
        """Return the float32 rate; `step` is an integer, or int32 of any shape, traced or not."""
        rate = self._product(self.names, step)
        return jnp.maximum(rate, self.min_learning_rate).astype(jnp.float32)

    @property
    def passing(self) -> tuple[str, ...]:
        """The factors that end."""
        return tuple(name for name in self.names if name not in _LASTING)

    def share(self, step: Step) -> jax.Array:
        """Return the product of the ending factors: 1 for the full base, 0 or less for nothing."""
        return dataclasses.replace(self, base_learning_rate=1.0)._product(self.passing, step)

    def _product(self, names: tuple[str, ...], step: Step) -> jax.Array:
        counted = jnp.maximum(0, step - self.step_offset)
        rate = jnp.float32(1.0)
        for name in names:
            rate = self._times(name, rate, counted)
        return rate

    def _times(self, name: str, rate: jax.Array, step: jax.Array) -> jax.Array:
        warmup_steps = self.warmup_steps
        match name:
            case "constant":
                return rate * self.base_learning_rate
            case "linear_warmup":
                return rate * jnp.minimum(1.0, step / warmup_steps)
            case "linear_decay":
                falling = 1.0 + self.decay_factor * (warmup_steps - step)
                return rate * self.base_learning_rate * jnp.minimum(step / warmup_steps, falling)
            case "linear_decay_to_zero":
                left = (self.total_steps - step) / (self.total_steps - warmup_steps)
                return rate * jnp.clip(left, 0.0, 1.0)
            case "cosine_decay_to_zero":
                part = (step - warmup_steps) / (self.total_steps - warmup_steps)
                return rate * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(part, 0.0, 1.0)))
            case "linear_cooldown":
                left = (self.total_steps - step) / self.cooldown_steps
                return rate * jnp.clip(left, 0.0, 1.0)
            case "rsqrt_decay":
                return rate / jnp.sqrt(jnp.maximum(step, warmup_steps))
            case "rsqrt_normalized_decay":
                return rate * jnp.sqrt(warmup_steps / jnp.maximum(step, warmup_steps))
            case "decay_every":
                return rate * self.decay_factor ** (step // self.steps_per_decay)
            case "cosine_decay":
                cycles = jnp.maximum(0.0, (step - warmup_steps) / self.steps_per_cycle)
                return rate * 0.5 * (1.0 + jnp.cos(jnp.pi * (cycles % 1.0)))
            case _:
                raise AssertionError(f"factor {name!r} passed the check but has no formula")


@dataclasses.dataclass(frozen=True)
class Cooldown:
    """A learning rate that falls in a straight line to 0, from `first` to `last`."""

    rate: Callable[[Step], jax.Array]
    first: int
    last: int

    @classmethod
    def after(cls, rate: Callable[[Step], jax.Array], first: int, last: int) -> "Cooldown":
        """Return the cooldown of `rate`, or raise UserError if that has ended at `first`."""
        if isinstance(rate, Schedule) and float(rate.share(first)) < _IDLE:
            names = " * ".join(rate.names)
            raise UserError(
                f"At step {first:,}, where the cooldown begins, the learning rate {names}",
                why=f"is {float(rate(first)):.1e}, so that nothing is left to fall",
                to_set=f"set {_GIN_NAME}.factors to those of the run, or start from an earlier "
                "step",
            )
        return cls(rate, first, last)

    def __call__(self, step: Step) -> jax.Array:
        """Return the float32 rate; `step` as of `Schedule`."""
        left = (self.last - step) / (self.last - self.first)
        return (self.rate(step) * jnp.clip(left, 0.0, 1.0)).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class UsualRates:
    """The rates that suit an optimizer at the schedule's peak, and whether the rate must fall."""

    optimizer: str  # its name in gin files
    least: float
    most: float
    must_end: bool = False

    def unusual(self, rate: Any, start: int, total_steps: int) -> str | None:
        """Return a sentence if the peak of the rate is out of the range, otherwise None.

        The peak is taken over the steps from `start` to `total_steps`, with all factors. A function
        other than `Schedule` and `Cooldown` gets None. Raise UserError for a schedule that must end
        and does not.
        """
        if not isinstance(rate, Schedule | Cooldown) or start >= total_steps:
            return None
        if self.must_end and isinstance(rate, Schedule) and {*rate.passing} <= {"linear_warmup"}:
            names = " * ".join(rate.names)
            raise UserError(
                self.optimizer,
                why=f"needs a rate that falls to zero, and {names} does not end",
                to_set=f"set {_GIN_NAME}.factors to one that does, such as 'constant * "
                f"linear_warmup * linear_decay_to_zero', or {self.optimizer}.must_end to False if "
                "COOLDOWN_FROM is to finish the run",
            )
        steps = np.linspace(start, total_steps - 1, min(total_steps - start, _LOOKS))
        peak = np.max(jax.jit(rate)(steps.astype(np.int32))).item()
        if self.least <= peak <= self.most:
            return None
        return (
            f"The learning rate is {peak:.2g} at its peak, and {self.optimizer} usually takes "
            f"{self.least:g} to {self.most:g}; change {_GIN_NAME}.base_learning_rate."
        )


def create_learning_rate_scheduler(
    factors: str = "constant * linear_warmup * rsqrt_decay",
    base_learning_rate: float = 0.5,
    warmup_steps: float = 1000,
    decay_factor: float = 0.5,
    steps_per_decay: float = 20000,
    steps_per_cycle: float = 100000,
    step_offset: float = 0,
    min_learning_rate: float = 1e-8,
    total_steps: float = 0,
    cooldown_steps: float = 0,
) -> Schedule:
    """Return the function from a step to its learning rate; the module's table has the factors.

    `factors` are joined by '*', and `min_learning_rate` is the floor of their product. In a run
    that continues another, `step_offset` is the step that counts as 0. `total_steps` counts from
    there; it and `cooldown_steps` do not exist in T5X. Raise UserError for an unknown factor, or
    one that divides by steps below 1 or has no steps to fall in.
    """
    settings = {name: value for name, value in locals().items() if name != "factors"}
    for name in _SHARES:
        if total_steps and settings[name] < 1:
            settings[name] *= total_steps
    names = tuple(name.strip() for name in factors.split("*"))
    _check_factors(names, settings)
    _check_end(names, total_steps, **{name: settings[name] for name in _SHARES})
    return Schedule(names, **settings)


def check_start(rate: Any, start: int | None, total_steps: int) -> None:
    """Check that a schedule without a `step_offset` has not ended when training starts.

    Warn if it has already started (unless pretraining continues), or ends long before the run. A
    `rate` that is not a `Schedule` passes, and so does an unknown `start`, None. Raise UserError if
    the rate is at a `min_learning_rate` near 0 for more than half of the run or its first tenth.
    """
    n = total_steps - (start or 0)
    if start is None or not isinstance(rate, Schedule) or not rate.passing or n < 1:
        return
    steps = np.linspace(start, total_steps - 1, min(n, _LOOKS)).astype(np.int32)
    idle = np.asarray(jax.jit(rate.share)(steps)) < _IDLE
    if rate.step_offset == start:
        if idle.mean() > 0.5:
            logging.warning(
                "The learning rate stays below 1 %% of its base for %s of the run's %s steps, by "
                "its factors %s.", f"{idle.mean() * n:,.0f}", f"{n:,}", " * ".join(rate.names)
            )  # fmt: skip
        return
    rates = np.asarray(jax.jit(rate)(steps))
    first, middle, last = rates[[0, len(rates) // 2, -1]]
    subject = f"The learning rate {' * '.join(rate.names)}"
    why = (
        f"counts from step {rate.step_offset:,} and training starts at {start:,}, so it is "
        f"{first:.1e} at first, {middle:.1e} halfway and {last:.1e} at the end"
    )
    over = rates <= np.float32(rate.min_learning_rate)
    over &= rate.min_learning_rate < _IDLE * rate.base_learning_rate
    if over.mean() > 0.5 or over[: max(len(over) // 10, 1) + 1].all():
        raise UserError(subject, why=why, to_set=f"set {_GIN_NAME}.step_offset to {start}")
    if rate.passing == ("linear_warmup",) and any("rsqrt" in name for name in rate.names):
        return  # pretraining continues
    if "linear_cooldown" in rate.passing and {*rate.passing} <= {
        "linear_warmup",
        "linear_cooldown",
    }:
        return  # the rate does fall, to an end that is counted from step 0
    also = f" and total_steps = {n}" if rate.total_steps > n else ""
    to_set = f"{_GIN_NAME}.step_offset = {start}{also}"
    logging.warning("%s %s; with %s it starts there.", subject, why, to_set)


def _check_factors(names: tuple[str, ...], settings: dict[str, float]) -> None:
    for name in names:
        if name not in FACTORS:
            raise UserError(
                f"Learning rate factor {name!r}",
                why=f"is unknown{nearest(name, FACTORS)}",
                to_set=f"set {_GIN_NAME}.factors to names from {', '.join(FACTORS)}, joined by '*'",
            )
        divisor = _DIVISORS.get(name)
        if divisor and settings[divisor] < 1:
            share = ", or a share of a total_steps" if divisor in _SHARES else ""
            raise UserError(
                divisor,
                settings[divisor],
                f"but must be at least 1{share}, because the factor {name!r} divides by it",
                f"set {_GIN_NAME}.{divisor}",
            )


def _check_end(names: tuple[str, ...], total_steps: float, **begins: float) -> None:
    falling = {
        "linear_decay_to_zero": ("warmup_steps", 1),
        "cosine_decay_to_zero": ("warmup_steps", 1),
        "linear_cooldown": ("cooldown_steps", 0),
    }
    for name in falling.keys() & {*names}:
        argument, more = falling[name]
        if total_steps < begins[argument] + more:
            raise UserError(
                "total_steps",
                total_steps,
                f"and {argument} {begins[argument]}, so the rate has no steps to fall in",
                f"set {_GIN_NAME}.total_steps to more, to TRAIN_STEPS less step_offset, say",
            )
