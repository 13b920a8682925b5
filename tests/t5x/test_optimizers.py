"""Optax behind the optimizer interface."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import serialization

from fakes.refuses import refuses
from t5x import optimizers
from t5x.checkpointing.layer_stacking import unstack_layers
from t5x.checkpointing.restore import by_name
from t5x.train_state import TrainState
from t5x.train_step import train_step

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


@pytest.mark.parametrize("optimizer", [chained(), optimizers.adamw()])
def test_the_rate_of_the_trainer_is_logged_where_it_is_used(optimizer):
    """A chain has its own, which may be any."""
    sums = {"weights": jnp.ones(())}
    loss_fn = lambda params, batch, rng: (params["a"].sum(), (1.0, sums))
    state = TrainState(jnp.int32(0), PARAMS, optimizer.init(PARAMS, AXES))
    _, logged = train_step(
        state,
        {},
        jax.random.key(0),
        loss_fn=loss_fn,
        optimizer=optimizer,
        axes=AXES,
        learning_rate_fn=lambda step: 7.0,
    )
    assert logged["gradient_norm"] == pytest.approx(6**0.5)
    used = optimizer.update(*_arguments(optimizer, 7.0))[0]
    unused = optimizer.update(*_arguments(optimizer, 0.0))[0]
    is_used = not np.array_equal(used["a"], unused["a"])
    assert logged.get("learning_rate") == (7.0 if is_used else None)


def _arguments(optimizer, rate):
    grads, state = jax.tree.map(jnp.ones_like, PARAMS), optimizer.init(PARAMS, AXES)
    return grads, state, PARAMS, AXES, jnp.int32(0), jnp.float32(rate)


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


@pytest.mark.parametrize("name", ["adamw", "adamw_scaled", "muon"])
def test_groups_of_parameters_that_are_not_there_are_refused(name):
    with refuses(f"optimizers.{name}.no_decay") as refusal:
        getattr(optimizers, name)(no_decay=["("])
    assert "'('" in refusal.value.why
    optimizer = getattr(optimizers, name)(no_decay=["scale", "bias", "scales"])
    with refuses(f"optimizers.{name}.no_decay") as refusal:
        optimizer.init(PARAMS, AXES)
    assert "'scales'" in refusal.value.why


RANDOM = np.random.default_rng(0)
STACKED = {"wi": {"kernel": jnp.asarray(RANDOM.normal(0, 0.2, (8, 3, 12)), jnp.float32)}}
STACKED_AXES = {"wi": {"kernel": ("embed", "layers", "mlp")}}


def gradient(params, seed=1):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda p: jnp.asarray(random.normal(size=p.shape), p.dtype), params)


def trained(optimizer, params, axes, steps=3, rate=0.1):
    state = optimizer.init(params, axes)
    for step in range(steps):
        grads = gradient(params, seed=step)
        params, state = optimizer.update(
            grads, state, params, axes, jnp.int32(step), jnp.float32(rate)
        )
    return params, state


def rms(x, axis=None):
    return np.sqrt(np.mean(np.square(x), axis=axis))


def test_adamw_scaled_multiplies_adams_step_by_the_size_of_the_parameter():
    params = {"a": jnp.full((4, 5), 3.0), "b": {"scale": jnp.zeros(3)}}
    axes = {"a": ("embed", "mlp"), "b": {"scale": ("embed",)}}
    optimizer = optimizers.adamw_scaled(weight_decay=0.5, clip_global_norm=None, epsilon=1e-12)
    found, _ = trained(optimizer, params, axes, steps=1)
    sign = jax.tree.map(jnp.sign, gradient(params, seed=0))
    # Adam's first step is the gradient's sign; a parameter of zeros counts as least_scale.
    np.testing.assert_allclose(found["a"], 3.0 - 0.1 * (3.0 * sign["a"] + 0.5 * 3.0), rtol=1e-5)
    np.testing.assert_allclose(found["b"]["scale"], -0.1 * 1e-3 * sign["b"]["scale"], rtol=1e-5)


@pytest.mark.parametrize("name", ["adamw_scaled", "muon"])
def test_the_steps_of_matrices_alone_are_multiplied_by_their_rate(name):
    params = {"kernel": STACKED["wi"]["kernel"][:, 0], "embedding": jnp.ones((6, 4))}
    axes = {"kernel": ("embed", "mlp"), "embedding": ("vocab", "embed")}
    make = getattr(optimizers, name)
    steps = [
        jax.tree.map(jnp.subtract, params, trained(make(matrix_rate=r), params, axes, steps=1)[0])
        for r in (1.0, 0.25)
    ]
    np.testing.assert_allclose(steps[1]["kernel"], 0.25 * steps[0]["kernel"], rtol=1e-3)
    np.testing.assert_array_equal(steps[1]["embedding"], steps[0]["embedding"])


@pytest.mark.parametrize("name", ["adamw_scaled", "muon"])
def test_stacked_layers_are_trained_as_if_each_were_alone(name):
    optimizer = getattr(optimizers, name)(clip_global_norm=None)
    sizes = jnp.asarray([1.0, 10.0, 0.01])[None, :, None]
    params = {"wi": {"kernel": STACKED["wi"]["kernel"] * sizes}}
    together, _ = trained(optimizer, params, STACKED_AXES)
    grads = [gradient(params, seed=step)["wi"]["kernel"] for step in range(3)]
    for layer in range(3):
        alone = {"wi": {"kernel": params["wi"]["kernel"][:, layer]}}
        axes = {"wi": {"kernel": ("embed", "mlp")}}
        state = optimizer.init(alone, axes)
        for step in range(3):
            alone, state = optimizer.update(
                {"wi": {"kernel": grads[step][:, layer]}}, state, alone, axes,
                jnp.int32(step), jnp.float32(0.1),
            )  # fmt: skip
        np.testing.assert_allclose(
            together["wi"]["kernel"][:, layer], alone["wi"]["kernel"], rtol=2e-4, atol=1e-6
        )


def test_a_step_of_muon_is_orthogonal_and_relative_to_the_matrix():
    params, axes = {"kernel": STACKED["wi"]["kernel"][:, 0]}, {"kernel": ("embed", "mlp")}
    optimizer = optimizers.muon(newton_schulz_steps=5, matrix_rate=1.0)
    found, _ = trained(optimizer, params, axes, steps=1, rate=0.1)
    step = np.asarray(params["kernel"] - found["kernel"]) / (0.1 * rms(params["kernel"]))
    singular = np.linalg.svd(step, compute_uv=False) / np.sqrt(12)
    # Five iterations leave singular values between 0.5 and 1.5 of an orthogonal matrix's.
    assert singular.min() > 0.5
    assert singular.max() < 1.5
    # Its direction is the polar factor of the gradient.
    u, _, v = np.linalg.svd(gradient(params, seed=0)["kernel"], full_matrices=False)
    assert np.sum(step * (u @ v)) / np.linalg.norm(step) / np.linalg.norm(u @ v) > 0.95


def test_what_is_no_matrix_takes_adams_step_in_muon():
    params = {
        "token_embedder": {"embedding": jnp.asarray(RANDOM.normal(size=(6, 4)), jnp.float32)},
        "logits_dense": {"kernel": jnp.asarray(RANDOM.normal(size=(4, 6)), jnp.float32)},
        "relpos_bias": {"rel_embedding": jnp.ones((2, 8))},
        "norm": {"scale": jnp.ones((4, 3))},
    }
    axes = {
        "token_embedder": {"embedding": ("vocab", "embed")},
        "logits_dense": {"kernel": ("embed", "vocab")},
        "relpos_bias": {"rel_embedding": ("heads", "relpos_buckets")},
        "norm": {"scale": ("embed", "layers")},
    }
    found, _ = trained(optimizers.muon(clip_global_norm=None), params, axes, steps=1)
    adam = optax.scale_by_adam(nesterov=True)
    updates, _ = adam.update(gradient(params, seed=0), adam.init(params))
    for param, update, after in zip(*map(jax.tree.leaves, (params, updates, found)), strict=True):
        np.testing.assert_allclose(after, param - 0.1 * rms(param) * update, rtol=1e-4)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        (("embed", "layers", "mlp"), ((0,), (2,))),
        (("mlp", "embed"), ((1,), (0,))),
        (("embed", "heads", "kv"), ((0,), (1, 2))),
        (("vocab", "embed"), None),
        (("heads", "relpos_buckets"), None),
        (("embed", "layers"), None),
    ],
)
def test_the_matrix_of_a_parameter_is_found_by_its_axes(axes, expected):
    assert optimizers.matrix_dimensions(axes) == expected


@pytest.mark.parametrize("name", ["adamw", "adamw_scaled", "muon", "chain"])
def test_a_state_has_axes_and_goes_to_dicts_and_back(name):
    params, axes = {**PARAMS, **STACKED}, {**AXES, **STACKED_AXES}
    optimizer = chained() if name == "chain" else getattr(optimizers, name)()
    _, state = trained(optimizer, params, axes)
    named = optimizer.state_axes(params, axes)
    ranks = jax.tree.map(lambda array, names: array.ndim == len(names), state, named)
    assert all(jax.tree.leaves(ranks))
    moments = jax.tree.leaves(named, is_leaf=lambda x: isinstance(x, tuple) and "layers" in x)
    assert moments.count(("embed", "layers", "mlp")) in (1, 2)
    plain = serialization.to_state_dict(state)
    back = serialization.from_state_dict(optimizer.init(params, axes), plain)
    assert jax.tree.structure(back) == jax.tree.structure(state)
    same(back, state)


def plain_muon(layers_of):
    """optax's own Muon of parameters layer by layer."""
    dimensions = {key: optimizers.matrix_dimensions(axes) for key, axes in layers_of.items()}
    numbers = {"encoder": {"layers_0": dimensions, "layers_1": dimensions}, "table": None}
    return optax.contrib.muon(1.0, muon_weight_dimension_numbers=numbers)


