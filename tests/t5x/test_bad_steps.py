"""A step that would do harm changes nothing but the count of steps; the others are as ever."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.bad_steps import SKIPPED, Recent, skipping_step
from t5x.train_state import TrainState


def step(state, batch, rng):
    """Adds what the batch says to its one parameter."""
    sums = {
        "loss": batch["loss"],
        "cross_ent_loss": batch["loss"] * 10.0,
        "z_loss": jnp.float32(0),
        "target_tokens": jnp.float32(10),
        "gradient_norm": batch["norm"],
        "steps": jnp.float32(1),
    }
    return TrainState(state.step + 1, state.params + batch["norm"], state.param_states), sums


@pytest.fixture(scope="module")
def advance():
    return jax.jit(functools.partial(skipping_step, step=step))


def batch(loss, norm=1.0):
    return {"loss": np.float32(loss), "norm": np.float32(norm)}


def trained(advance, steps):
    """The state after steps of about loss 2 and norm 1."""
    carried = (TrainState(jnp.int32(0), jnp.float32(0), jnp.float32(7)), Recent.begin())
    for i in range(steps):
        carried, sums = advance(carried, batch(2 + 0.01 * (i % 5), 1 + 0.01 * (i % 3)), None)
        assert not sums[SKIPPED]
        assert sums["steps"] == 1
    return carried


@pytest.mark.parametrize(
    "bad", [(np.nan, 1), (np.inf, 1), (2, np.nan), (2, np.inf), (2.2, 1), (2, 1.2)]
)
def test_a_step_far_off_the_last_128_is_left_out(advance, bad):
    carried = trained(advance, 130)
    after, sums = advance(carried, batch(*bad), None)
    assert sums[SKIPPED] == 1
    assert all(value == 0 for name, value in sums.items() if name != SKIPPED)
    assert (after[0].step, after[0].params) == (131, carried[0].params)
    jax.tree.map(np.testing.assert_array_equal, after[1], carried[1])
    again, sums = advance(after, batch(2.0), None)
    assert not sums[SKIPPED]
    assert again[0].params == carried[0].params + 1


def test_before_there_are_128_only_what_is_not_finite_is_left_out(advance):
    carried = trained(advance, 127)
    assert not advance(carried, batch(1000.0), None)[1][SKIPPED]
    assert advance(carried, batch(np.nan), None)[1][SKIPPED]


def test_less_than_usual_is_welcome(advance):
    assert not advance(trained(advance, 128), batch(0.1, 0.001), None)[1][SKIPPED]
