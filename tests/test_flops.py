"""The analytic count agrees with what XLA counts of an unrolled forward pass."""

import jax
import jax.numpy as jnp
import pytest

from t5x.examples.t5.network import T5Config, Transformer
from t5x.flops import step_flops


@pytest.mark.parametrize("activations", [("relu",), ("gelu", "linear")])
def test_a_forward_pass_of_one_layer(activations):
    # One layer a stack, since XLA counts the body of a loop once; sizes where products dominate.
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
    inputs, targets = (jax.ShapeDtypeStruct((2, n), jnp.int32) for n in (64, 32))
    apply = lambda v, i, t: model.apply(v, i, t, t, enable_dropout=False)
    init = lambda i, t: model.init(jax.random.key(0), i, t, t, enable_dropout=False)
    variables = jax.eval_shape(init, inputs, targets)
    counted = jax.jit(apply).lower(variables, inputs, targets).compile().cost_analysis()["flops"]
    assert step_flops(config, 2, 64, 32) / 3 == pytest.approx(counted, rel=0.05)
