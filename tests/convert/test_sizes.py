"""Sizes are those of the trainer's networks, and survive the way through gin and config.json."""

import dataclasses
import importlib

import numpy as np
import pytest
import torch
import transformers

from common.errors import UserError
from common.gin_reader import Bindings
from convert import sizes as sizes_module
from convert.run.rewrite import gin_of
from convert.sizes import BertSizes, ModernBertSizes, T5Sizes, read_config, read_gin
from fakes.convert_fakes import ENCODERS, NETWORKS
from fakes.refuses import refuses

ALL = NETWORKS | ENCODERS
GATED = {"mlp_activations": ("gelu", "linear")}
# Numerics, which neither shape a network nor change what trained weights compute.
NUMERICS = {"dtype", "remat_policy", "attention", "float32_attention_logits"}


@pytest.mark.parametrize("kind", sizes_module.KINDS)
def test_fields_and_defaults_are_those_of_the_trained_network(kind):
    """Sizes repeats them, since importing a network would load jax."""
    network = importlib.import_module(f"{kind.package}.network")
    trained = getattr(network, kind.configuration)(vocab_size=9)
    assert kind(9).fields() == {k: v for k, v in vars(trained).items() if k not in NUMERICS}


@pytest.mark.parametrize(
    "sizes",
    [
        *ALL.values(),
        BertSizes(100, position_offset=2, type_vocab_size=1, norm_epsilon=1e-5),
        BertSizes(100, position_offset=2, model_type="xlm-roberta"),
        T5Sizes(96, mlp_activations=("silu", "linear"), dropout_rate=0.0),
        ModernBertSizes(100, num_layers=9, global_every=4, local_theta=7.0),
    ],
)
def test_sizes_survive_the_way_through_config_json_and_gin(sizes):
    found = read_config(sizes.config())
    if isinstance(sizes, BertSizes):  # what no config.json says
        found = dataclasses.replace(found, next_sentence=sizes.next_sentence)
    assert found == sizes
    assert read_gin(Bindings.read(gin_of(sizes))) == sizes


@pytest.mark.parametrize("name", ["t5_1_1", "t5gemma2", "bert", "modernbert"])
def test_of_several_networks_in_a_gin_the_models_is_read(name):
    """A recipe that replaces the network of another still binds the sizes of both."""
    bound = "\n".join(gin_of(ALL[other]) for other in ("t5_1_1", "t5gemma2", "bert", "modernbert"))
    module = f"models.EncoderDecoderModel.module = @network.{ALL[name].module}()"
    assert read_gin(Bindings.read(f"{bound}\n{module}\n")) == ALL[name]


@pytest.mark.parametrize(
    ("sizes", "families"),
    [
        (NETWORKS["t5_1_0"], ["t5"]),  # transformers' mT5 does not scale a tied head
        (NETWORKS["t5_1_1"], ["t5", "mt5"]),
        (NETWORKS["umt5"], ["umt5"]),
        (T5Sizes(250_112, **GATED), ["mt5", "t5"]),
        (T5Sizes(250_112, **GATED, logits_via_embedding=True), ["t5"]),
        (BertSizes(9), ["bert"]),
        (BertSizes(9, position_offset=2), ["roberta", "xlm-roberta"]),
        (ModernBertSizes(9), ["modernbert"]),
    ],
)
def test_the_family_follows_from_the_network_and_another_that_fits_may_be_chosen(sizes, families):
    assert sizes.family == families[0]
    for family in [name for kind in sizes_module.KINDS for name in kind.families]:
        chosen = dataclasses.replace(sizes, model_type=family)
        if family in families:
            assert chosen.config()["model_type"] == family
        else:
            with refuses("model_type", family):
                chosen.config()


@pytest.mark.parametrize(
    ("kind", "fields", "setting"),
    [
        ("T5Config", {"emb_dim": 8}, "vocab_size"),
        ("T5Config", {"vocab_size": 96, "emb_dim": "8"}, "emb_dim"),
        *(
            ("T5Config", {"vocab_size": 9, "mlp_activations": wrong}, "mlp_activations")
            for wrong in (("linear", "gelu"), ("tanh",), ("gelu", "gelu", "linear"))
        ),
        ("BertConfig", {"mlp_dim": 9}, "vocab_size"),
        ("BertConfig", {"vocab_size": 9, "position_offset": -1}, "position_offset"),
    ],
)
def test_a_gin_of_no_network_that_transformers_has_is_refused(kind, fields, setting):
    gin = "\n".join(f"network.{kind}.{name} = {value!r}" for name, value in fields.items())
    with refuses(f"network.{kind}.{setting}", fields.get(setting, ...)):
        read_gin(Bindings.read(gin)).config()


