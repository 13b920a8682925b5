"""An encoder's sizes, as its gin file binds them, and the Hugging Face configuration of it.

Field names and defaults are those of `network.BertConfig` and `network.ModernBertConfig` in
`t5x.examples.encoder`, which importing would load jax.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from common.gin_reader import Bindings

ARCHITECTURES = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "xlm-roberta": "XLMRobertaForMaskedLM",
    "modernbert": "ModernBertForMaskedLM",
}
PRETRAINING = "BertForPreTraining"  # with pooler and next-sentence head
# Our fields and transformers' names of them, and the values that transformers has for none.
_COMMON = {
    "vocab_size": ("vocab_size", None),
    "emb_dim": ("hidden_size", 768),
    "num_heads": ("num_attention_heads", 12),
    "num_layers": ("num_hidden_layers", 12),
    "mlp_dim": ("intermediate_size", 3072),
}
_OF_BERT = {
    "type_vocab_size": ("type_vocab_size", 2),
    "dropout_rate": ("hidden_dropout_prob", 0.1),
    "attention_dropout_rate": ("attention_probs_dropout_prob", 0.1),
    "norm_epsilon": ("layer_norm_eps", 1e-12),
}
_OF_MODERN_BERT = {
    "num_layers": ("num_hidden_layers", 22),
    "mlp_dim": ("intermediate_size", 1152),
    "max_length": ("max_position_embeddings", 8192),
    "dropout_rate": ("embedding_dropout", 0.0),
    "attention_dropout_rate": ("attention_dropout", 0.0),
    "norm_epsilon": ("norm_eps", 1e-5),
    "local_window": ("local_attention", 128),
}
_OFFSETS = {"bert": 0, "roberta": 2, "xlm-roberta": 2}
# Settings that the networks do not have, and the value of each that they compute.
_FIXED = {
    "bert": {"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False},
    "modernbert": {
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "mlp_dropout": 0.0,
        "classifier_bias": False,
        "decoder_bias": True,
        "tie_word_embeddings": True,
    },
}


@dataclasses.dataclass(frozen=True)
class EncoderSizes:
    """The fields of an encoder's configuration that conversion needs, and its family."""

    family: str
    vocab_size: int
    emb_dim: int = 768
    num_heads: int = 12
    num_layers: int = 12
    mlp_dim: int = 3072
    max_length: int = 512
    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.1
    norm_epsilon: float = 1e-12
    type_vocab_size: int = 2
    position_offset: int = 0
    next_sentence: bool = False
    global_every: int = 3
    local_window: int = 128
    global_theta: float = 160_000.0
    local_theta: float = 10_000.0

    @property
    def architecture(self) -> str:
        """The class of transformers."""
        return PRETRAINING if self.next_sentence else ARCHITECTURES[self.family]

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.emb_dim // self.num_heads

    @property
    def modern(self) -> bool:
        """Whether this is a ModernBERT."""
        return self.family == "modernbert"

    def with_next_sentence(self, has: bool) -> "EncoderSizes":
        """Return these sizes with or without pooler and next-sentence head."""
        return dataclasses.replace(self, next_sentence=has)

    def fields(self) -> dict[str, Any]:
        """Return the arguments of `BertConfig` or `ModernBertConfig`."""
        fields = dataclasses.asdict(self)
        of_bert = ("type_vocab_size", "position_offset", "next_sentence")
        of_modern_bert = ("global_every", "local_window", "global_theta", "local_theta")
        absent = {"family", *(of_bert if self.modern else of_modern_bert)}
        return {name: value for name, value in fields.items() if name not in absent}

    def in_family(self, tokenizer_class: str | None) -> "EncoderSizes":
        """Return these sizes as XLM-R's, whose network is a RoBERTa, if a tokenizer is its own."""
        if self.family != "roberta" or not (tokenizer_class or "").startswith("XLMRoberta"):
            return self
        return dataclasses.replace(self, family="xlm-roberta")

    def summary(self) -> str:
        """Return the network in a few words, for messages."""
        return f"{self.family}, {self.num_layers} layers, emb_dim {self.emb_dim}"