OPTAX = {
    "adamw": lambda _: optax.scale_by_adam(),
    "adamw_scaled": lambda _: optax.scale_by_adam(),
    "muon": plain_muon,
    "chain": lambda _: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1)),
}


@pytest.mark.parametrize("name", OPTAX)
def test_a_state_on_disk_has_the_names_and_shapes_of_optaxs_own(name):
    """Upstream's `OptaxWrapper` writes the state dict of optax for parameters layer by layer."""
    layer = {"wi": ("embed", "mlp"), "scale": ("embed",)}
    axes = {
        "encoder": {"layers": {key: ("layers", *names) for key, names in layer.items()}},
        "table": ("vocab", "embed"),
    }
    sizes = {"layers": 2, "embed": 3, "mlp": 5, "vocab": 7}
    is_axes = lambda x: isinstance(x, tuple)
    params = jax.tree.map(lambda a: jnp.ones([sizes[n] for n in a]), axes, is_leaf=is_axes)
    optimizer = chained() if name == "chain" else getattr(optimizers, name)()
    ours = unstack_layers(serialization.to_state_dict(optimizer.init(params, axes)))
    theirs = serialization.to_state_dict(OPTAX[name](layer).init(unstack_layers(params)))
    shapes = lambda tree: {path: np.shape(leaf) for path, leaf in by_name(tree).items()}
    assert shapes(ours) == shapes(theirs)
    assert any("layers_1/wi" in path for path in shapes(ours))
