"""One wrong tensor is found; tests/convert/test_from_hf.py proves the right ones."""

import contextlib
import dataclasses

import numpy as np
import pytest

from convert.proof import t5x_logits, torch_logits, verify
from convert.tokenizer import TrainedVocabulary
from fakes.convert_fakes import ENCODERS, FAMILIES, NETWORKS, arrays, tree, write_folder, write_run
from fakes.refuses import refuses

ALL = NETWORKS | ENCODERS
SIZES = FAMILIES["t5_1_1"]
BATCH = verify.probe_batch(SIZES)


def logits_of(folder, sizes, batch):
    model = torch_logits.load_network(folder, sizes)
    return torch_logits.torch_logits(model, sizes, batch)


def test_a_model_or_tokenizer_of_another_network_is_refused(tmp_path):
    write_folder(tmp_path / "hf", SIZES, arrays(SIZES))
    checkpoint = str(write_run(tmp_path / "run", SIZES))
    with refuses("transformers' model"):
        verify.verify(tmp_path / "hf", [checkpoint], FAMILIES["t5_1_0"])
    TrainedVocabulary("bytes", 100).publish(tmp_path / "hf")
    vocabulary = TrainedVocabulary("bytes", 125)
    with refuses("<extra_id_0>"):
        verify.verify(tmp_path / "hf", [checkpoint], SIZES, vocabulary=vocabulary)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """PyTorch's logits of a folder, the same for each wrong tensor."""
    folder = tmp_path_factory.mktemp("hf")
    write_folder(folder, SIZES, arrays(SIZES))
    return logits_of(folder, SIZES, BATCH)


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
    with refuses("PyTorch's logits"):
        verify.compare(ours, theirs)


@pytest.mark.parametrize("name", ["t5_1_1", "umt5", "t5gemma2", "bert", "modernbert"])
def test_bfloat16_is_compared_with_weights_rounded_alike(tmp_path, name):
    """A T5Gemma 2 holds its norms less 1, so that they are rounded less."""
    sizes = ALL[name]
    write_folder(tmp_path / "hf", sizes, arrays(sizes), "bfloat16")
    checkpoint = str(write_run(tmp_path / "run", sizes))
    facts = verify.verify(tmp_path / "hf", [checkpoint], sizes, "bfloat16")
    allowed = verify.TOLERANCE * max(1, facts["largest_logit"])
    assert facts["largest_difference"] <= allowed < facts["largest_difference_from_float32"]
    with refuses("PyTorch's logits"):
        verify.verify(tmp_path / "hf", [checkpoint], sizes, "float32")


@pytest.mark.parametrize("source", ["pooler/kernel", "nsp_head/bias", None])
def test_the_next_sentence_of_a_bert_is_compared_too(tmp_path, source):
    sizes = dataclasses.replace(ENCODERS["bert"], next_sentence=True)
    values = arrays(sizes)
    write_folder(tmp_path / "hf", sizes, values)
    if source:
        values[source] = values[source][::-1]
    checkpoint = str(write_run(tmp_path / "run", sizes, values))
    with refuses("PyTorch's logits") if source else contextlib.nullcontext():
        verify.verify(tmp_path / "hf", [checkpoint], sizes)


def test_logits_that_are_not_finite_are_refused():
    with refuses("PyTorch's logits") as refusal:
        verify.compare(np.zeros(3), np.array([0, np.nan, 1]))
    assert "not finite" in refusal.value.why


def test_the_tolerance_grows_with_the_logits():
    ours = np.array([500.0, 1.0])
    assert verify.compare(ours, ours + 0.04) == pytest.approx(0.04)
    with refuses("PyTorch's logits") as refusal:
        verify.compare(ours / 500, ours / 500 + 0.04)
    assert "0.04" in refusal.value.why


@pytest.mark.parametrize(("name", "length"), [("t5_1_1", 24), ("bert", 64), ("modernbert", 64)])
def test_the_batch_has_padding_in_its_inputs_and_logits_that_count(name, length):
    batch = verify.probe_batch(ALL[name])
    *inputs, counted = batch.values()
    assert inputs[0].shape == (2, length)
    padding = inputs[0] == 0 if name in NETWORKS else counted == 0
    assert 0 < padding.mean() < 0.5
    assert (counted > 0).any(axis=1).all()
