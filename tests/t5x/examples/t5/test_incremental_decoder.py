"""One position at a time decodes what the network computes for all positions at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes import toy
from t5x.examples.t5.incremental_decoder import decoding_params
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs

ROWS, DECODES, LENGTH = 2, 3, 5


def made(make=toy.model, **settings):
    model = make(num_decoder_layers=2, **settings)
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    return model, toy.state(state_specs(model, partitioner)).params


@pytest.fixture(scope="module")
def case():
    return made()


RELU = {"mlp_activations": ("relu",), "logits_via_embedding": True}


@pytest.mark.parametrize(
    ("make", "settings"),
    [(toy.model, {}), (toy.model, {"own_relative_bias": True}), (toy.model, RELU), (toy.gemma, {})],
)
def test_the_decodes_of_a_row_share_its_inputs(make, settings):
    """Logits [B*N, V] at each position are those of teacher forcing on repeated inputs."""
    model, params = made(make, **settings)
    random = np.random.default_rng(0)
    inputs = random.integers(3, 200, (ROWS, 6)).astype(np.int32)
    inputs[1, 4:] = 0
    ids = random.integers(3, 200, (ROWS * DECODES, LENGTH)).astype(np.int32)
    ids[:, 0] = 0

    @jax.jit
    def stepwise(params, inputs, ids_TM):
        decoder = model.incremental_decoder(params, inputs, LENGTH)
        repeat = lambda x: jnp.repeat(x, DECODES, axis=0) if x.ndim else x
        cache = jax.tree.map(repeat, decoder.empty_cache())
        return jax.lax.scan(lambda cache, ids: decoder(ids, cache)[::-1], cache, ids_TM)[1]

    batch = {
        "encoder_input_tokens": np.repeat(inputs, DECODES, axis=0),
        "decoder_input_tokens": ids,
        "decoder_target_tokens": np.ones_like(ids),
    }
    plain = make(num_decoder_layers=2, **settings | {"attention": "xla"})
    wanted = jax.jit(plain.logits)(params, batch)
    found = stepwise(params, inputs, ids.T).swapaxes(0, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_parameters_are_laid_out_once(case):
    model, params = case
    once = decoding_params(model.module.config, params)
    assert set(once["decoder"]) >= {"layers_0", "layers_1"}
    assert decoding_params(model.module.config, once) is once
    kernel = params["decoder"]["layers"]["mlp"]["wo"]["kernel"]
    np.testing.assert_array_equal(once["decoder"]["layers_1"]["mlp"]["wo"]["kernel"], kernel[1])
    half = decoding_params(model.module.config.replace(dtype=jnp.bfloat16), params)
    assert {x.dtype for x in jax.tree.leaves(half["decoder"])} == {jnp.dtype("bfloat16")}
    assert half["encoder"] is params["encoder"]
