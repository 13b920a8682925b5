"""The seed of a run, and the random keys made of it."""

import time
from typing import NamedTuple

import jax
from absl import logging

from t5x.multihost.broadcast import broadcast_from_first


class Seed(NamedTuple):
    """A run's seed, which orders its data, and the keys of its first values and of its steps."""

    number: int
    init_rng: jax.Array
    step_rng: jax.Array


def make_seed(random_seed: int | None, use_hardware_rng: bool) -> Seed:
    """Return the seed of a run; a `random_seed` of None is drawn, the same on all hosts.

    The random bits come from `generator`.
    """
    number = _drawn() if random_seed is None else random_seed
    impl = generator(random_seed, use_hardware_rng)
    return Seed(number, *jax.random.split(jax.random.key(number, impl=impl)))


def generator(random_seed: int | None, use_hardware_rng: bool) -> str | None:
    """Return JAX's name for what makes a run's random bits, None for its default.

    With `use_hardware_rng`, or for a seed that is drawn, it is the accelerator's own.
    """
    return "rbg" if use_hardware_rng or random_seed is None else None


def _drawn() -> int:
    number = broadcast_from_first(lambda: time.time_ns() % 2**31)
    logging.info("RANDOM_SEED is None; drew %d.", number)
    return number
