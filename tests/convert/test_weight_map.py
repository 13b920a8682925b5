import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from convert import weight_map
from convert.sizes import hugging_face_config, model_type, sizes_of_hugging_face
from fakes.convert_fakes import FAMILIES


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


@pytest.mark.parametrize("sizes", FAMILIES.values(), ids=FAMILIES)
def test_sizes_survive_the_way_through_config_json(sizes):
    assert sizes_of_hugging_face(hugging_face_config(sizes, model_type(sizes))) == sizes
