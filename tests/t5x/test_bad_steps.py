"""A step with NaN, infinity or an outlier ends the run, is skipped, or sends it back."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.refuses import refuses
from t5x import adafactor
from t5x.bad_steps import MOST_SKIPPED, SKIPPED, StepStatistics, Watchman, policy, skipping_step
from t5x.train_state import TrainState


def fake_step(state, batch, rng):
    """Adds what the batch says to its one parameter."""
    sums = {
        "loss": batch["loss"],
        "cross_ent_loss": batch["loss"] * 10.0,
        "unnormalized_z_loss": jnp.float32(0),
        "target_tokens": jnp.float32(10),
        "gradient_norm": batch["norm"],
        "steps": jnp.float32(1),
    }
    return TrainState(state.step + 1, state.params + batch["norm"], state.param_states), sums


@pytest.fixture(scope="module")
def advance():
    return jax.jit(functools.partial(skipping_step, step=fake_step))


def step_sums(loss, norm=1.0):
    return {"loss": np.float32(loss), "norm": np.float32(norm)}


def trained(advance, steps):
    """The state after steps of about loss 2 and norm 1."""
    carried = (TrainState(jnp.int32(0), jnp.float32(0), jnp.float32(7)), StepStatistics.initial())
    for i in range(steps):
        carried, sums = advance(carried, step_sums(2 + 0.01 * (i % 5), 1 + 0.01 * (i % 3)), None)
        assert not sums[SKIPPED]
        assert sums["steps"] == 1
    return carried


@pytest.mark.parametrize(
    "bad", [(np.nan, 1), (np.inf, 1), (2, np.nan), (2, np.inf), (2.2, 1), (2, 1.2)]
)
def test_a_step_far_off_the_last_128_is_skipped(advance, bad):
    carried = trained(advance, 130)
    after, sums = advance(carried, step_sums(*bad), None)
    assert sums[SKIPPED] == 1
    assert all(value == 0 for name, value in sums.items() if name != SKIPPED)
    assert (after[0].step, after[0].params) == (131, carried[0].params)
    jax.tree.map(np.testing.assert_array_equal, after[1], carried[1])
    again, sums = advance(after, step_sums(2.0), None)
    assert not sums[SKIPPED]
    assert again[0].params == carried[0].params + 1


def test_before_128_steps_only_steps_that_are_not_finite_are_skipped(advance):
    carried = trained(advance, 127)
    assert not advance(carried, step_sums(1000.0), None)[1][SKIPPED]
    assert advance(carried, step_sums(np.nan), None)[1][SKIPPED]


def test_a_loss_below_the_usual_is_no_bad_step(advance):
    assert not advance(trained(advance, 128), step_sums(0.1, 0.001), None)[1][SKIPPED]


def test_the_policy_is_one_of_three_and_follows_the_optimizer():
    skips = adafactor.Adafactor(skip_nan_updates=True)
    found = [policy(None, None), policy(None, skips), policy("go_back", skips)]
    assert found == ["stop", "skip", "go_back"]
    with refuses("trainer.Trainer.bad_steps", "pass"):
        policy("pass", types.SimpleNamespace())


def test_a_loss_that_is_not_finite_ends_the_run_and_so_do_too_many_skipped_steps():
    good, skipped = {"loss": 2.0, "gradient_norm": 1.0}, {"loss": 0.0, SKIPPED: 1.0}
    watchman = Watchman()
    for bad in ({"loss": np.nan}, {"loss": 1.0, "gradient_norm": np.inf}):
        with pytest.raises(FloatingPointError, match="step 7 "):
            watchman.check(7, bad)
    for step in range(2 * MOST_SKIPPED):
        assert watchman.check(step, skipped if step % MOST_SKIPPED else good) == bool(
            step % MOST_SKIPPED
        )
    with pytest.raises(FloatingPointError, match=f"last {MOST_SKIPPED} steps"):
        watchman.check(100, skipped)