T5, BERT = NETWORKS["t5_1_1"].config(), {"model_type": "bert", "vocab_size": 100}
MODERN = BERT | {"model_type": "modernbert"}


def test_keys_that_a_config_leaves_out_have_the_defaults_of_transformers():
    assert read_config(BERT) == BertSizes(100, next_sentence=False)
    assert read_config(MODERN) == ModernBertSizes(100)
    old = {"global_rope_theta": 5.0, "local_rope_theta": 6.0}  # the names of transformers 4
    assert read_config(MODERN | old) == ModernBertSizes(100, global_theta=5.0, local_theta=6.0)
    assert read_config(T5 | {"num_decoder_layers": None}).num_decoder_layers == 3


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "bert"}, "vocab_size"),
        ({k: v for k, v in T5.items() if k != "d_ff"}, "d_ff"),
        (T5 | {"feed_forward_proj": "gelu"}, "feed_forward_proj"),  # the exact one
        (BERT | {"num_hidden_layers": "2"}, "num_hidden_layers"),
        (BERT | {"hidden_act": "relu"}, "hidden_act"),
        (MODERN | {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
        (MODERN | {"rope_parameters": {"full_attention": {"factor": 2}}}, "rope_parameters"),
        (MODERN | {"rope_parameters": {"other_attention": {}}}, "rope_parameters"),
        (MODERN | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling"),
        *((MODERN | {"local_rope_theta": base}, "local_rope_theta") for base in (-1, None, 0)),
        (MODERN | {"global_rope_theta": "160000"}, "global_rope_theta"),
    ],
)
def test_a_network_that_the_trainer_does_not_have_is_refused(config, key):
    value = config.get(key) if key != "rope_parameters" else ...
    with refuses(f"{key} of config.json", value):
        read_config(config)


GEMMA = NETWORKS["t5gemma2"].config()


def gemma(*, without="", top=None, **settings):
    """A T5Gemma 2's config.json as transformers saves it, changed at the top or on both sides."""
    change = lambda side: {k: v for k, v in {**side, **settings}.items() if k != without}
    encoder = GEMMA["encoder"] | {"tie_word_embeddings": True, "model_type": "t5gemma2_encoder"}
    encoder["text_config"] = change(encoder["text_config"])
    return GEMMA | {"encoder": encoder, "decoder": change(GEMMA["decoder"])} | (top or {})


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (gemma(top={"tie_word_embeddings": False}), "tie_word_embeddings", False),
        (gemma(without="layer_types"), "layer_types", ["sliding_attention"]),
        (gemma(layer_types=["sliding_attention", "full_attention"]), "layer_types", ...),
        (gemma(without="query_pre_attn_scalar"), "query_pre_attn_scalar", 256),
        (gemma(query_pre_attn_scalar=24), "query_pre_attn_scalar", 24),
        (gemma(final_logit_softcapping=30.0), "final_logit_softcapping", 30.0),
        (gemma(attention_bias=True), "attention_bias", True),
        (gemma(top={"attention_dropout": 0.5}), "attention_dropout", 0.5),
        (gemma(top={"dropout_rate": 0.5}), "attention_dropout", 0.0),
        (gemma(rope_parameters={"full_attention": {"rope_type": "linear"}}), "rope_type", "linear"),
        (gemma(rope_scaling={"factor": 8.0}), "rope_scaling", {"factor": 8.0}),
        *(
            (gemma(rope_parameters={"full_attention": {"rope_theta": base}}), "rope_theta", base)
            for base in ("10000", 0, -1.0)
        ),
        (GEMMA | {"decoder": GEMMA["decoder"] | {"hidden_size": 32}}, "hidden_size", 16),
        (GEMMA | {"decoder": gemma(without="rope_parameters")["decoder"]}, "rope_parameters", ...),
    ],
)
def test_a_t5gemma2_that_the_trainer_does_not_have_is_refused(config, key, value):
    """Encoder and decoder repeat most settings; of those that the top has, the top's count."""
    with refuses(f"{key} of config.json", value):
        read_config(config)


