"""Optax behind the optimizer interface."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x import checkpoints, optimizers
from t5x.checkpointing.layer_stacking import stack_layers, unstack_layers
from t5x.checkpointing.restore import restore

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


def test_moments_are_sharded_like_their_parameters():
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


@pytest.mark.parametrize("clip", [None, 0.5])
def test_adamw_is_optaxs_at_the_trainers_rate(clip):
    """Five steps with a falling rate; `scale` does not decay."""
    optimizer = optimizers.adamw(weight_decay=0.1, clip_global_norm=clip, beta2=0.99)
    rates = [0.1, 0.08, 0.05, 0.02, 0.0]
    plain = optax.chain(
        *([] if clip is None else [optax.clip_by_global_norm(clip)]),
        optax.adamw(
            lambda step: jnp.array(rates)[step],
            b2=0.99,
            weight_decay=0.1,
            mask={"a": True, "b": {"scale": False}},
        ),
    )
    found, state = PARAMS, optimizer.init(PARAMS, AXES)
    wanted, plain_state = PARAMS, plain.init(PARAMS)
    for step, rate in enumerate(rates):
        grads = jax.tree.map(lambda x, step=step: jnp.cos(x + step), wanted)
        found, state = optimizer.update(grads, state, found, AXES, step, jnp.float32(rate))
        updates, plain_state = plain.update(grads, plain_state, wanted)
        wanted = optax.apply_updates(wanted, updates)
        close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        jax.tree.map(close, found, wanted)
    assert int(state.count) == 5


def test_what_decays_is_chosen_by_path():
    params = {
        "encoder": {"layers": {"norm": {"scale": 0}, "mlp": {"wi": {"kernel": 0}}}},
        "relpos_bias": {"rel_embedding": 0},
    }
    found = jax.tree.leaves(optimizers.decay_mask(("scale", "rel_embedding"))(params))
    assert found == [True, False, False]
    assert all(jax.tree.leaves(optimizers.decay_mask(())(params)))


def states():
    """A state of each optimizer for parameters with stacked layers."""
    params = {"encoder": {"layers": {"w": np.ones((2, 3), np.float32)}, "norm": np.ones(3)}}
    adamw, chain = optimizers.adamw(), chained()
    return params, [(optimizer, optimizer.init(params, None)) for optimizer in (adamw, chain)]


@pytest.mark.parametrize("which", [0, 1])
def test_a_state_comes_back_from_disk_layer_by_layer(tmp_path, which):
    params, made = states()
    optimizer, state = made[which]
    state = jax.tree.map(lambda x: np.asarray(x) + 3, state)
    on_disk = unstack_layers({"param_states": optimizers.to_dict(state), "step": np.int32(3)})
    tree = {"target": unstack_layers(params), "state": on_disk}
    with checkpoints.Checkpointer(str(tmp_path)) as checkpointer:
        checkpointer.save(3, tree)
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), tree)
    restored = restore(f"{tmp_path}/checkpoint_3", like).state
    back = stack_layers(restored)["state"]["param_states"]
    same(optimizers.from_dict(optimizer.init(params, None), back), state)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"beta1": 1.0}, r"adamw.beta1 is 1.0; set it to 0 or more and below 1"),
        ({"epsilon": 0}, r"adamw.epsilon is 0; set it to more than 0"),
        ({"weight_decay": -1}, r"adamw.weight_decay is -1; set it to 0 or more"),
        ({"clip_global_norm": 0}, r"adamw.clip_global_norm is 0; set it to more than 0"),
        ({"no_decay": ["("]}, r"no_decay has '\(', which is not a regular expression"),
    ],
)
def test_bad_numbers_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        optimizers.adamw(**settings)
