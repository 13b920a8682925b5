"""The network computes upstream's numbers, whatever is padded, packed or sharded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.golden import Golden
from t5x.checkpointing.layer_stacking import stack_layers
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


def widen(x, left, right):
    return np.pad(x, ((0, 0), (left, right)))


def test_logits_and_loss_are_upstreams(golden):
    model, params = golden.model(), stack_layers(golden.tree("init_params"))
    forward, batch = golden.arrays("forward"), golden.batch(0)
    both = jax.jit(lambda p, b: (model.logits(p, b), model.loss_fn(p, b, None)[0]))
    found, loss = both(params, batch)
    assert found.dtype == jnp.float32
    # Masked places hold no number that anybody uses.
    real = batch["decoder_target_tokens"] > 0
    close(np.asarray(found)[real], forward["logits"][real])
    np.testing.assert_allclose(loss, forward["loss"], rtol=RTOL)


def test_padding_changes_nothing(one, logits):
    inputs, targets = ids(0, 2, 12), ids(1, 2, 8)
    short = logits(one[1], example(inputs, targets))
    wide = logits(one[1], example(widen(inputs, 0, 7), widen(targets, 0, 5)))
    close(wide[:, :8], short)


def test_rows_are_independent(one, logits):
    inputs, targets = ids(0, 2, 12), ids(1, 2, 8)
    before = logits(one[1], example(inputs, targets))
    inputs[1], targets[1] = ids(2, 1, 12), ids(3, 1, 8)
    after = logits(one[1], example(inputs, targets))
    np.testing.assert_array_equal(after[0], before[0])
    assert np.abs(after[1] - before[1]).max() > 1e-2


def test_packed_examples_have_the_logits_of_unpacked_ones(one, logits):
    """Two examples packed in a row have the same logits as alone."""
    inputs, targets = ids(0, 2, 12), ids(2, 2, 8)
    alone = example(inputs, targets)

    def side(rows):
        tokens = np.concatenate([rows[:1], rows[1:]], 1)
        segments = np.repeat([[1, 2]], rows.shape[1], axis=1)
        return widen(tokens, 0, 3), widen(segments, 0, 3)

    tokens, segments = side(inputs)
    batch = {"encoder_input_tokens": tokens, "encoder_segment_ids": segments}
    batch["decoder_target_tokens"], batch["decoder_segment_ids"] = side(targets)
    batch["decoder_input_tokens"], _ = side(alone["decoder_input_tokens"])
    packed = logits(one[1], batch)
    close(packed[0, :16].reshape(2, 8, -1), logits(one[1], alone))


def test_a_target_changes_later_positions_only(one, logits):
    inputs, targets = ids(0, 2, 12), ids(1, 2, 8)
    before = logits(one[1], example(inputs, targets))
    targets[:, 4] += 1  # becomes the decoder's input at place 5
    after = logits(one[1], example(inputs, targets))
    np.testing.assert_array_equal(after[:, :5], before[:, :5])
    assert (np.abs(after - before).max(-1)[:, 5:] > 1e-4).all()


def test_every_input_changes_every_position(one, logits):
    inputs, targets = ids(0, 2, 12), ids(1, 2, 8)
    before = logits(one[1], example(inputs, targets))
    for place in (0, 11):
        changed = inputs.copy()
        changed[:, place] += 1
        after = logits(one[1], example(changed, targets))
        assert (np.abs(after - before).max(-1) > 1e-5).all()


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


@pytest.mark.parametrize("name", ["t5_1_1", "t5_1_0", "umt5"])
def test_stepwise_decoding_has_the_logits_of_teacher_forcing(name, umt5):
    if name == "umt5":
        model, params = umt5
    else:
        golden = Golden(name)
        model, params = golden.model(), stack_layers(golden.tree("init_params"))
    inputs, targets = widen(ids(0, 2, 9), 0, 3), ids(1, 2, 8)
    batch = example(inputs, targets)
    wanted = jax.jit(model.logits)(params, batch)

    @jax.jit
    def stepwise(params, inputs, ids_TB):
        steps = model.incremental_decoder(params, inputs, 8)
        step = lambda cache, ids: steps(ids, cache)[::-1]
        return jax.lax.scan(step, steps.empty_cache(), ids_TB)[1]

    found = stepwise(params, inputs, batch["decoder_input_tokens"].T)
    close(found.swapaxes(0, 1), wanted)


@pytest.mark.parametrize("config", [{}, {"float32_attention_logits": True}])
def test_bfloat16_is_close_and_its_logits_are_float32(one, logits, config):
    batch = example(ids(0, 2, 12), ids(1, 2, 8))
    model = Golden("t5_1_1").model(dtype=jnp.bfloat16, **config)
    found, wanted = jax.jit(model.logits)(one[1], batch), logits(one[1], batch)
    assert found.dtype == jnp.float32
    assert 0 < np.abs(found - wanted).mean() < 0.03 * np.abs(wanted).mean()


def test_the_tables_gradient_in_bfloat16_is_near_float32s_however_frequent_a_token_is(one):
    inputs, targets = np.minimum(ids(0, 2, 1024), 40), np.minimum(ids(1, 2, 128), 40)
    gradients = []
    for dtype in (jnp.float32, jnp.bfloat16):
        model = Golden("t5_1_1").model(dtype=dtype)
        loss = lambda params, model=model: model.loss_fn(params, example(inputs, targets), None)[0]
        gradient = jax.jit(jax.grad(loss))(one[1])["token_embedder"]["embedding"]
        gradients.append(gradient)
    wanted, found = gradients
    assert np.linalg.norm(found - wanted) < 0.03 * np.linalg.norm(wanted)


def test_dropout_needs_a_key_and_depends_on_it(one):
    model = Golden("t5_1_1").model(dropout_rate=0.5)
    batch, apply = example(ids(0, 2, 12), ids(1, 2, 8)), jax.jit(model.logits)
    first, again, other = (apply(one[1], batch, jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-2


@pytest.mark.parametrize("of_umt5", [False, True])
def test_initial_parameters_have_upstreams_names_deviations_and_float32(one, umt5, of_umt5):
    wanted = (umt5 if of_umt5 else one)[1]
    model = Golden("t5_1_1").model(dtype=jnp.bfloat16, own_relative_bias=of_umt5)
    shapes = {"encoder_input_tokens": (1, 1), "decoder_input_tokens": (1, 1)}
    init = jax.jit(lambda k: model.get_initial_variables(k, shapes))
    found = network.nn.unbox(init(jax.random.key(0))["params"])
    kinds = lambda tree: jax.tree.map(lambda x: (x.shape, str(x.dtype)), tree)
    assert kinds(found) == kinds(wanted)
    assert {x.dtype for x in jax.tree.leaves(found)} == {np.dtype("float32")}
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if a.size > 500:
            np.testing.assert_allclose(np.std(a), np.std(b), rtol=0.15)


@pytest.mark.parametrize(
    ("bidirectional", "distances", "buckets"),
    [
        # Keys behind the query: exact to 7 (of 16), then logarithmic, then the last for all.
        (True, [0, -1, -7, -8, -128, -1000], [0, 1, 7, 8, 15, 15]),
        (True, [1, 7, 8, 128], [17, 23, 24, 31]),
        (False, [0, -1, -15, -16, -128, -1000], [0, 1, 15, 16, 31, 31]),
        (False, [1, 5], [0, 0]),
    ],
)
def test_relative_positions_fall_into_their_buckets(bidirectional, distances, buckets):
    found = layers.relative_position_bucket(np.array(distances), bidirectional, 32, 128)
    assert found.tolist() == buckets


def test_plain_attention_has_the_same_loss_and_gradients():
    golden = Golden("t5_1_1")
    params, batch = stack_layers(golden.tree("init_params")), golden.batch(0)

    def both(**config):
        loss = lambda params: golden.model(**config).loss_fn(params, batch, None)[0]
        return jax.jit(jax.value_and_grad(loss))(params)

    (found, found_grads), (loss, grads) = both(attention="plain"), both()
    np.testing.assert_allclose(found, loss, rtol=RTOL)
    jax.tree.map(lambda a, b: close(a, b, 1e-4), found_grads, grads)


@pytest.mark.parametrize(("kind", "kept"), [("flash", False), ("cudnn", True)])
def test_with_kernels_of_a_gpu_the_layers_run_without_a_loop(monkeypatch, one, kind, kept):
    model, params = one
    batch = example(ids(0, 2, 6), ids(1, 2, 4))
    gradient = lambda: jax.grad(lambda p: model.loss_fn(p, batch, None)[0])
    wanted = jax.jit(gradient())(params)
    monkeypatch.setitem(select.REMAT_ON_GPU, "xla", select.REMAT_ON_GPU[kind])
    layers, traced = model.module.config.num_encoder_layers, str(jax.make_jaxpr(gradient())(params))
    assert f"unroll={layers}" in traced
    assert ("checkpoint[" in traced or "remat" in traced) == kept
    jax.tree.map(lambda a, b: close(a, b, 1e-4), jax.jit(gradient())(params), wanted)


def test_kernels_of_a_gpu_have_the_same_loss_and_gradients(monkeypatch, one):
    model, params = one
    batch = example(ids(0, 2, 6), ids(1, 2, 4))
    gradient = lambda: jax.jit(jax.grad(lambda p: model.loss_fn(p, batch, None)[0]))(params)
    wanted = gradient()
    monkeypatch.setattr(select, "attention", lambda config: "flash")
    monkeypatch.setattr(select, "prefers_gpu_kernels", lambda: True)
    jax.tree.map(lambda a, b: close(a, b, 1e-4), gradient(), wanted)
