"""A network's sizes, as its gin file binds them, and the Hugging Face configuration of it.

Field names and defaults are those of `network.T5Config`, which importing would load jax.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

# T5X's gelu is the tanh approximation, which transformers calls gelu_new (and, only in the word
# "gated-gelu", gelu).
_PLAIN_NAMES = {"relu": "relu", "gelu": "gelu_new", "silu": "silu", "swish": "silu"}
_GATED_NAMES = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
_DIMENSIONS = {
    "V": ("vocab_size",),
    "D": ("emb_dim",),
    "A": ("num_heads", "head_dim"),
    "F": ("mlp_dim",),
    "H": ("num_heads",),
    "R": ("relative_attention_num_buckets",),
}
# Our fields and transformers' names of them.
_FIELDS = {
    "vocab_size": "vocab_size",
    "emb_dim": "d_model",
    "head_dim": "d_kv",
    "mlp_dim": "d_ff",
    "num_encoder_layers": "num_layers",
    "num_decoder_layers": "num_decoder_layers",
    "num_heads": "num_heads",
}
_SAME_FIELDS = ["relative_attention_num_buckets", "relative_attention_max_distance", "dropout_rate"]
MODEL_TYPES = {
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
}
# generation_config.json: decoding starts with padding and ends with EOS.
GENERATION_CONFIG = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
# How the card's examples are generated.
EXAMPLE_GENERATION: dict[str, Any] = {"max_new_tokens": 20, "do_sample": False}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The fields of `network.T5Config` that conversion needs, and two constants of T5."""

    vocab_size: int
    emb_dim: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    head_dim: int = 64
    mlp_dim: int = 2048
    mlp_activations: tuple[str, ...] = ("relu",)
    dropout_rate: float = 0.1
    logits_via_embedding: bool = False
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    own_relative_bias: bool = False

    def __post_init__(self):
        object.__setattr__(self, "mlp_activations", tuple(self.mlp_activations))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (not isinstance(value, int) or value < 1):
                raise ValueError(
                    f"network.T5Config.{field.name} is {value!r}: it must be an integer above 0."
                )
        self.feed_forward()

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Sizes":
        """Return the sizes among T5Config's fields, or raise ValueError; ignore the others."""
        known = {field.name for field in dataclasses.fields(cls)}
        if "vocab_size" not in fields:
            raise ValueError("No network.T5Config.vocab_size is given: every model needs one.")
        return cls(**{name: value for name, value in fields.items() if name in known})

    @property
    def gated(self) -> bool:
        """Whether the feed-forward layer has two input kernels."""
        return len(self.mlp_activations) == 2

    @property
    def tied(self) -> bool:
        """Whether logits are read with the embedding."""
        return bool(self.logits_via_embedding)

    def letter(self, letter: str) -> int:
        """Return the size of one letter of a shape (see `convert.weight_map`)."""
        return math.prod(getattr(self, name) for name in _DIMENSIONS[letter])

    def field(self, letter: str) -> str:
        """Return the bindings behind one letter of a shape, for messages."""
        return " x ".join(f"{name} {getattr(self, name)}" for name in _DIMENSIONS[letter])

    def summary(self) -> str:
        """Return the network in a few words, for messages."""
        return (
            f"{self.num_encoder_layers}+{self.num_decoder_layers} layers, emb_dim {self.emb_dim}, "
            f"mlp {'/'.join(self.mlp_activations)}, {'tied' if self.tied else 'untied'} logits"
        )

    def feed_forward(self) -> str:
        """Return transformers' name of the feed-forward layer, e.g. "gated-gelu"."""
        activations = self.mlp_activations
        if len(activations) == 1 and activations[0] in _PLAIN_NAMES:
            return _PLAIN_NAMES[activations[0]]
        if len(activations) == 2 and activations[0] in _GATED_NAMES and activations[1] == "linear":
            return f"gated-{_GATED_NAMES[activations[0]]}"
        raise ValueError(
            f"network.T5Config.mlp_activations is {activations!r}: transformers has no such "
            f"network; it knows one of {sorted(_PLAIN_NAMES)} alone or followed by 'linear'."
        )


def model_type(sizes: Sizes) -> str:
    """Return the transformers family of a network: t5, mt5 or umt5.

    mT5 is T5 1.1 with a multilingual vocabulary. Its class never scales a tied head as the trainer
    does, so a tied network is always t5.
    """
    if sizes.own_relative_bias:
        return "umt5"
    return "mt5" if sizes.vocab_size >= 250_000 and sizes.gated and not sizes.tied else "t5"


def hugging_face_config(sizes: Sizes, family: str) -> dict[str, Any]:
    """Return config.json without a dtype; raise ValueError if the family has no such network."""
    if (family == "umt5") != sizes.own_relative_bias or (family == "mt5" and sizes.tied):
        own = "a bias table in each layer" if sizes.own_relative_bias else "one bias table a stack"
        raise ValueError(
            f"model_type {family} cannot hold a network with {own} and "
            f"{'tied' if sizes.tied else 'untied'} logits: leave --model_type out."
        )
    return {
        "architectures": [MODEL_TYPES[family]],
        "model_type": family,
        **{theirs: getattr(sizes, ours) for ours, theirs in _FIELDS.items()},
        **{name: getattr(sizes, name) for name in _SAME_FIELDS},
        "feed_forward_proj": sizes.feed_forward(),
        "layer_norm_epsilon": 1e-06,
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "use_cache": True,
        "tie_word_embeddings": sizes.tied,
        **GENERATION_CONFIG,
    }


def sizes_of_hugging_face(config: Mapping[str, Any]) -> Sizes:
    """Return the sizes in a config.json; raise ValueError unless it is of a T5, mT5 or umT5."""
    family = config.get("model_type")
    if family not in MODEL_TYPES:
        raise ValueError(f"model_type {family!r} is not one of {sorted(MODEL_TYPES)}.")
    words = config.get("feed_forward_proj", "relu" if family == "t5" else "gated-gelu").split("-")
    activation = {"gelu_new": "gelu"}.get(words[-1], words[-1])
    decoder = config.get("num_decoder_layers") or config["num_layers"]
    config = {**config, "num_decoder_layers": decoder}
    return Sizes(
        **{ours: config[theirs] for ours, theirs in _FIELDS.items()},
        **{name: config[name] for name in _SAME_FIELDS if name in config},
        mlp_activations=(activation, "linear") if words[0] == "gated" else (activation,),
        logits_via_embedding=config.get("tie_word_embeddings", True),
        own_relative_bias=family == "umt5",
    )
