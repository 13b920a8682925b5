"""Encoders compute transformers' numbers, whatever is padded, packed, scanned or sharded."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.encoder_golden import FAMILIES, EncoderGolden
from fakes.refuses import refuses
from t5x import optimizers
from t5x.examples.encoder import layers, network
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


# On one device, or, with values computed again, on eight.
@pytest.mark.parametrize(
    ("family", "devices"),
    [
        *(("bert", 8), ("roberta", 1), ("modernbert", 1)),
        *(pytest.param(*how, marks=pytest.mark.slow) for how in (("bert", 1), ("modernbert", 8))),
    ],
)
def test_logits_loss_and_gradients_are_those_of_transformers(family, devices):
    g = golden(family)
    params, batch = g.params("init"), g.batch(0)
    model = g.model(remat_policy="none" if devices == 1 else "full")

    @jax.jit
    def all_at_once(params):
        loss = lambda params: model.loss_fn(params, batch, None)[0]
        return model.logits(params, batch), *jax.value_and_grad(loss)(params)

    mesh = PjitPartitioner(num_partitions=2) if devices == 8 else None
    with mesh.activations() if mesh else contextlib.nullcontext():
        logits, loss, grads = all_at_once(params)
    real = batch["encoder_segment_ids"] > 0
    close(np.asarray(logits)[real], g.numbers["logits"][real])
    np.testing.assert_allclose(loss, g.numbers["losses"][0], rtol=TOLERANCE)
    jax.tree.map(close, grads, g.params("grad"))


# RoBERTa's network is BERT's; ModernBERT's gradients are held above.
@pytest.mark.parametrize(
    "family", [f if f == "bert" else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES]
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


@pytest.mark.parametrize(
    ("config", "setting", "named"),
    [
        ("BertConfig", {"num_heads": 7}, "emb_dim"),
        ("ModernBertConfig", {"num_layers": 12}, "num_layers"),
        ("ModernBertConfig", {"local_window": 7}, "local_window"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(config, setting, named):
    with refuses(f"{config}.{named}", setting.get(named, ...)):
        getattr(network, config)(vocab_size=8, **setting)


def test_attention_weights_are_dropped_and_the_rest_enlarged():
    """With equal keys and values of 1, the output is the share of kept weights, doubled."""
    zeros, one = np.zeros((4, 4), np.float32), np.ones(4, np.float32)
    params = {n: {"kernel": zeros, "bias": 0 * one} for n in ("query", "key", "value", "out")}
    params["value"]["bias"], params["out"]["kernel"] = one, np.eye(4, dtype=np.float32)
    init = jax.nn.initializers.zeros
    attention = layers.SelfAttention(2, 2, 0.5, jnp.float32, "xla", True, init, init)
    x = np.zeros((1, 400, 4), np.float32)
    mask = np.ones((1, 1, 400, 400), bool)
    apply = lambda dropout: attention.apply(
        {"params": params}, x, mask, None, dropout, rngs={"dropout": jax.random.key(0)}
    )
    np.testing.assert_allclose(apply(False), 1.0, rtol=1e-5)
    found = apply(True)
    assert 0 < np.abs(found - 1).max() < 0.3