def test_a_t5gemma2_that_transformers_saved_is_read():
    sizes = NETWORKS["t5gemma2"]
    assert read_config(gemma()) == sizes
    assert not sizes_module.unknown(gemma(), sizes)
    assert read_config(gemma(without="rope_parameters")).rope_theta == 1_000_000.0
    old = gemma(without="rope_parameters", rope_theta=5_000.0)  # the name of transformers 4
    assert read_config(old).rope_theta == 5_000.0
    assert not sizes_module.unknown(old, sizes)


def test_tokens_that_a_user_adds_to_a_t5gemma2_have_embeddings_of_their_own():
    """Its class writes another embedding over that of an id for images."""
    config = transformers.AutoConfig.for_model(**NETWORKS["t5gemma2"].config())
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)
    added = torch.arange(96, 100)
    model.resize_token_embeddings(100, mean_resizing=False)
    with torch.inference_mode():
        for table in (model.get_input_embeddings(), model.model.decoder.embed_tokens):
            scaled = table.weight[added] * table.embed_scale
            torch.testing.assert_close(table(added), scaled)


def test_an_unknown_family_is_refused():
    with refuses("model_type", "gpt2"):
        read_config({"model_type": "gpt2"})


# A network of each class of transformers.
CLASSES = {name: ALL[name] for name in ("umt5", "bert", "roberta", "modernbert")}
CLASSES |= {"t5": ALL["t5_1_0"], "mt5": dataclasses.replace(ALL["t5_1_1"], model_type="mt5")}
CLASSES["xlm-roberta"] = dataclasses.replace(ALL["roberta"], model_type="xlm-roberta")
# The weights' own dtype, what is read with the weights (see test_from_hf), and tuples for objects.
ELSEWHERE = {"dtype", "scale_decoder_outputs", "return_dict"}


def another(value):
    """A value of the same kind, or a number instead of nothing."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + (0.25 if isinstance(value, float) else 2)
    if isinstance(value, str):
        return {"gelu": "relu", "gelu_new": "relu", "relu": "silu", "cls": "mean"}.get(
            value, "silu"
        )
    return 3 if value is None else {} if isinstance(value, dict) else value * 2


def sizes_or_refusal(config):
    try:
        return read_config(config)
    except UserError as error:
        return str(error)


def outputs(config, state=None):
    """Weights, logits and generated ids of a random model, or the outputs of one with weights."""
    torch.manual_seed(0)
    ids = torch.randint(3, 90, (2, 24))
    is_t5 = "t5" in config["model_type"]
    kind = transformers.AutoModelForSeq2SeqLM if is_t5 else transformers.AutoModelForMaskedLM
    model = kind.from_config(transformers.AutoConfig.for_model(**config)).eval()
    if state is not None:
        model.load_state_dict(state)
    with torch.inference_mode():
        given = {"input_ids": ids} | ({"decoder_input_ids": ids[:, :6]} if is_t5 else {})
        logits = model(**given).logits.numpy()
        flags = {"max_new_tokens": 4, "return_dict_in_generate": True}
        made = model.generate(ids, **flags).sequences.numpy() if is_t5 else 0
    return model.state_dict(), logits, made


@pytest.mark.parametrize("family", CLASSES)
def test_every_setting_of_a_class_is_kept_or_refused_by_name_or_changes_nothing(family):
    """A setting that a later transformers adds, and that changes a number, fails here."""
    sizes = CLASSES[family]
    base = sizes.config()
    settings = transformers.AutoConfig.for_model(**base).to_dict()
    assert not sizes_module.unknown(settings, sizes)
    before, unused = read_config(base), {}
    for name in {*settings, *base, *sizes.aliases} - ELSEWHERE:
        value = another(settings.get(name, base.get(name)))
        found = sizes_or_refusal(base | {name: value})
        if isinstance(found, str):
            assert name in found or sizes.aliases.get(name, name) in found
        elif found == before:
            unused[name] = value
    state, *wanted = outputs(base)
    _, *computed = outputs(base | unused, state)
    for a, b in zip(computed, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, err_msg=str(unused))


def test_a_setting_that_nothing_knows_is_named():
    sizes = NETWORKS["t5_1_1"]
    assert sizes_module.unknown(sizes.config() | {"quantized": 4, "absent": None}, sizes) == {
        "quantized"
    }


def test_a_roberta_counts_its_positions_from_the_id_of_its_padding():
    config = {"model_type": "roberta", "vocab_size": 9, "max_position_embeddings": 70}
    found = read_config(config | {"pad_token_id": 5})
    assert (found.position_offset, found.max_length) == (6, 64)
    assert found.config().items() >= (config | {"pad_token_id": 5}).items()
