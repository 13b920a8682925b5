"""Learning rates, spelled as a product of named factors.

    rate = create_learning_rate_scheduler(
        factors='constant * rsqrt_decay', base_learning_rate=1.0, warmup_steps=10_000)
    rate(0)        # 0.01
    rate(40_000)   # 0.005

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

import difflib
from collections.abc import Callable

import jax
import jax.numpy as jnp

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
) -> Callable[[jax.Array | int], jax.Array]:
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
    names = [name.strip() for name in factors.split("*")]
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
            "steps to fall in: set utils.create_learning_rate_scheduler.total_steps to more, to "
            "TRAIN_STEPS less step_offset, say."
        )

    def apply(name: str, rate: jax.Array, step: jax.Array) -> jax.Array:
        match name:
            case "constant":
                return rate * base_learning_rate
            case "linear_warmup":
                return rate * jnp.minimum(1.0, step / warmup_steps)
            case "linear_decay":
                falling = 1.0 + decay_factor * (warmup_steps - step)
                return rate * base_learning_rate * jnp.minimum(step / warmup_steps, falling)
            case "linear_decay_to_zero":
                left = (total_steps - step) / (total_steps - warmup_steps)
                return rate * jnp.clip(left, 0.0, 1.0)
            case "rsqrt_decay":
                return rate / jnp.sqrt(jnp.maximum(step, warmup_steps))
            case "rsqrt_normalized_decay":
                return rate * jnp.sqrt(warmup_steps / jnp.maximum(step, warmup_steps))
            case "decay_every":
                return rate * decay_factor ** (step // steps_per_decay)
            case "cosine_decay":
                cycles = jnp.maximum(0.0, (step - warmup_steps) / steps_per_cycle)
                return rate * 0.5 * (1.0 + jnp.cos(jnp.pi * (cycles % 1.0)))

    def learning_rate(step: jax.Array | int) -> jax.Array:
        step = jnp.maximum(0, step - step_offset)
        rate = jnp.float32(1.0)
        for name in names:
            rate = apply(name, rate, step)
        return jnp.maximum(rate, min_learning_rate).astype(jnp.float32)

    return learning_rate


def _check_factors(names: list[str], **steps: int) -> None:
    gin_name = "utils.create_learning_rate_scheduler"
    for name in names:
        if name not in FACTORS:
            nearest = difflib.get_close_matches(name, FACTORS, n=1, cutoff=0.0)[0]
            raise ValueError(
                f"Learning rate factor {name!r} is unknown, the nearest known one is {nearest!r}: "
                f"set {gin_name}.factors to names out of {', '.join(FACTORS)}, joined by '*'."
            )
        divisor = _DIVISORS.get(name)
        if divisor and steps[divisor] < 1:
            raise ValueError(
                f"{divisor} is {steps[divisor]} but must be at least 1, because the factor "
                f"{name!r} divides by it: set {gin_name}.{divisor}."
            )
