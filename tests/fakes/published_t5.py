"""Folders of tiny random T5 with vocabularies, as Hugging Face has them."""

import json

from convert.sizes import T5Sizes
from fakes import published, small_vocabulary

LAYERS = {"num_encoder_layers": 2, "num_decoder_layers": 2}
NARROW = {"emb_dim": 32, "num_heads": 2, "head_dim": 16, "mlp_dim": 64, **LAYERS}


def sentencepiece(folder):
    small_vocabulary.train(folder, count=0)
    (folder / "small.model").rename(folder / "spiece.model")
    extra = [f"<extra_id_{i}>" for i in range(100)]
    return {"extra_ids": 100, "additional_special_tokens": extra}


def umt5(folder):
    """A umT5 whose sentinels stand after its SentencePiece model."""
    config = sentencepiece(folder) | {"tokenizer_class": "T5Tokenizer"}
    sizes = T5Sizes(400, **NARROW, mlp_activations=("gelu", "linear"), own_relative_bias=True)
    published.publish(folder, sizes)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def byt5(folder):
    published.publish(folder, T5Sizes(384, **NARROW, mlp_activations=("gelu", "linear")))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
