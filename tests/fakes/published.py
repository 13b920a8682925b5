"""Random models saved by transformers itself, as published ones are."""

import json

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from convert.model_config import hugging_face_config, model_type


def publish(folder, sizes, dtype=torch.float32):
    """A random model, saved by transformers itself."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(**hugging_face_config(sizes, model_type(sizes)))
    model = AutoModelForSeq2SeqLM.from_config(config)
    if not sizes.tied:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(sizes.vocab_size, sizes.emb_dim))
    model.to(dtype).save_pretrained(folder)
    if not sizes.tied:  # as every published model of 1.1 has it; transformers 5 writes true
        path = folder / "config.json"
        config = json.loads(path.read_text()) | {"tie_word_embeddings": False}
        path.write_text(json.dumps(config))
    return folder


def weights_named(state):
    return {name for name in state if "embed_tokens" not in name}
