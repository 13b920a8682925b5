"""Random models saved by transformers itself, as published ones are."""

import json

import torch
import transformers
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from fakes.convert_fakes import NETWORKS


def publish(folder, sizes, dtype=torch.float32):
    """A random T5, saved by transformers itself."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(**sizes.config())
    model = AutoModelForSeq2SeqLM.from_config(config)
    if not sizes.tied:
        model.lm_head.weight = torch.nn.Parameter(torch.empty(sizes.vocab_size, sizes.emb_dim))
    _randomize(model)
    model.to(dtype).save_pretrained(folder)
    if not sizes.tied:  # as every published model of 1.1 has it; transformers 5 writes true
        path = folder / "config.json"
        config = json.loads(path.read_text()) | {"tie_word_embeddings": False}
        path.write_text(json.dumps(config))
    return folder


def _randomize(model):
    """Make each parameter random, also those that are ones or zeros before training.

    Wide products are of smaller numbers, or float32 would not have enough digits for the logits.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            deviation = min(0.3, parameter.shape[-1] ** -0.5)
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name.lower() else 0.0, deviation)


_ENCODER = {"vocab_size": 60, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12}
_MODERN = _ENCODER | {"num_hidden_layers": 4, "local_attention": 8}
_LONG = _ENCODER | {"max_position_embeddings": 66, "num_hidden_layers": 2}
ENCODERS = {
    "bert": ("BertForMaskedLM", _LONG),
    "pretraining": ("BertForPreTraining", _LONG),
    "roberta": ("RobertaForMaskedLM", _LONG | {"type_vocab_size": 1}),
    "xlm-roberta": ("XLMRobertaForMaskedLM", _LONG | {"type_vocab_size": 1}),
    "modernbert": ("ModernBertForMaskedLM", _MODERN),
}
_IDS = {"pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2, "bos_token_id": 0}


def published_encoder(folder, family, **changes):
    """Write a folder of random weights, as transformers does; return its model."""
    architecture, fields = ENCODERS[family]
    torch.manual_seed(0)
    config = architecture.split("For")[0] + "Config"
    config = getattr(transformers, config)(**{**fields, **changes}, **_IDS, eos_token_id=2)
    model = getattr(transformers, architecture)(config)
    _randomize(model)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return model


def published(folder, name):
    """Write a random T5 or encoder of that name; return the folder."""
    if name in ENCODERS:
        published_encoder(folder, name)
        return folder
    return publish(folder, NETWORKS[name])
