"""Learning rates, spelled as a product of named factors.

    rate = create_learning_rate_scheduler(
        factors='constant * rsqrt_decay', base_learning_rate=1.0, warmup_steps=10_000)
    rate(0)        # 0.01
    rate(40_000)   # 0.005

A run that starts from another's checkpoint counts on from its step, and so do these factors. For
warm-up and decay of a fine-tune from checkpoint_999900 to TRAIN_STEPS 1,001,900:

    create_learning_rate_scheduler(
        factors='constant * linear_warmup * linear_decay_to_zero', base_learning_rate=1e-3,
        warmup_steps=200, total_steps=2_000, step_offset=999_900)

The factors, with `s = max(0, step - step_offset)`:

    constant                 base_learning_rate
    linear_warmup            min(1, s / warmup_steps)
    linear_decay             base_learning_rate * min(s / warmup_steps,
                                                      1 + decay_factor * (warmup_steps - s)):
                             constant and linear_warmup are already in it
    linear_decay_to_zero     1 at warmup_steps, falling in a straight line to 0 at total_steps
    rsqrt_decay              1 / sqrt(max(s, warmup_steps))
    rsqrt_normalized_decay   sqrt(warmup_steps / max(s, warmup_steps))
    decay_every              decay_factor ** floor(s / steps_per_decay)
    cosine_decay             (1 + cos(pi * p)) / 2, where p is the part of the present cycle that
                             has passed: frac(max(0, s - warmup_steps) / steps_per_cycle)

The rsqrt schedule is that of the T5 paper (Raffel et al. 2020, section 3.1.2).
"""

import dataclasses
import difflib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

FACTORS = (
    "constant",
    "linear_warmup",
    "linear_decay",
    "linear_decay_to_zero",
    "rsqrt_decay",
    "rsqrt_normalized_decay",
    "decay_every",
    "cosine_decay",
)
# What each factor divides by; it must not be zero.
_DIVISORS = {
    "linear_warmup": "warmup_steps",
    "linear_decay": "warmup_steps",
    "linear_decay_to_zero": "total_steps",
    "rsqrt_decay": "warmup_steps",
    "rsqrt_normalized_decay": "warmup_steps",
    "decay_every": "steps_per_decay",
    "cosine_decay": "steps_per_cycle",
}


