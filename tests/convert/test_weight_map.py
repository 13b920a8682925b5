"""The table of weights has every tensor of transformers and no other, and its guards name a fault.

That the values are the right ones is compared by logits.
"""

import dataclasses

import numpy as np
import pytest
import torch
import transformers

from convert import weight_map
from fakes.convert_fakes import ENCODERS, FAMILIES
from fakes.refuses import refuses

ALL = FAMILIES | ENCODERS
ALL |= {"pretraining": dataclasses.replace(ENCODERS["bert"], next_sentence=True)}


def hugging_face_shapes(sizes):
    config = transformers.AutoConfig.for_model(**sizes.config())
    with torch.device("meta"):
        model = getattr(transformers, sizes.architecture)(config)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    return weight_map.present(shapes, sizes)


@pytest.mark.parametrize("sizes", ALL.values(), ids=ALL)
def test_targets_are_exactly_the_tensors_of_transformers(sizes):
    weight_map.guard_targets(sizes, hugging_face_shapes(sizes), "The model")


@pytest.mark.parametrize("sizes", ALL.values(), ids=ALL)
def test_taking_a_tensor_apart_undoes_joining_it(sizes):
    random = np.random.default_rng(0)
    for tensor in weight_map.tensors(sizes):
        array = random.normal(size=tensor.torch_shape)
        parts = tensor.from_torch(array)
        assert {part.shape for part in parts} == {tensor.shape}
        np.testing.assert_array_equal(tensor.to_torch(parts), array)


def test_an_unknown_target_one_left_unset_and_another_shape_are_named():
    sizes = FAMILIES["t5_1_1"]
    names = hugging_face_shapes(sizes)
    shape = names["lm_head.weight"]
    for change, said in (
        (names | {"lm_head.extra": (1,)}, "no rule takes its lm_head.extra"),
        ({k: v for k, v in names.items() if k != "lm_head.weight"}, "lacks lm_head.weight"),
        (names | {"lm_head.weight": shape[::-1]}, "lm_head.weight has shape"),
    ):
        with refuses("the model") as refusal:
            weight_map.guard_targets(sizes, change, "the model")
        assert said in refusal.value.why


def test_a_target_that_is_set_twice_is_named(monkeypatch):
    rows = [("shared.weight", "a/embedding", "VD"), ("shared.weight", "b/embedding", "VD")]
    monkeypatch.setattr(weight_map, "_rows", lambda sizes: rows)
    with refuses("shared.weight"):
        weight_map.tensors(FAMILIES["t5_1_1"])


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        ("bert.layer.0.output.LayerNorm.beta", "bert.layer.0.output.LayerNorm.bias"),
        ("bert.embeddings.position_ids", None),
        ("bert.pooler.dense.bias", None),
        ("cls.predictions.decoder.weight", None),
        ("lm_head.decoder.bias", None),
        ("roberta.pooler.dense.weight", None),
        ("decoder.weight", None),
        ("decoder.bias", "decoder.bias"),
    ],
)
def test_old_names_are_read_and_copies_left_out(name, present):
    assert weight_map.present({name: 1}, ENCODERS["bert"]) == ({present: 1} if present else {})
