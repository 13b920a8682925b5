"""Sizes of encoders are read from a config.json and written to one."""

import pytest

from common.gin_reader import Bindings
from convert.encoders.sizes import (
    EncoderSizes,
    hugging_face_config,
    sizes_of_gin,
    sizes_of_hugging_face,
)
from t5x.examples.encoder import network

BERT = {"model_type": "bert", "vocab_size": 100}


@pytest.mark.parametrize(
    "sizes",
    [
        EncoderSizes("bert", 100, emb_dim=32, num_heads=4, max_length=64),
        EncoderSizes("roberta", 100, position_offset=2, type_vocab_size=1, norm_epsilon=1e-5),
        EncoderSizes("xlm-roberta", 100, position_offset=2, num_layers=3),
        EncoderSizes("modernbert", 100, num_layers=9, global_every=4, local_theta=7.0),
    ],
)
def test_written_sizes_are_read_again(sizes):
    assert sizes_of_hugging_face(hugging_face_config(sizes)) == sizes
    config = network.ModernBertConfig if sizes.modern else network.BertConfig
    assert config(**sizes.fields()).vocab_size == 100


def test_fields_that_a_config_leaves_out_have_the_defaults_of_transformers():
    """The networks' own defaults are the same, so that a gin file may leave fields out, too."""
    found = sizes_of_hugging_face(BERT).fields() | {"next_sentence": True}
    config = network.BertConfig(vocab_size=100)
    assert found == {name: getattr(config, name) for name in found}
    found = sizes_of_hugging_face(BERT | {"model_type": "modernbert"}).fields()
    config = network.ModernBertConfig(vocab_size=100)
    assert found == {name: getattr(config, name) for name in found}


def test_the_thetas_of_older_files_are_read():
    """transformers 4 had other names; mmBERT has one theta for all layers."""
    old = {"global_rope_theta": 5.0, "local_rope_theta": 6.0, "global_attn_every_n_layers": 3}
    found = sizes_of_hugging_face(BERT | {"model_type": "modernbert"} | old)
    assert (found.global_theta, found.local_theta) == (5.0, 6.0)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "t5"}, "model_type 't5' is not one of .*bert"),
        ({"model_type": "bert"}, "vocab_size None, which must be an integer above 0: add what"),
        (BERT | {"num_hidden_layers": "2"}, "num_hidden_layers '2', which must be an integer"),
        (BERT | {"hidden_act": "relu"}, "hidden_act 'relu': the trainer's bert computes 'gelu'"),
        (BERT | {"position_embedding_type": "relative_key"}, "computes 'absolute' only"),
        (BERT | {"model_type": "modernbert", "norm_bias": True}, "computes False only"),
        (
            BERT | {"model_type": "modernbert", "layer_types": ["sliding_attention"] * 4},
            "layers with global attention are regular",
        ),
    ],
)
def test_a_network_that_the_trainer_does_not_have_is_refused(config, said):
    with pytest.raises(ValueError, match=said):
        sizes_of_hugging_face(config)


def test_a_roberta_with_the_tokenizer_of_xlm_r_is_one():
    families = {
        (family, name): EncoderSizes(family, 9).in_family(name).family
        for family in ("bert", "roberta")
        for name in ("XLMRobertaTokenizerFast", "RobertaTokenizer", None)
    }
    assert families.pop(("roberta", "XLMRobertaTokenizerFast")) == "xlm-roberta"
    assert all(family == found for (family, _), found in families.items())


@pytest.mark.parametrize(
    ("gin", "family", "fields"),
    [
        ("BertConfig.vocab_size = 9", "bert", {"max_length": 512, "next_sentence": True}),
        ("BertConfig.vocab_size = 9\nnetwork.BertConfig.position_offset = 2", "roberta", {}),
        ("ModernBertConfig.vocab_size = 9", "modernbert", {"num_layers": 22, "norm_epsilon": 1e-5}),
    ],
)
def test_sizes_are_read_from_a_runs_gin(gin, family, fields):
    found = sizes_of_gin(Bindings.read(f"network.{gin}"))
    assert (found.family, found.vocab_size) == (family, 9)
    assert {name: getattr(found, name) for name in fields} == fields
    config = network.ModernBertConfig if family == "modernbert" else network.BertConfig
    bound = {"position_offset": 2} if family == "roberta" else {}
    assert config(**found.fields()) == config(9, **bound)


def test_a_gin_of_a_t5_or_without_a_vocabulary_gives_no_encoder():
    assert sizes_of_gin(Bindings.read("network.T5Config.vocab_size = 9")) is None
    with pytest.raises(ValueError, match=r"binds no BertConfig.vocab_size: name it with --config"):
        sizes_of_gin(Bindings.read("network.BertConfig.mlp_dim = 9"))
    odd = "network.BertConfig.vocab_size = 9\nnetwork.BertConfig.position_offset = 1"
    with pytest.raises(ValueError, match=r"position_offset is 1: transformers has 0, a BERT"):
        sizes_of_gin(Bindings.read(odd))
