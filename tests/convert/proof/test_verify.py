"""Verification finds one wrong tensor, and compares rounded weights with weights rounded alike."""

import numpy as np
import pytest

from convert.proof import t5x_logits, verify
from convert.proof.torch_logits import torch_logits
from fakes.convert_fakes import FAMILIES, arrays, tree, write_folder, write_run

SIZES = FAMILIES["t5_1_1"]
BATCH = verify.probe_batch(SIZES)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """PyTorch's logits of a folder, the same for each wrong tensor."""
    folder = tmp_path_factory.mktemp("hf")
    write_folder(folder, SIZES, arrays(SIZES))
    return torch_logits(folder, SIZES, BATCH)


@pytest.mark.parametrize(
    "source",
    [
        "decoder/logits_dense/kernel",
        "encoder/relpos_bias/rel_embedding",
        "decoder/layers_1/encoder_decoder_attention/out/kernel",
        "encoder/layers_2/pre_mlp_layer_norm/scale",
    ],
)
def test_one_wrong_tensor_anywhere_is_found(theirs, source):
    values = arrays(SIZES)
    values[source] = values[source][..., ::-1]
    ours = t5x_logits.trainer_logits(tree(values), SIZES, BATCH)
    with pytest.raises(ValueError, match="logits differ"):
        verify.compare(ours, theirs)


def test_bfloat16_is_compared_with_weights_rounded_alike(tmp_path):
    write_folder(tmp_path / "hf", SIZES, arrays(SIZES), "bfloat16")
    checkpoint = str(write_run(tmp_path / "run", SIZES))
    facts = verify.verify(tmp_path / "hf", [checkpoint], SIZES, "bfloat16")
    assert facts["largest_difference"] < 1e-4 < facts["largest_difference_from_float32"]
    with pytest.raises(ValueError, match="logits differ"):
        verify.verify(tmp_path / "hf", [checkpoint], SIZES, "float32")


def test_logits_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="not finite"):
        verify.compare(np.zeros(3), np.array([0, np.nan, 1]))


def test_the_tolerance_grows_with_the_logits():
    ours = np.array([500.0, 1.0])
    assert verify.compare(ours, ours + 0.04) == pytest.approx(0.04)
    with pytest.raises(ValueError, match=r"differ from the trainer's by 0\.04"):
        verify.compare(ours / 500, ours / 500 + 0.04)


def test_padding_of_the_inputs_is_part_of_the_batch():
    assert (BATCH["encoder_input_tokens"] == 0).any()
    assert (BATCH["decoder_target_tokens"] > 0).all()
