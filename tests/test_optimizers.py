"""Optax behind the optimizer interface."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from t5x import optimizers

PARAMS = {"a": jnp.arange(6.0).reshape(2, 3), "b": {"scale": jnp.ones(3)}}
AXES = {"a": ("embed", "mlp"), "b": {"scale": ("embed",)}}


def chained():
    return optimizers.chain([optax.clip_by_global_norm(1.0), optax.adamw(0.1)])


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_an_update_is_optaxs():
    optimizer, plain = chained(), optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1))
    grads = jax.tree.map(jnp.ones_like, PARAMS)
    state = optimizer.init(PARAMS, AXES)
    found, _ = optimizer.update(grads, state, PARAMS, AXES, jnp.int32(0), jnp.float32(9.0))
    updates, _ = plain.update(grads, plain.init(PARAMS), PARAMS)
    same(found, optax.apply_updates(PARAMS, updates))


def test_moments_lie_as_their_parameters():
    optimizer = chained()
    axes = optimizer.state_axes(PARAMS, AXES)
    state = optimizer.init(PARAMS, AXES)
    ranks = jax.tree.map(lambda array, names: array.ndim == len(names), state, axes)
    assert all(jax.tree.leaves(ranks))
    adam = axes[1][0]
    assert adam.mu == AXES
    assert adam.nu == AXES
    assert adam.count == ()


def test_a_state_goes_to_dicts_and_back():
    optimizer = chained()
    grads = jax.tree.map(jnp.ones_like, PARAMS)
    state = optimizer.init(PARAMS, AXES)
    _, state = optimizer.update(grads, state, PARAMS, AXES, jnp.int32(0), jnp.float32(1.0))
    plain = optimizers.to_dict(state)

    def keys(tree):
        return (
            all(isinstance(k, str) and keys(v) for k, v in tree.items())
            if isinstance(tree, dict)
            else True
        )

    assert keys(plain)
    back = optimizers.from_dict(optimizer.init(PARAMS, AXES), plain)
    assert jax.tree.structure(back) == jax.tree.structure(state)
    same(back, state)