def sizes_of_hugging_face(config: Mapping[str, Any]) -> EncoderSizes:
    """Return the sizes in a config.json; raise ValueError if it is of no encoder that we have."""
    family = config.get("model_type")
    if family not in ARCHITECTURES:
        raise ValueError(f"model_type {family!r} is not one of {sorted(ARCHITECTURES)}.")
    modern = family == "modernbert"
    for name, value in _FIXED["modernbert" if modern else "bert"].items():
        if config.get(name, value) != value:
            raise ValueError(
                f"config.json has {name} {config[name]!r}: the trainer's {family} computes "
                f"{value!r} only."
            )
    names = _COMMON | (_OF_MODERN_BERT if modern else _OF_BERT)
    read = {ours: config.get(theirs, default) for ours, (theirs, default) in names.items()}
    for ours, (theirs, _) in _COMMON.items():
        if not isinstance(read[ours], int) or read[ours] < 1:
            raise ValueError(
                f"config.json has {theirs} {read[ours]!r}, which must be an integer above 0: add "
                "what the model was trained with."
            )
    if modern:
        return EncoderSizes(family, **read, **_rotary_of(config))
    offset = _OFFSETS[family]
    rows = config.get("max_position_embeddings", 512)
    return EncoderSizes(family, **read, position_offset=offset, max_length=rows - offset)


def sizes_of_gin(bindings: Bindings) -> EncoderSizes | None:
    """Return the sizes that a run's gin binds, None if it is of no encoder.

    Raises:
      ValueError: vocab_size or the family is not to be known.
    """
    for name, names in (("ModernBertConfig", _COMMON | _OF_MODERN_BERT), ("BertConfig", _COMMON)):
        if not (given := bindings.literals(name)):
            continue
        defaults: dict[str, Any] = {ours: default for ours, (_, default) in names.items()}
        family, offset = "modernbert", given.get("position_offset", 0)
        if name == "BertConfig":
            defaults["next_sentence"] = True
            if offset not in _OFFSETS.values():
                raise ValueError(
                    f"network.BertConfig.position_offset is {offset}: transformers has 0, a BERT, "
                    "and 2, a RoBERTa."
                )
            family = "roberta" if offset else "bert"
        fields = {field.name for field in dataclasses.fields(EncoderSizes)}
        found = defaults | {k: v for k, v in given.items() if k in fields}
        if found["vocab_size"] is None:
            raise ValueError(f"The run's gin binds no {name}.vocab_size: name it with --config.")
        return EncoderSizes(family, **found)
    return None


def _rotary_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the thetas and the period of global layers, by the old or the new names."""
    rotary = config.get("rope_parameters") or {}
    theta = lambda kind, old, default: (rotary.get(kind) or {}).get(
        "rope_theta", config.get(old, default)
    )
    kinds = config.get("layer_types")
    every = config.get("global_attn_every_n_layers", 3)
    if kinds:
        others = [i for i, kind in enumerate(kinds) if i and kind == "full_attention"]
        every = others[0] if others else len(kinds)
        if kinds != _layer_types(len(kinds), every):
            raise ValueError(
                f"config.json has layer_types {kinds}: the trainer's layers with global attention "
                "are regular, beginning with the first."
            )
    return {
        "global_every": every,
        "global_theta": theta("full_attention", "global_rope_theta", 160_000.0),
        "local_theta": theta("sliding_attention", "local_rope_theta", 10_000.0),
    }


def hugging_face_config(sizes: EncoderSizes) -> dict[str, Any]:
    """Return config.json without a dtype and without special ids."""
    names = _COMMON | (_OF_MODERN_BERT if sizes.modern else _OF_BERT)
    found = {theirs: getattr(sizes, ours) for ours, (theirs, _) in names.items()}
    found |= {"architectures": [sizes.architecture], "model_type": sizes.family}
    found["tie_word_embeddings"] = True
    if not sizes.modern:
        found["max_position_embeddings"] = sizes.max_length + sizes.position_offset
        return found | _FIXED["bert"] | {"initializer_range": 0.02}
    rotary = {"full_attention": sizes.global_theta, "sliding_attention": sizes.local_theta}
    found["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in rotary.items()
    }
    found["layer_types"] = _layer_types(sizes.num_layers, sizes.global_every)
    # The names of transformers 4.
    found["global_attn_every_n_layers"] = sizes.global_every
    found["global_rope_theta"] = sizes.global_theta
    found["local_rope_theta"] = sizes.local_theta
    return found | _FIXED["modernbert"]


def _layer_types(layers: int, every: int) -> list[str]:
    return ["sliding_attention" if i % every else "full_attention" for i in range(layers)]
