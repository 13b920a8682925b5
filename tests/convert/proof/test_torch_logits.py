"""transformers computes the trainer's logits, at once and block by block."""

import dataclasses
import functools

import numpy as np
import pytest

from convert import tokenizer
from convert.proof import t5x_logits, verify
from convert.proof.torch_logits import load_torch, torch_logits, torch_outputs
from convert.tokenizer import TrainedVocabulary
from fakes.convert_fakes import FAMILIES, NETWORKS, arrays, tree, write_folder
from fakes.paths import ROOT


@functools.cache
def trainer_logits(name):
    sizes = NETWORKS[name]
    return t5x_logits.trainer_logits(tree(arrays(sizes)), sizes, verify.probe_batch(sizes))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layerwise", [False, True])
def test_transformers_computes_the_same_logits(tmp_path, name, layerwise):
    sizes = NETWORKS[name]
    write_folder(tmp_path, sizes, arrays(sizes))
    theirs = torch_logits(tmp_path, sizes, verify.probe_batch(sizes), layerwise)
    assert verify.compare(trainer_logits(name), theirs) < 1e-4
    assert np.abs(theirs).max() > 0.5


def test_a_layerwise_model_holds_no_weights_between_calls(tmp_path):
    sizes = FAMILIES["t5_1_1"]
    write_folder(tmp_path, sizes, arrays(sizes))
    model = load_torch(tmp_path, layerwise=True)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_a_layerwise_model_generates_the_same(tmp_path):
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    write_folder(tmp_path, sizes, arrays(sizes))
    tokenizer.write_tokenizer(str(ROOT / "data/ro_mini/ro_mini.model"), str(tmp_path))
    texts = ("Ana are <extra_id_0> mere.", "Copiii merg la <extra_id_0> în zori.")
    batch = verify.probe_batch(sizes)
    at_once, blocks = (torch_outputs(tmp_path, sizes, batch, b, None, texts) for b in (False, True))
    assert at_once.texts == blocks.texts
    assert len(at_once.texts) == len(set(at_once.texts)) == 2


def test_a_model_or_tokenizer_of_another_network_is_refused(tmp_path):
    sizes = FAMILIES["t5_1_1"]
    write_folder(tmp_path, sizes, arrays(sizes))
    batch = verify.probe_batch(sizes)
    with pytest.raises(ValueError, match=r"has no .*wi\.weight"):
        torch_logits(tmp_path, FAMILIES["t5_1_0"], batch)
    TrainedVocabulary("bytes", 100).write(tmp_path)
    with pytest.raises(ValueError, match="<extra_id_0> is 358"):
        torch_logits(tmp_path, sizes, batch, False, TrainedVocabulary("bytes", 125))
