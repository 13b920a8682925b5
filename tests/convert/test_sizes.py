import dataclasses

import pytest

from convert.sizes import Sizes, hugging_face_config, model_type
from fakes.convert_fakes import FAMILIES, SMALL
from t5x.examples.t5.network import T5Config


def test_fields_and_defaults_are_those_of_the_trained_network():
    """Sizes repeats them, since importing T5Config would load jax."""
    trained = {field.name: field.default for field in dataclasses.fields(T5Config)}
    ours = {field.name: field.default for field in dataclasses.fields(Sizes)}
    constants = {"relative_attention_num_buckets", "relative_attention_max_distance"}
    assert ours.keys() - trained.keys() == constants
    assert {name: ours[name] for name in ours if name not in constants} == {
        name: trained[name] for name in ours if name not in constants
    }


def test_fields_become_hugging_face_names():
    sizes = Sizes(**SMALL, mlp_activations=("gelu", "linear"), dropout_rate=0.0)
    config = hugging_face_config(sizes, "t5")
    wanted = {
        "vocab_size": 96,
        "d_model": 16,
        "d_kv": 12,
        "d_ff": 40,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "num_heads": 2,
        "dropout_rate": 0.0,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "decoder_start_token_id": 0,
    }
    assert {name: config[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("activations", "name"),
    [
        (("relu",), "relu"),
        (("gelu",), "gelu_new"),
        (("gelu", "linear"), "gated-gelu"),
        (("silu", "linear"), "gated-silu"),
    ],
)
def test_activations_have_the_names_of_the_same_functions(activations, name):
    assert Sizes(96, mlp_activations=activations).feed_forward() == name


@pytest.mark.parametrize("activations", [("linear", "gelu"), ("tanh",), ("gelu", "gelu", "linear")])
def test_activations_that_transformers_lacks_are_refused(activations):
    with pytest.raises(ValueError, match="mlp_activations"):
        Sizes(96, mlp_activations=activations)


def test_families_follow_from_the_network():
    assert model_type(FAMILIES["t5_1_0"]) == model_type(FAMILIES["t5_1_1"]) == "t5"
    assert model_type(FAMILIES["umt5"]) == "umt5"
    gated = {"mlp_activations": ("gelu", "linear")}
    assert model_type(Sizes(250_112, **gated)) == "mt5"
    # mT5's class in transformers 5 does not scale a tied head.
    assert model_type(Sizes(250_112, **gated, logits_via_embedding=True)) == "t5"


@pytest.mark.parametrize(
    ("name", "family"), [("t5_1_1", "umt5"), ("umt5", "t5"), ("t5_1_0", "mt5")]
)
def test_a_family_that_cannot_hold_the_network_is_refused(name, family):
    with pytest.raises(ValueError, match=f"model_type {family} cannot hold"):
        hugging_face_config(FAMILIES[name], family)


def test_fields_that_do_not_shape_the_network_are_ignored():
    fields = {"vocab_size": 96, "dtype": "bfloat16", "remat_policy": "minimal"}
    assert Sizes.from_fields(fields) == Sizes(96)


def test_missing_or_senseless_fields_are_named():
    with pytest.raises(ValueError, match="vocab_size"):
        Sizes.from_fields({"emb_dim": 8})
    with pytest.raises(ValueError, match=r"T5Config\.emb_dim is '8'"):
        Sizes(96, emb_dim="8")
