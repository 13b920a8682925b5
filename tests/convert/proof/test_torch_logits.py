"""transformers computes the trainer's logits."""

import numpy as np
import pytest

from convert.proof import t5x_logits, verify
from convert.proof.torch_logits import torch_logits
from convert.tokenizer import TrainedVocabulary
from fakes.convert_fakes import FAMILIES, NETWORKS, arrays, tree, write_folder


@pytest.mark.parametrize("name", NETWORKS)
def test_transformers_computes_the_same_logits(tmp_path, name):
    sizes = NETWORKS[name]
    write_folder(tmp_path, sizes, arrays(sizes))
    batch = verify.probe_batch(sizes)
    theirs = torch_logits(tmp_path, sizes, batch)
    ours = t5x_logits.trainer_logits(tree(arrays(sizes)), sizes, batch)
    assert verify.compare(ours, theirs) < 1e-4
    assert np.abs(theirs).max() > 0.5


def test_a_model_or_tokenizer_of_another_network_is_refused(tmp_path):
    sizes = FAMILIES["t5_1_1"]
    write_folder(tmp_path, sizes, arrays(sizes))
    batch = verify.probe_batch(sizes)
    with pytest.raises(ValueError, match=r"has no .*wi\.weight"):
        torch_logits(tmp_path, FAMILIES["t5_1_0"], batch)
    TrainedVocabulary("bytes", 100).write(tmp_path)
    with pytest.raises(ValueError, match="<extra_id_0> is 358"):
        torch_logits(tmp_path, sizes, batch, TrainedVocabulary("bytes", 125))
