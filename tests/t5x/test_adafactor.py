"""Adafactor against cases that have a closed form, and layers stacked against layers alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.refuses import refuses
from t5x.adafactor import Adafactor, FactorDim, standard_logical_factor_rules

RATE = jnp.float32(0.1)
RULES = standard_logical_factor_rules()


def one_step(optimizer, param, grad, axes, state=None, step=0):
    state = optimizer.init_one(param, axes) if state is None else state
    return optimizer.update_one(grad, state, param, axes, jnp.int32(step), RATE)


def steps(optimizer, param, grads, axes):
    state, params = optimizer.init_one(param, axes), []
    for step, grad in enumerate(grads):
        param, state = one_step(optimizer, param, grad, axes, state, step)
        params.append(param)
    return params, state


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def test_the_first_update_is_the_sign_of_the_gradient_times_the_parameters_scale():
    param, grad = normal(7, 5), normal(7, 5, seed=1)
    new, state = one_step(Adafactor(), param, grad, ("embed", "mlp"))
    np.testing.assert_allclose(new, param - 0.1 * rms(param) * np.sign(grad), rtol=1e-5)
    np.testing.assert_allclose(state["v"], grad**2, rtol=1e-5)


def test_the_second_moment_forgets_by_the_steps_power():
    g1, g2 = normal(6), normal(6, seed=1)
    _, state = steps(Adafactor(decay_rate=0.8), normal(6, seed=2), [g1, g2], ("embed",))
    decay = 1 - 2**-0.8
    np.testing.assert_allclose(state["v"], decay * g1**2 + (1 - decay) * g2**2, rtol=1e-5)


def test_step_offset_begins_the_decay_again():
    param, grad = normal(6), normal(6, seed=1)
    old = {**Adafactor().init_one(param, ("embed",)), "v": jnp.full(6, 100.0)}
    for step in (1000, 10):  # a run that has not reached the offset begins it too
        _, state = one_step(Adafactor(step_offset=1000), param, grad, ("embed",), old, step=step)
        np.testing.assert_allclose(state["v"], grad**2, rtol=1e-5)


def test_factored_is_exact_where_squares_have_rank_one():
    """|g| = a bᵀ at every step, times a number: row and column means then say all."""
    shape = (128, 160)
    a, b = (np.exp(np.random.default_rng(i).normal(size=n)) for i, n in enumerate(shape))
    signs = np.sign(np.random.default_rng(2).normal(size=(3, *shape)))
    scales = np.array([1.0, 30.0, 0.02])[:, None, None]
    grads = jnp.asarray(scales * signs * np.outer(a, b), jnp.float32)
    param = normal(*shape)
    factored, state = steps(Adafactor(), param, grads, ("embed", "mlp"))
    full, full_state = steps(Adafactor(factored=False), param, grads, ("embed", "mlp"))
    assert state["v"].shape == (1,)
    assert full_state["v"].shape == shape
    np.testing.assert_allclose(factored, full, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(127, 4000), (4000, 127)])
def test_a_narrow_parameter_is_not_factored(shape):
    assert Adafactor().dims(shape, ("embed", "mlp")).factored is None


def test_row_means_go_over_the_larger_dimension():
    state = Adafactor(logical_factor_rules=RULES).init_one(jnp.zeros((130, 200)), ("embed", "mlp"))
    assert {k: v.shape for k, v in state.items()} == {
        "m": (1,),
        "v": (1,),
        "v_col": (200,),
        "v_row": (130,),
    }


def test_an_update_is_clipped_to_a_root_mean_square_of_the_threshold():
    small, large = jnp.full(8, 1e-3), jnp.full(8, 1.0) * jnp.array([1, -1] * 4)
    param = jnp.ones(8)
    for threshold in (1.0, 0.25):
        optimizer = Adafactor(clipping_threshold=threshold)
        params, _ = steps(optimizer, param, [small, large], ("embed",))
        moved = (params[0] - params[1]) / (0.1 * rms(params[0]))
        np.testing.assert_allclose(rms(moved), threshold, rtol=1e-5)
    free, _ = steps(Adafactor(clipping_threshold=None), param, [small, large], ("embed",))
    assert rms((free[0] - free[1]) / (0.1 * rms(free[0]))) > 1.2


def test_parameter_scale_has_a_least_and_a_greatest():
    grad = jnp.ones(4)
    tiny, _ = one_step(Adafactor(), jnp.zeros(4), grad, ("embed",))
    np.testing.assert_allclose(tiny, -0.1 * 1e-3, rtol=1e-5)
    capped, _ = one_step(Adafactor(max_parameter_scale=2.0), jnp.full(4, 50.0), grad, ("embed",))
    np.testing.assert_allclose(capped, 50 - 0.1 * 2, rtol=1e-6)
    absolute = Adafactor(multiply_by_parameter_scale=False)
    free, _ = one_step(absolute, jnp.full(4, 50.0), grad, ("embed",))
    np.testing.assert_allclose(free, 50 - 0.1, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"weight_decay_rate": 0.02}, 0.02),
        ({"weight_decay_rate_lr_exponent": 2.0}, 0.1**2),
        ({"weight_decay_rate": 0.5, "weight_decay_rate_lr_exponent": 1.0}, 0.05),
    ],
)
def test_weight_decay_takes_its_share_of_the_parameter(settings, share):
    param, grad = normal(6), normal(6, seed=1)
    plain, _ = one_step(Adafactor(), param, grad, ("embed",))
    decayed, _ = one_step(Adafactor(**settings), param, grad, ("embed",))
    np.testing.assert_allclose(decayed, plain - share * param, rtol=1e-4, atol=1e-6)


def test_momentum_is_a_running_mean_of_updates():
    param, grad = normal(6), normal(6, seed=1)
    plain, _ = one_step(Adafactor(), param, grad, ("embed",))
    new, state = one_step(Adafactor(beta1=0.9), param, grad, ("embed",))
    np.testing.assert_allclose(state["m"], 0.1 * (param - plain), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(new, param - state["m"], rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((3, 130, 140), ("layers", "embed", "mlp")),
        ((3, 140, 130), ("layers", "joined_kv", "embed")),
        ((3, 16, 24), ("layers", "embed", "mlp")),
        ((3, 40), ("layers", "embed")),
    ],
)
def test_stacked_layers_are_layers_alone(shape, axes):
    optimizer = Adafactor(logical_factor_rules=RULES, beta1=0.9, weight_decay_rate=0.01)
    scale = jnp.array([0.01, 1.0, 100.0]).reshape(3, *[1] * (len(shape) - 1))
    param, grads = normal(*shape) * scale, [normal(*shape, seed=i) / scale**i for i in (1, 2, 3)]
    stacked, stacked_state = steps(optimizer, param, grads, axes)
    for i in range(3):
        alone, state = steps(optimizer, param[i], [g[i] for g in grads], axes[1:])
        np.testing.assert_allclose(stacked[-1][i], alone[-1], rtol=1e-5, atol=1e-7)
        for key, array in state.items():
            assert stacked_state[key].shape[1:] == array.shape, key
            np.testing.assert_allclose(stacked_state[key][i], array, rtol=1e-5, atol=1e-7)


def test_state_axes_have_the_states_ranks_and_follow_the_parameter():
    params = {"a": jnp.zeros((3, 130, 140)), "b": jnp.zeros((16,)), "c": jnp.zeros((200, 150))}
    axes = {"a": ("layers", "embed", "mlp"), "b": ("embed",), "c": ("vocab", "embed")}
    optimizer = Adafactor(logical_factor_rules=RULES, beta1=0.9)
    found = optimizer.state_axes(params, axes)
    state = optimizer.init(params, axes)
    ranks = jax.tree.map(lambda array, names: array.ndim == len(names), state, found)
    assert all(jax.tree.leaves(ranks))
    assert found["a"]["v_row"] == ("layers", "embed")
    assert found["a"]["v_col"] == ("layers", "mlp")
    assert found["b"]["v"] == ("embed",)
    assert found["c"]["v_row"] == ("embed",)
    assert found["c"]["v_col"] == ("vocab",)
    assert found["c"]["m"] == ("vocab", "embed")


def test_above_two_dimensions_the_rules_say_what_is_row_and_column():
    optimizer = Adafactor(logical_factor_rules=RULES)
    state = optimizer.init_one(jnp.zeros((4, 6, 8)), ("embed", "heads", "kv"))
    assert state["v_row"].shape == (4,)
    assert state["v_col"].shape == (6, 8)
    for rules in (None, {**RULES, "kv": FactorDim.NONE}):
        with refuses("adafactor.Adafactor.logical_factor_rules"):
            Adafactor(logical_factor_rules=rules).dims((4, 6, 8), ("embed", "heads", "kv"))


def test_a_rule_of_an_axis_that_no_parameter_has_is_named():
    params, axes = {"a": jnp.zeros((4, 6))}, {"a": ("embed", "rank")}
    Adafactor(logical_factor_rules={**RULES, "rank": FactorDim.COLUMN}).init(params, axes)
    rules = {**RULES, "rank": FactorDim.COLUMN, "emb": FactorDim.ROW, "ranks": FactorDim.COLUMN}
    with refuses("adafactor.Adafactor.logical_factor_rules") as refusal:
        Adafactor(logical_factor_rules=rules).init(params, axes)
    assert "'emb', 'ranks'" in refusal.value.why


def test_gradients_are_clipped_together():
    params = {"a": normal(6), "b": normal(5, seed=1)}
    axes = {"a": ("embed",), "b": ("mlp",)}
    grads = jax.tree.map(lambda p: p * 100, params)
    optimizer = Adafactor(global_norm_clip_threshold=1.0)
    state = optimizer.init(params, axes)
    _, state = optimizer.update(grads, state, params, axes, jnp.int32(0), RATE)
    assert np.isclose(sum(s["v"].sum() for s in state.values()), 1.0, rtol=1e-5)


def test_no_gradient_is_no_update():
    param = normal(6)
    new, state = one_step(Adafactor(), param, jnp.zeros(6), ("embed",))
    np.testing.assert_array_equal(new, param)
    assert np.isfinite(state["v"]).all()


@pytest.mark.parametrize("setting", ["factor_map", "multiply_by_parameter_scale"])
def test_maps_by_parameter_name_are_refused(setting):
    with refuses("adafactor.Adafactor"):
        Adafactor(**{setting: [("a", 1)]})


def test_a_learning_rate_that_is_ignored_is_named(caplog):
    Adafactor()
    assert not caplog.messages
    Adafactor(learning_rate=1e-3)
    assert "trainer.Trainer.learning_rate_fn" in caplog.text
