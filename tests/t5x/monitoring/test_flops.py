"""The analytic count agrees with what XLA counts of an unrolled forward pass."""

import types

import jax
import jax.numpy as jnp
import pytest

from t5x.examples.encoder import network
from t5x.examples.t5.network import T5Config, Transformer
from t5x.monitoring.flops import (
    encoder_flops,
    peak_flops,
    peak_share,
    step_flops,
)


@pytest.mark.parametrize("activations", [("relu",), ("gelu", "linear")])
def test_a_forward_pass_of_one_layer(activations):
    # One layer a stack, since XLA counts the body of a loop once; sizes where products with
    # parameters dominate, since it counts both branches of attention, and one runs.
    config = T5Config(
        vocab_size=2048,
        emb_dim=256,
        num_heads=4,
        head_dim=64,
        mlp_dim=512,
        num_encoder_layers=1,
        num_decoder_layers=1,
        mlp_activations=activations,
    )
    model = Transformer(config=config)
    inputs, targets = (jax.ShapeDtypeStruct((4, n), jnp.int32) for n in (32, 16))
    apply = lambda v, i, t: model.apply(v, i, t, t, enable_dropout=False)
    init = lambda i, t: model.init(jax.random.key(0), i, t, t, enable_dropout=False)
    variables = jax.eval_shape(init, inputs, targets)
    counted = jax.jit(apply).lower(variables, inputs, targets).compile().cost_analysis()["flops"]
    assert step_flops(config, 4, 32, 16) / 3 == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "peak"),
    [("TPU v5 lite", 197e12), ("TPU v5", 459e12), ("NVIDIA H100 NVL", None), ("TPU v9", None)],
)
def test_an_unknown_peak_is_none(kind, peak):
    assert peak_flops(kind) == peak


def test_the_share_of_the_peak_is_that_of_one_step_a_second():
    config = T5Config(vocab_size=2048)
    model = types.SimpleNamespace(module=types.SimpleNamespace(config=config))
    ids = lambda length: jax.ShapeDtypeStruct((8, length), jnp.int32)
    batch = {"encoder_input_tokens": ids(64), "decoder_target_tokens": ids(32)}
    share = peak_share(model, batch, 4, "TPU v4")
    assert share == pytest.approx(step_flops(config, 8, 64, 32) / (4 * 275e12))
    assert peak_share(model, batch, 4, "cpu") is None
    assert peak_share(types.SimpleNamespace(module=None), batch, 4, "TPU v4") is None
    encoder = types.SimpleNamespace(
        module=network.Bert(network.BertConfig(64)), predicted_share=0.25
    )
    batch = {"encoder_input_tokens": ids(64), "encoder_target_tokens": ids(64)}
    share = peak_share(encoder, batch, 2, "TPU v4")
    assert share == pytest.approx(encoder_flops(encoder.module.config, 8, 64, 0.25) / (2 * 275e12))


@pytest.mark.parametrize("modern", [False, True])
def test_a_forward_pass_of_an_encoder(modern):
    # As above: no loop and no branch, and local layers whose window is the row.
    sizes = {"emb_dim": 256, "num_heads": 4, "mlp_dim": 512, "num_layers": 1}
    if modern:
        module = network.ModernBert(network.ModernBertConfig(2048, **sizes))
    else:
        module = network.Bert(network.BertConfig(2048, **sizes, next_sentence=False))
    ids = jax.ShapeDtypeStruct((4, 32), jnp.int32)
    off = {"enable_dropout": False}
    variables = jax.eval_shape(lambda i: module.init(jax.random.key(0), i, **off), ids)
    apply = jax.jit(lambda v, i: module.apply(v, i, **off))
    counted = apply.lower(variables, ids).compile().cost_analysis()["flops"]
    if modern:  # the product that swaps the halves of queries and keys is none of the model's
        counted -= 2 * (2 * 4 * 32 * 256 * module.config.head_dim)
    assert encoder_flops(module.config, 4, 32, 1.0) / 3 == pytest.approx(counted, rel=0.05)


def test_layers_with_a_window_count_its_keys():
    sizes = {"emb_dim": 8, "num_heads": 1, "mlp_dim": 8, "local_window": 16}
    config = network.ModernBertConfig(16, num_layers=4, **sizes)
    wide = network.ModernBertConfig(16, num_layers=4, **sizes | {"local_window": 1024})
    saved = encoder_flops(wide, 1, 512, 0.0) - encoder_flops(config, 1, 512, 0.0)
    assert saved == 6 * 2 * 2 * 512 * (512 - 17) * 8  # two of four layers are local
