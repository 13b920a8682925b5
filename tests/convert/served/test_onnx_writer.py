"""The parts that are exported compute the model; what onnxruntime computes is a slow test's."""

import pytest
import torch

from convert.proof import verify
from convert.proof.torch_logits import load_torch
from convert.served import onnx_writer
from fakes.convert_fakes import FAMILIES, arrays, write_folder


@pytest.mark.parametrize("name", FAMILIES)
def test_encoder_and_decoder_are_the_model(tmp_path, name):
    sizes = FAMILIES[name]
    write_folder(tmp_path, sizes, arrays(sizes))
    model = load_torch(tmp_path)
    batch = verify.probe_batch(sizes)
    ids = torch.from_numpy(batch["encoder_input_tokens"]).long()
    shifted = torch.from_numpy(batch["decoder_input_tokens"]).long()
    mask = (ids > 0).long()
    encoder, decoder = onnx_writer.halves(model)
    with torch.inference_mode():
        found = decoder(shifted, mask, encoder(ids, mask))
        wanted = model(input_ids=ids, attention_mask=mask, decoder_input_ids=shifted).logits
    torch.testing.assert_close(found, wanted)
    assert wanted.abs().max() > 0.5
