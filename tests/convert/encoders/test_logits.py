"""The batch of a comparison has padding, and rows that windows cut."""

from convert.encoders.logits import probe_batch
from convert.encoders.sizes import EncoderSizes


def test_the_batch_reaches_what_a_network_does():
    batch = probe_batch(EncoderSizes("modernbert", 50, max_length=8192))
    assert batch["encoder_input_tokens"].shape == (2, 200)
    assert 0 < (batch["encoder_segment_ids"] == 0).mean() < 0.5
    assert 2 <= batch["encoder_input_tokens"].min() < batch["encoder_input_tokens"].max() < 50
    short = probe_batch(EncoderSizes("bert", 50, max_length=32))
    assert short["encoder_input_tokens"].shape == (2, 32)