# Factors that never reach zero: pretraining can continue with them.
_LASTING = ("constant", "rsqrt_decay", "rsqrt_normalized_decay")
_GIN_NAME = "utils.create_learning_rate_scheduler"
_IDLE = 0.01  # below this share of the base next to nothing is learned
_LOOKS = 10_000


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A learning rate by step; see `create_learning_rate_scheduler`."""

    names: tuple[str, ...]
    base_learning_rate: float
    warmup_steps: int
    decay_factor: float
    steps_per_decay: int
    steps_per_cycle: int
    step_offset: int
    min_learning_rate: float
    total_steps: int

    def __call__(self, step: jax.Array | int) -> jax.Array:
        """The rate, float32; `step` is an integer, or int32 of any shape, traced or not."""
        rate = self._product(self.names, step)
        return jnp.maximum(rate, self.min_learning_rate).astype(jnp.float32)

    @property
    def passing(self) -> tuple[str, ...]:
        """The factors that come to an end."""
        return tuple(name for name in self.names if name not in _LASTING)

    def share(self, step: jax.Array | int) -> jax.Array:
        """What these leave of the base: 1 for all of it, 0 and less for nothing."""
        return dataclasses.replace(self, base_learning_rate=1.0)._product(self.passing, step)

    def _product(self, names: tuple[str, ...], step: jax.Array | int) -> jax.Array:
        step = jnp.maximum(0, step - self.step_offset)
        rate = jnp.float32(1.0)
        for name in names:
            rate = self._times(name, rate, step)
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
            case "rsqrt_decay":
                return rate / jnp.sqrt(jnp.maximum(step, warmup_steps))
            case "rsqrt_normalized_decay":
                return rate * jnp.sqrt(warmup_steps / jnp.maximum(step, warmup_steps))
            case "decay_every":
                return rate * self.decay_factor ** (step // self.steps_per_decay)
            case "cosine_decay":
                cycles = jnp.maximum(0.0, (step - warmup_steps) / self.steps_per_cycle)
                return rate * 0.5 * (1.0 + jnp.cos(jnp.pi * (cycles % 1.0)))


def create_learning_rate_scheduler(
    factors: str = "constant * linear_warmup * rsqrt_decay",
    base_learning_rate: float = 0.5,
    warmup_steps: int = 1000,
    decay_factor: float = 0.5,
    steps_per_decay: int = 20000,
    steps_per_cycle: int = 100000,
    step_offset: int = 0,
    min_learning_rate: float = 1e-8,
    total_steps: int = 0,
) -> Schedule:
    """Makes the function from a step to its learning rate.

    Args:
        factors: names of the module's table, joined by '*'.
        base_learning_rate: the value of `constant`.
        warmup_steps: steps of warm-up, and until when the rsqrt factors stay flat.
        decay_factor: base of `decay_every`, slope of `linear_decay`.
        steps_per_decay: steps between two decays of `decay_every`.
        steps_per_cycle: steps of one cycle of `cosine_decay`.
        step_offset: the step that counts as 0, for a run continued from another.
        min_learning_rate: floor of the product.
        total_steps: where `linear_decay_to_zero` ends, counted as `step_offset` says. Not in T5X.

    Returns:
        f(step) -> float32 scalar; `step` is an integer or an int32 scalar, traced or not.

    Raises:
        ValueError: a factor is unknown, or divides by a number of steps below 1.
    """
    names = tuple(name.strip() for name in factors.split("*"))
    _check_factors(
        names,
        warmup_steps=warmup_steps,
        steps_per_decay=steps_per_decay,
        steps_per_cycle=steps_per_cycle,
        total_steps=total_steps,
    )
    if "linear_decay_to_zero" in names and total_steps <= warmup_steps:
        raise ValueError(
            f"total_steps is {total_steps} and warmup_steps {warmup_steps}, so the rate has no "
            f"steps to fall in: set {_GIN_NAME}.total_steps to more, to TRAIN_STEPS less "
            "step_offset, say."
        )
    return Schedule(
        names=names,
        base_learning_rate=base_learning_rate,
        warmup_steps=warmup_steps,
        decay_factor=decay_factor,
        steps_per_decay=steps_per_decay,
        steps_per_cycle=steps_per_cycle,
        step_offset=step_offset,
        min_learning_rate=min_learning_rate,
        total_steps=total_steps,
    )


def check_start(rate: Any, start: int | None, total_steps: int) -> None:
    """Raise ValueError for a schedule that has ended when training starts, at another first step.

    A schedule that has begun before training starts, as in continued pretraining, or that ends long
    before the run, is reported by a warning.

    Args:
        rate: the run's; one that is no `Schedule` passes.
        start: the step at which a run begins, that of the checkpoint it starts from; None if it is
            not known, which passes too.
        total_steps: the step at which it ends.

    Raises:
        ValueError: it is at `min_learning_rate`, and that next to nothing, for more than half of
            the run or for the first tenth of it.
    """
    n = total_steps - (start or 0)
    if start is None or not isinstance(rate, Schedule) or not rate.passing or n < 1:
        return
    steps = np.linspace(start, total_steps - 1, min(n, _LOOKS)).astype(np.int32)
    idle = np.asarray(rate.share(steps)) < _IDLE
    if rate.step_offset == start:
        if idle.mean() > 0.5:
            logging.warning(
                "The learning rate stays below 1 %% of its base for %s of the run's %s steps, by "
                "its factors %s.", f"{idle.mean() * n:,.0f}", f"{n:,}", " * ".join(rate.names)
            )  # fmt: skip
        return
    first, middle, last = (float(rate(s)) for s in (start, start + n // 2, total_steps - 1))
    said = (
        f"The learning rate {' * '.join(rate.names)} counts from step {rate.step_offset:,} and "
        f"training starts at {start:,}, so it is {first:.1e} at first, {middle:.1e} half way and "
        f"{last:.1e} in the end"
    )
    over = np.asarray(rate(steps)) <= np.float32(rate.min_learning_rate)
    over &= rate.min_learning_rate < _IDLE * rate.base_learning_rate
    if over.mean() > 0.5 or over[: max(len(over) // 10, 1) + 1].all():
        raise ValueError(f"{said}; set {_GIN_NAME}.step_offset to {start}")
    if rate.passing == ("linear_warmup",) and any("rsqrt" in name for name in rate.names):
        return  # continued pretraining
    logging.warning("%s; with %s.step_offset = %d it begins there.", said, _GIN_NAME, start)


def _check_factors(names: tuple[str, ...], **steps: int) -> None:
    for name in names:
        if name not in FACTORS:
            nearest = difflib.get_close_matches(name, FACTORS, n=1, cutoff=0.0)[0]
            raise ValueError(
                f"Learning rate factor {name!r} is unknown, the nearest known one is {nearest!r}: "
                f"set {_GIN_NAME}.factors to names out of {', '.join(FACTORS)}, joined by '*'."
            )
        divisor = _DIVISORS.get(name)
        if divisor and steps[divisor] < 1:
            raise ValueError(
                f"{divisor} is {steps[divisor]} but must be at least 1, because the factor "
                f"{name!r} divides by it: set {_GIN_NAME}.{divisor}."
            )
