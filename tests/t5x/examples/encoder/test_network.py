"""Encoders compute transformers' numbers, whatever is padded, packed, scanned or sharded."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.encoder_golden import FAMILIES, EncoderGolden
from t5x import optimizers
from t5x.examples.encoder import network
from t5x.kernels import select
from t5x.partitioning import PjitPartitioner
from t5x.train_state import TrainState
from t5x.train_step import train_step

TOLERANCE = 1e-4


@functools.cache
def golden(family):
    return EncoderGolden(family)


def close(found, wanted, tolerance=TOLERANCE):
    scale = max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_loss_and_gradients_are_those_of_transformers(family):
    g = golden(family)
    model, params, batch = g.model(), g.params("init"), g.batch(0)
    logits = jax.jit(model.logits)(params, batch)
    real = batch["encoder_segment_ids"] > 0
    close(np.asarray(logits)[real], g.numbers["logits"][real])
    (loss, _), grads = jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))(params, batch, None)
    np.testing.assert_allclose(loss, g.numbers["losses"][0], rtol=TOLERANCE)
    jax.tree.map(close, grads, g.params("grad"))


# RoBERTa's network is BERT's.
@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.slow) if f == "roberta" else f for f in FAMILIES]
)
def test_25_steps_of_adamw_are_those_of_torch(family):
    g = golden(family)
    adamw = g.settings["adamw"]
    optimizer = optimizers.adamw(
        *adamw["betas"], adamw["eps"], adamw["weight_decay"], ("scale", "bias"), None
    )
    model, params = g.model(optimizer), g.params("init")
    step = functools.partial(
        train_step,
        loss_fn=model.loss_fn,
        optimizer=optimizer,
        axes=jax.tree.map(lambda x: (None,) * x.ndim, params),
        learning_rate_fn=lambda _: adamw["lr"],
    )
    state = TrainState(jnp.int32(0), params, optimizer.init(params, None))
    step, found = jax.jit(step), []
    for i in range(25):
        state, sums = step(state, g.batch(i), jax.random.key(0))
        found.append(float(sums["loss"]))
    np.testing.assert_allclose(found, g.numbers["losses"], rtol=TOLERANCE)
    final, wanted = state.params, g.params("final")
    # A softmax over keys does not depend on their bias: its gradient is noise, which Adam enlarges.
    for tree in (final, wanted):
        tree["encoder"].get("layers", {}).get("attention", {}).get("key", {}).pop("bias", None)
    jax.tree.map(close, final, wanted)


@pytest.fixture(scope="module", params=FAMILIES)
def one(request):
    """A network with its golden parameters, and a compiled (params, batch) -> logits [B, L, V]."""
    g = golden(request.param)
    model = g.model()
    return g, g.params("init"), jax.jit(model.logits)


def test_padding_is_what_has_no_segment_whatever_its_id(one):
    g, params, logits = one
    ids = g.batch(0)["encoder_input_tokens"][:, :30].copy()
    ids[:, :4] = (0, 1, 2, 3)  # no id is padding by itself
    short = logits(params, {"encoder_input_tokens": ids})
    for filler in (0, 1, 7):
        wide = np.pad(ids, ((0, 0), (0, 10)), constant_values=filler)
        segments = np.pad(np.ones_like(ids), ((0, 0), (0, 10)))
        batch = {"encoder_input_tokens": wide, "encoder_segment_ids": segments}
        close(logits(params, batch)[:, :30], short)


def test_packed_examples_have_the_logits_of_unpacked_ones(one):
    g, params, logits = one
    ids = g.batch(0)["encoder_input_tokens"][:2, :18]
    ranges = np.arange(18)
    packed = {
        "encoder_input_tokens": np.pad(ids.reshape(1, -1), ((0, 0), (0, 4))),
        "encoder_segment_ids": np.pad(np.repeat([[1, 2]], 18, 1), ((0, 0), (0, 4))),
        "encoder_positions": np.pad(np.concatenate([ranges, ranges])[None], ((0, 0), (0, 4))),
    }
    alone = logits(params, {"encoder_input_tokens": ids})
    close(logits(params, packed)[0, :36].reshape(2, 18, -1), alone)


def test_rows_are_independent_and_every_input_changes_every_place(one):
    g, params, logits = one
    ids = g.batch(0)["encoder_input_tokens"][:2].copy()
    before = logits(params, {"encoder_input_tokens": ids})
    other = ids.copy()  # the first computation may still read `ids`
    other[1, 3] = 9
    after = logits(params, {"encoder_input_tokens": other})
    np.testing.assert_array_equal(after[0], before[0])
    assert (np.abs(after[1] - before[1]).max(-1) > 1e-6).all()


def test_parameters_are_initialized_as_they_are_used(one):
    g, params, _ = one
    shapes = {"encoder_input_tokens": (1, 1)}
    model = g.model(dtype=jnp.bfloat16)
    found = jax.eval_shape(lambda: model.get_initial_variables(jax.random.key(0), shapes))
    found = jax.tree.map(lambda x: (x.shape, x.dtype), nn.unbox(found["params"]))
    assert found == jax.tree.map(lambda x: (x.shape, np.dtype("float32")), params)


def test_bfloat16_is_close_and_its_logits_are_float32(one):
    g, params, logits = one
    batch = g.batch(0)
    found, wanted = (
        jax.jit(g.model(dtype=jnp.bfloat16).logits)(params, batch),
        logits(params, batch),
    )
    assert found.dtype == jnp.float32
    real = batch["encoder_segment_ids"] > 0
    difference = np.abs(found - wanted)[real].mean()
    assert 0 < difference < 0.05 * np.abs(wanted)[real].mean()


@pytest.mark.parametrize(
    "family",
    [f if f == "modernbert" else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES],
)
def test_eight_devices_and_recomputation_change_nothing(family):
    g = golden(family)
    params = g.params("init")
    model = g.model(remat_policy="full")
    both = jax.value_and_grad(lambda params: model.loss_fn(params, g.batch(0), None)[0])
    with PjitPartitioner(num_partitions=2).activations():
        loss, grads = jax.jit(both)(params)
    np.testing.assert_allclose(loss, g.numbers["losses"][0], rtol=TOLERANCE)
    jax.tree.map(close, grads, g.params("grad"))


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_kernels_of_a_gpu_have_the_same_loss_and_gradients(monkeypatch, family):
    g = golden(family)
    model, params, batch = g.model(), g.params("init"), g.batch(0)
    gradient = lambda: jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))(params, batch, None)
    (wanted, _), wanted_grads = gradient()
    monkeypatch.setattr(select, "attention", lambda config: "flash")
    (found, _), grads = gradient()
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE)
    jax.tree.map(close, grads, wanted_grads)


def test_dropout_needs_a_key_and_depends_on_it(one):
    g, params, _ = one
    apply, batch = jax.jit(g.model(dropout_rate=0.5).logits), g.batch(0)
    first, again, other = (apply(params, batch, jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-2


@pytest.mark.parametrize(
    ("config", "setting", "named"),
    [
        ("BertConfig", {"num_heads": 7}, "7 heads"),
        ("ModernBertConfig", {"num_layers": 12}, "num_layers is 12"),
        ("ModernBertConfig", {"local_window": 7}, "local_window is 7"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(config, setting, named):
    with pytest.raises(ValueError, match=named):
        getattr(network, config)(vocab_size=8, **setting)
