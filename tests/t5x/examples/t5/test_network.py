"""T5 computes upstream's numbers; test_networks.py has what all networks have in common."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from fakes.golden import Golden
from t5x.checkpointing.layer_stacking import stack_layers, unstack_layers
from t5x.examples.t5 import layers, network
from t5x.kernels import select

RTOL = 1e-5


@pytest.fixture(scope="module")
def one():
    """The gated golden network with its initial parameters."""
    golden = Golden("t5_1_1")
    return golden.model(), stack_layers(golden.tree("init_params"))


@pytest.fixture(scope="module")
def logits(one):
    """A compiled (params, batch) -> float32 [B, T, V]."""
    return jax.jit(one[0].logits)


def close(a, b, rtol=RTOL):
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


def ids(seed, rows, length, low=2, high=512):
    return np.random.default_rng(seed).integers(low, high, (rows, length)).astype(np.int32)


def example(inputs, targets):
    """An unpacked batch; ids [B, I] and [B, T]."""
    shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    return {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": shifted,
        "decoder_target_tokens": targets,
    }


def test_logits_loss_and_gradients_are_upstreams(golden):
    model, params = golden.model(), stack_layers(golden.tree("init_params"))
    forward, batch = golden.arrays("forward"), golden.batch(0)

    @jax.jit
    def all_at_once(params, batch):
        loss = lambda params: model.loss_fn(params, batch, None)[0]
        return model.logits(params, batch), *jax.value_and_grad(loss)(params)

    found, loss, gradients = all_at_once(params, batch)
    assert found.dtype == jnp.float32
    # Masked places hold no number that anybody uses.
    real = batch["decoder_target_tokens"] > 0
    close(np.asarray(found)[real], forward["logits"][real])
    np.testing.assert_allclose(loss, forward["loss"], rtol=RTOL)
    for path, gradient in flatten_dict(unstack_layers(gradients), sep="/").items():
        norm = np.sqrt(np.square(np.asarray(gradient, np.float64)).sum())
        np.testing.assert_allclose(norm, forward[f"grad_norm/{path}"], rtol=1e-4, err_msg=path)


def test_a_target_changes_later_positions_only(one, logits):
    inputs, targets = ids(0, 2, 12), ids(1, 2, 8)
    before = logits(one[1], example(inputs, targets))
    targets[:, 4] += 1  # becomes the decoder's input at place 5
    after = logits(one[1], example(inputs, targets))
    np.testing.assert_array_equal(after[:, :5], before[:, :5])
    assert (np.abs(after - before).max(-1)[:, 5:] > 1e-4).all()


@pytest.fixture(scope="module")
def umt5():
    """The gated golden network, each of whose layers has a relative position table of its own."""
    golden = Golden("t5_1_1")
    params = golden.tree("init_params")
    for stack in ("encoder", "decoder"):
        table = params[stack].pop("relpos_bias")["rel_embedding"]
        layers = [layer for name, layer in params[stack].items() if name.startswith("layers_")]
        for i, layer in enumerate(layers):
            layer["relpos_bias"] = {"rel_embedding": np.roll(table, i, axis=1)}
    return golden.model(own_relative_bias=True), stack_layers(params)


def test_equal_biases_in_all_layers_are_the_same_as_a_shared_one(one, logits, umt5):
    batch = example(ids(0, 2, 12), ids(1, 2, 8))
    model, params = umt5
    shared = jax.tree.map(lambda x: x, one[1])
    for stack in ("encoder", "decoder"):
        table = shared[stack].pop("relpos_bias")["rel_embedding"]
        depth = len(shared[stack]["layers"]["mlp"]["wo"]["kernel"])
        shared[stack]["layers"]["relpos_bias"] = {"rel_embedding": np.stack([table] * depth)}
    apply = jax.jit(model.logits)
    close(apply(shared, batch), logits(one[1], batch))
    assert np.abs(apply(params, batch) - logits(one[1], batch)).max() > 1e-2


def test_bfloat16_with_attention_in_float32_is_close(one, logits):
    batch = example(ids(0, 2, 12), ids(1, 2, 8))
    model = Golden("t5_1_1").model(dtype=jnp.bfloat16, float32_attention_logits=True)
    found, wanted = jax.jit(model.logits)(one[1], batch), logits(one[1], batch)
    assert found.dtype == jnp.float32
    assert 0 < np.abs(found - wanted).mean() < 0.03 * np.abs(wanted).mean()


def initial_parameters(model, trace):
    shapes = {"encoder_input_tokens": (1, 1), "decoder_input_tokens": (1, 1)}
    variables = trace(lambda key: model.get_initial_variables(key, shapes))(jax.random.key(0))
    return network.nn.unbox(variables["params"])


def kinds(params):
    return jax.tree.map(lambda x: (x.shape, str(x.dtype)), params)


def test_initial_parameters_have_upstreams_deviations(one, umt5):
    model = Golden("t5_1_1").model(dtype=jnp.bfloat16)
    params = initial_parameters(model, jax.jit)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(one[1]), strict=True):
        if a.size > 500:
            np.testing.assert_allclose(np.std(a), np.std(b), rtol=0.15)
    own_biases = Golden("t5_1_1").model(dtype=jnp.bfloat16, own_relative_bias=True)
    shapes = initial_parameters(own_biases, lambda init: functools.partial(jax.eval_shape, init))
    assert kinds(shapes) == kinds(umt5[1])


@pytest.mark.parametrize(
    ("bidirectional", "distances", "buckets"),
    [
        # Keys after the query: exact to 7 (of 16), then logarithmic, then the last for all.
        (True, [0, -1, -7, -8, -128, -1000], [0, 1, 7, 8, 15, 15]),
        (True, [1, 7, 8, 128], [17, 23, 24, 31]),
        (False, [0, -1, -15, -16, -128, -1000], [0, 1, 15, 16, 31, 31]),
        (False, [1, 5], [0, 0]),
    ],
)
def test_relative_positions_fall_into_their_buckets(bidirectional, distances, buckets):
    found = layers.relative_position_bucket(np.array(distances), bidirectional, 32, 128)
    assert found.tolist() == buckets


@pytest.mark.parametrize(("kind", "kept"), [("flash", False), ("cudnn", True)])
def test_with_kernels_of_a_gpu_the_layers_run_without_a_loop(monkeypatch, one, kind, kept):
    model, params = one
    batch = example(ids(0, 2, 6), ids(1, 2, 4))
    gradient = jax.grad(lambda p: model.loss_fn(p, batch, None)[0])
    monkeypatch.setitem(select.REMAT_ON_GPU, "xla", select.REMAT_ON_GPU[kind])
    layers, traced = model.module.config.num_encoder_layers, str(jax.make_jaxpr(gradient)(params))
    assert f"unroll={layers}" in traced
    assert ("checkpoint[" in traced or "remat" in traced) == kept


def test_dropout_is_shared_along_the_length():
    x = jnp.ones((2, 6, 50))
    found = layers.dropout(0.5, True).apply({}, x, rngs={"dropout": jax.random.key(0)})
    np.testing.assert_array_equal(found, np.broadcast_to(found[:, :1], found.shape))
    assert set(np.unique(found)) == {0.0, 2.0}
    np.testing.assert_array_equal(layers.dropout(0.5, False).apply({}, x), x)
