"""The attention that transformers is timed with computes the same as its other kinds."""

import pytest

from benchmarks.baselines import torch_step


@pytest.fixture
def logits():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 16}
    config = transformers.T5Config(vocab_size=50, dropout_rate=0.0, **sizes)
    inputs, previous = torch.arange(1, 25).reshape(3, 8), torch.arange(1, 16).reshape(3, 5)

    def compute(attention):
        torch.manual_seed(0)
        model = transformers.AutoModelForSeq2SeqLM.from_config(
            config, attn_implementation=attention
        )
        with torch.no_grad():
            return model(input_ids=inputs, decoder_input_ids=previous, use_cache=False).logits

    return compute


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_reads_one_bias_for_all_examples_and_masks(logits):
    wanted = logits("sdpa")
    torch_step._repair_flex_attention()
    assert (logits("flex_attention") - wanted).abs().max() < 1e-5
