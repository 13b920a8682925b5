"""The table of weights covers each network, and joins and splits what Hugging Face joins."""

import numpy as np
import pytest

from convert.encoders import weight_map
from fakes.encoder_golden import FAMILIES, EncoderGolden


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_has_all_tensors_of_transformers_and_no_other(family):
    """Values are compared by logits and gradients, in the tests of the networks."""
    golden = EncoderGolden(family)
    shapes = {k.removeprefix("init/"): v.shape for k, v in golden.numbers.items() if "init/" in k}
    table = weight_map.tensors(golden.sizes)
    assert {tensor.target: tensor.torch_shape for tensor in table} == shapes


@pytest.mark.parametrize("family", FAMILIES)
def test_joining_undoes_splitting(family):
    golden = EncoderGolden(family)
    for tensor in weight_map.tensors(golden.sizes):
        array = golden.numbers[f"init/{tensor.target}"]
        parts = tensor.split(array)
        assert {part.shape for part in parts} == {tensor.shape}
        np.testing.assert_array_equal(tensor.joined(parts), array)


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        ("bert.layer.0.output.LayerNorm.beta", "bert.layer.0.output.LayerNorm.bias"),
        ("bert.embeddings.position_ids", None),
        ("cls.predictions.decoder.weight", None),
        ("lm_head.decoder.bias", None),
        ("roberta.pooler.dense.weight", None),
        ("decoder.weight", None),
        ("decoder.bias", "decoder.bias"),
    ],
)
def test_old_names_are_read_and_copies_left_out(name, present):
    assert weight_map.present_name(name) == present
