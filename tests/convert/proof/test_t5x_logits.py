"""The layer-by-layer forward pass is the trainer's network, and transformers computes the same."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from convert import to_hf, weight_map
from convert.model_config import Sizes, hugging_face_config, model_type
from convert.proof import t5x_logits, verify
from convert.proof.torch_logits import torch_logits
from convert.to_hf import ConversionOptions
from fakes.convert_fakes import FAMILIES, arrays, tree
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.examples.t5 import network


def nested(values):
    found = {}
    for name, value in values.items():
        *parents, leaf = name.split("/")
        node = found
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = jnp.asarray(value)
    return found


def transformer_logits(sizes, values, batch):
    config = network.T5Config(
        vocab_size=sizes.vocab_size,
        emb_dim=sizes.emb_dim,
        num_heads=sizes.num_heads,
        num_encoder_layers=sizes.num_encoder_layers,
        num_decoder_layers=sizes.num_decoder_layers,
        head_dim=sizes.head_dim,
        mlp_dim=sizes.mlp_dim,
        mlp_activations=sizes.mlp_activations,
        logits_via_embedding=sizes.logits_via_embedding,
        own_relative_bias=sizes.own_relative_bias,
    )
    params = stack_layers(nested(values))
    return network.Transformer(config).apply({"params": params}, **batch, enable_dropout=False)


@pytest.mark.parametrize("name", FAMILIES)
def test_layer_by_layer_equals_the_whole_network(name):
    sizes = FAMILIES[name]
    values, batch = arrays(sizes), verify.probe_batch(sizes)
    ours = t5x_logits.trainer_logits(tree(values), sizes, batch)
    np.testing.assert_allclose(ours, transformer_logits(sizes, values, batch), rtol=1e-5, atol=1e-5)


def write(folder, sizes, values, dtype="float32"):
    family = model_type(sizes)
    job = ConversionOptions(sizes=sizes, out=folder, dtype=dtype, formats=("pytorch",))
    to_hf.write_weights(folder, tree(values), weight_map.tensors(sizes), job)
    (folder / "config.json").write_text(json.dumps(hugging_face_config(sizes, family)))


LARGE = {"emb_dim": 8, "num_heads": 2, "head_dim": 4, "mlp_dim": 8, "num_decoder_layers": 1}
GATED = {"mlp_activations": ("gelu", "linear")}
NETWORKS = FAMILIES | {
    "mt5": Sizes(250_112, **LARGE, **GATED, num_encoder_layers=1),
    "byt5": Sizes(384, **LARGE, **GATED, num_encoder_layers=3),
    "gelu": Sizes(96, **LARGE, mlp_activations=("gelu",)),
    "tied 1.1": Sizes(96, **LARGE, **GATED, logits_via_embedding=True),
    "tied umt5": Sizes(96, **LARGE, **GATED, logits_via_embedding=True, own_relative_bias=True),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layerwise", [False, True])
def test_transformers_computes_the_same_logits(tmp_path, name, layerwise):
    sizes = NETWORKS[name]
    values = arrays(sizes)
    write(tmp_path, sizes, values)
    theirs = torch_logits(tmp_path, sizes, verify.probe_batch(sizes), layerwise)
    ours = t5x_logits.trainer_logits(tree(values), sizes, verify.probe_batch(sizes))
    assert verify.compare(ours, theirs) < 1e-4
    assert np.abs(ours).max() > 0.5


def test_bfloat16_is_proved_against_weights_rounded_alike(tmp_path):
    sizes = FAMILIES["t5_1_1"]
    values = arrays(sizes)
    write(tmp_path, sizes, values, "bfloat16")
    batch = verify.probe_batch(sizes)
    theirs = torch_logits(tmp_path, sizes, batch)
    alike = t5x_logits.trainer_logits(verify.rounded(tree(values), "bfloat16"), sizes, batch)
    assert verify.compare(alike, theirs) < 1e-4
    with pytest.raises(ValueError, match="logits differ"):
        verify.compare(t5x_logits.trainer_logits(tree(values), sizes, batch), theirs)


@pytest.mark.parametrize(
    "source",
    [
        "decoder/logits_dense/kernel",
        "encoder/relpos_bias/rel_embedding",
        "decoder/layers_1/encoder_decoder_attention/out/kernel",
        "encoder/layers_2/pre_mlp_layer_norm/scale",
    ],
)
def test_one_wrong_tensor_anywhere_is_found(tmp_path, source):
    sizes = FAMILIES["t5_1_1"]
    values = arrays(sizes)
    write(tmp_path, sizes, values)
    values[source] = values[source][..., ::-1]
    batch = verify.probe_batch(sizes)
    ours = t5x_logits.trainer_logits(tree(values), sizes, batch)
    with pytest.raises(ValueError, match="logits differ"):
        verify.compare(ours, torch_logits(tmp_path, sizes, batch))


def test_a_model_is_large_by_all_its_parameters():
    """ByT5's embedding is small, and its layers are 300 M parameters."""
    deep = {"num_encoder_layers": 12, "num_decoder_layers": 4, "mlp_dim": 3584}
    assert verify.is_large(Sizes(384, emb_dim=1472, num_heads=6, head_dim=64, **deep, **GATED))
    assert not any(verify.is_large(sizes) for sizes in NETWORKS.values())


def test_padding_of_the_inputs_is_part_of_the_batch():
    batch = verify.probe_batch(FAMILIES["t5_1_1"])
    assert (batch["encoder_input_tokens"] == 0).any()
    assert (batch["decoder_target_tokens"] > 0).all()
