import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from convert import weight_map
from convert.model_config import Sizes, hugging_face_config, model_type, sizes_of_hugging_face
from fakes.convert_fakes import FAMILIES, SMALL


def hugging_face_names(sizes):
    config = AutoConfig.for_model(**hugging_face_config(sizes, model_type(sizes)))
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(config)
    names = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    aliases = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    aliases |= {"lm_head.weight"} if sizes.tied else set()
    return {name: shape for name, shape in names.items() if name not in aliases}


@pytest.mark.parametrize("sizes", FAMILIES.values(), ids=FAMILIES)
def test_targets_are_exactly_the_tensors_of_transformers(sizes):
    weight_map.guard_targets(weight_map.tensors(sizes), hugging_face_names(sizes))


def test_a_target_that_transformers_lacks_or_keeps_at_random_is_named():
    sizes = FAMILIES["t5_1_1"]
    names = hugging_face_names(sizes)
    with pytest.raises(ValueError, match=r"keep lm_head\.extra at random"):
        weight_map.guard_targets(weight_map.tensors(sizes), names | {"lm_head.extra": (1,)})
    shape = names.pop("lm_head.weight")
    with pytest.raises(ValueError, match=r"has no lm_head\.weight"):
        weight_map.guard_targets(weight_map.tensors(sizes), names)
    with pytest.raises(ValueError, match=r"lm_head\.weight is"):
        weight_map.guard_targets(weight_map.tensors(sizes), names | {"lm_head.weight": shape[::-1]})


def checkpoint_shapes(sizes):
    return {tensor.source: tensor.shape for tensor in weight_map.tensors(sizes)}


def test_another_network_is_refused_in_one_sentence():
    t5_1_0, t5_1_1 = FAMILIES["t5_1_0"], FAMILIES["t5_1_1"]
    shapes = checkpoint_shapes(t5_1_1)
    weight_map.guard(weight_map.tensors(t5_1_1), t5_1_1, shapes)
    with pytest.raises(ValueError, match=r"no rule takes its .*wi_0.* and it lacks .*wi/kernel"):
        weight_map.guard(weight_map.tensors(t5_1_0), t5_1_0, shapes)
    extra = shapes | {"decoder/adapter/kernel": (1, 1)}
    with pytest.raises(ValueError, match="no rule takes its decoder/adapter/kernel"):
        weight_map.guard(weight_map.tensors(t5_1_1), t5_1_1, extra)
    del shapes["encoder/encoder_norm/scale"]
    with pytest.raises(ValueError, match="it lacks encoder/encoder_norm/scale"):
        weight_map.guard(weight_map.tensors(t5_1_1), t5_1_1, shapes)


def test_another_size_names_the_tensor_and_the_binding():
    sizes = FAMILIES["t5_1_1"]
    shapes = checkpoint_shapes(Sizes(**SMALL | {"mlp_dim": 48}, mlp_activations=("gelu", "linear")))
    with pytest.raises(ValueError, match=r"mlp/wi_0/kernel has shape \[16, 48\].*mlp_dim 40"):
        weight_map.guard(weight_map.tensors(sizes), sizes, shapes)


def test_the_kind_says_what_is_transposed_even_if_the_shape_is_square():
    sizes = Sizes(**SMALL | {"num_heads": 2, "head_dim": 8})  # every attention kernel is 16 x 16
    kinds = {tensor.target.rsplit(".", 2)[-2]: tensor.kind for tensor in weight_map.tensors(sizes)}
    assert kinds["q"] == kinds["o"] == kinds["wi"] == kinds["lm_head"] == weight_map.KERNEL
    assert kinds["shared"] == weight_map.EMBEDDING
    assert kinds["relative_attention_bias"] == weight_map.TABLE


@pytest.mark.parametrize("sizes", FAMILIES.values(), ids=FAMILIES)
def test_sizes_survive_the_way_through_config_json(sizes):
    assert sizes_of_hugging_face(hugging_face_config(sizes, model_type(sizes))) == sizes
