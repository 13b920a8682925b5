"""A network's sizes: read from a run's gin or a config.json, and turned into a config.json.

    sizes = read_gin(Bindings.follow(Path("t5x/examples/t5/t5_1_1/base.gin"), [ROOT]))
    sizes.config()                      # {"model_type": "t5", "d_model": 768, …}
    read_config(sizes.config()) == sizes  # True

Each network of the trainer has a class here, which repeats the fields and defaults of its
configuration, since importing that would load jax. (tests/convert/test_sizes.py holds the two
equal.) No weights are read here. A setting of a config.json is one of these:

- kept: a field holds it. `_key` names its key; where field and key differ in more than name,
  `_read` reads the key and `_derived` writes it
- refused: the network knows only one value of it, which `constants` lists; another is a UserError
- without effect: `NO_EFFECT` lists keys that change neither a logit nor a generated id
- unknown: all others, which `unknown` returns
"""

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from common.errors import UserError
from common.gin_reader import Bindings

# The ids of a T5 in config.json and generation_config.json; a vocabulary may have another eos.
T5_IDS = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
_MOST, _MOST_LAYERS = 2**31 - 1, 1_000
# The macro of a run's gin with the family of the published model that it was made of.
PUBLISHED_AS = "PUBLISHED_AS"
# Settings of a config.json that change neither a logit nor a generated id, by the reason.
_NO_EFFECT = {
    "describes the file": """
        _attn_implementation _commit_hash _from_model_config _name_or_path architectures
        attn_implementation dtype model_type name_or_path torch_dtype transformers_version""",
    "chooses what is returned, or how it is computed": """
        chunk_size_feed_forward deterministic_flash_attn gradient_checkpointing output_attentions
        output_hidden_states output_past reference_compile repad_logits_with_grad return_dict
        torchscript use_cache use_return_dict""",
    "concerns training from scratch": """
        initializer_cutoff_factor initializer_factor initializer_range sparse_pred_ignore_index
        sparse_prediction""",
    "concerns heads for other tasks": """
        classifier_dropout classifier_pooling finetuning_task id2label is_decoder
        is_encoder_decoder label2id num_labels pooler_fc_size pooler_num_attention_heads
        pooler_num_fc_layers pooler_size_per_head pooler_type problem_type""",
    "concerns the tokenizer, which has files of its own": """
        bos_token_id cls_token_id eos_token_id mask_token_id n_positions sep_token_id
        tokenizer_class unk_token_id""",
    "concerns other networks": """
        directionality layer_norm_eps position_embedding_type
        sliding_window classifier_dropout_rate max_position_embeddings""",
}
NO_EFFECT = frozenset(" ".join(_NO_EFFECT.values()).split())
# T5X's gelu is the tanh approximation, which transformers calls gelu_new (and, only in the word
# "gated-gelu", gelu). The first two are other names of silu.
_FEED_FORWARD = {
    ("swish",): "silu",
    ("swish", "linear"): "gated-silu",
    ("relu",): "relu",
    ("gelu",): "gelu_new",
    ("silu",): "silu",
    ("relu", "linear"): "gated-relu",
    ("gelu", "linear"): "gated-gelu",
    ("silu", "linear"): "gated-silu",
}
_ACTIVATIONS = {name: activations for activations, name in _FEED_FORWARD.items()}
# The kinds of layers that attend to all tokens, and to those in a window.
_ALL_TOKENS, _NEAR_TOKENS = "full_attention", "sliding_attention"
# By a ModernBERT's kind of layer: our field, the key in transformers 4, and the default.
_THETAS = {
    _ALL_TOKENS: ("global_theta", "global_rope_theta", 160_000.0),
    _NEAR_TOKENS: ("local_theta", "local_rope_theta", 10_000.0),
}
# Keys that are read, but not written.
_READ = ("dense_act_fn", "is_gated_act", "scale_decoder_outputs", "rope_theta")
# The fields whose product is the length of an axis, by the letters of `convert.weight_map`.
_AXES = {
    "V": ("vocab_size",),
    "D": ("emb_dim",),
    "A": ("num_heads", "head_dim"),
    "F": ("mlp_dim",),
    "H": ("num_heads",),
    "R": ("buckets",),
    "P": ("positions",),
    "Y": ("type_vocab_size",),
    "C": ("classes",),
    "G": ("num_kv_heads", "head_dim"),
    "K": ("head_dim",),
}


def _key(name: str, default: Any = dataclasses.MISSING) -> Any:
    """Return a field whose key in a config.json is `name`."""
    return dataclasses.field(default=default, metadata={"key": name})


@dataclasses.dataclass(frozen=True)
class Sizes(abc.ABC):
    """The sizes that all networks have; `model_type` is one of `fitting`, by default the first."""

    vocab_size: int
    emb_dim: int
    num_heads: int
    mlp_dim: int
    dropout_rate: float
    model_type: str | None = dataclasses.field(default=None, kw_only=True)

    configuration: ClassVar[str]  # the name of the trainer's class
    package: ClassVar[str]  # the package whose `network` module defines that class
    module: ClassVar[str]  # the name of the network there
    families: ClassVar[dict[str, str]]  # model_type and class in transformers
    constants: ClassVar[dict[str, Any]]
    aliases: ClassVar[dict[str, str]] = {}  # other names of keys, which win in transformers
    norms_less: ClassVar[float] = 0.0  # a norm's scale here minus that in transformers
    states_sizes: ClassVar[bool] = False  # whether every config.json has the keys of integers

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least, most = int(field.name != "position_offset"), _most(field.name)
            if field.type is int and not _is_size(value, least, most):
                raise UserError(
                    f"network.{self.configuration}.{field.name}",
                    value,
                    f"but must be an integer from {least} to {most:,}",
                )

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Sizes":
        """Return the sizes from the fields of the trainer's class, ignoring its numerics.

        Raises:
          UserError: vocab_size is missing, or transformers has no such network.
        """
        if "vocab_size" not in fields:
            raise UserError(
                f"network.{cls.configuration}.vocab_size",
                why="is not given, which every model needs",
                to_set="name the network with --config",
            )
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in fields.items() if name in names})

    def fields(self) -> dict[str, Any]:
        """Return the arguments of the trainer's class."""
        names = [field.name for field in dataclasses.fields(self)]
        return {name: getattr(self, name) for name in names if name != "model_type"}

    @property
    def family(self) -> str:
        """The model_type in transformers."""
        return self.model_type or self.fitting[0]

    @property
    def architecture(self) -> str:
        """The class in transformers."""
        return self.families[self.family]

    @property
    def output_scale(self) -> float:
        """The factor by which transformers multiplies the inputs of a separate head."""
        return 1.0

    @property
    @abc.abstractmethod
    def fitting(self) -> tuple[str, ...]:
        """The families that can hold the network, the usual one first."""

    @abc.abstractmethod
    def summary(self) -> str:
        """Return the network in a few words, for messages."""

    def axis(self, letter: str) -> int:
        """Return the length of an axis of a tensor (see `convert.weight_map`)."""
        return math.prod(getattr(self, name) for name in _AXES[letter])

    def axis_fields(self, letter: str) -> str:
        """Return the fields of an axis, for messages."""
        return " x ".join(f"{name} {getattr(self, name)}" for name in _AXES[letter])

    def config(self, ids: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return config.json without a dtype; raise UserError if the family does not fit.

        `ids` are the special ids of a vocabulary by key, in place of the usual ones.
        """
        if self.family not in self.fitting:
            raise UserError(
                "model_type",
                self.family,
                f"but that cannot hold a network of {self.summary()}",
                f"leave --model_type out, for {self.fitting[0]}",
            )
        fields = [field for field in dataclasses.fields(self) if "key" in field.metadata]
        return {
            "architectures": [self.architecture],
            "model_type": self.family,
            **{field.metadata["key"]: getattr(self, field.name) for field in fields},
            **self.constants,
            **self._derived(),
            **(ids or {}),
        }

    @classmethod
    def flat(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a config.json without nested ones; raise UserError if they contradict."""
        return config

    @abc.abstractmethod
    def _derived(self) -> dict[str, Any]:
        """Return the keys of config.json that are not the value of one field."""

    @classmethod
    @abc.abstractmethod
    def _read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that are not the value of one key of config.json."""


@dataclasses.dataclass(frozen=True)
class EncoderDecoderSizes(Sizes):
    """The sizes that all networks which generate have."""

    head_dim: int
    num_encoder_layers: int
    num_decoder_layers: int

    @property
    @abc.abstractmethod
    def tied(self) -> bool:
        """Whether the embedding computes the logits, without a separate head."""


@dataclasses.dataclass(frozen=True)
class T5Sizes(EncoderDecoderSizes):
    """T5 1.0 and 1.1, mT5, ByT5, umT5: `t5x.examples.t5.network.T5Config`."""

    vocab_size: int = _key("vocab_size")
    emb_dim: int = _key("d_model", 512)
    num_heads: int = _key("num_heads", 8)
    mlp_dim: int = _key("d_ff", 2048)
    dropout_rate: float = _key("dropout_rate", 0.1)
    head_dim: int = _key("d_kv", 64)
    num_encoder_layers: int = _key("num_layers", 6)
    num_decoder_layers: int = 6
    mlp_activations: tuple[str, ...] = ("relu",)
    logits_via_embedding: bool = False
    own_relative_bias: bool = False

    configuration = "T5Config"
    package = "t5x.examples.t5"
    module = "Transformer"
    families: ClassVar = {
        "t5": "T5ForConditionalGeneration",
        "mt5": "MT5ForConditionalGeneration",
        "umt5": "UMT5ForConditionalGeneration",
    }
    buckets = 32  # number of buckets of distances between tokens
    constants: ClassVar = {
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-06,
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": 128,
        "decoder_start_token_id": T5_IDS["decoder_start_token_id"],
        "pad_token_id": T5_IDS["pad_token_id"],
    }
    aliases: ClassVar = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }
    states_sizes = True

    def __post_init__(self):
        object.__setattr__(self, "mlp_activations", tuple(self.mlp_activations))
        super().__post_init__()
        if self.mlp_activations not in _FEED_FORWARD:
            raise UserError(
                "network.T5Config.mlp_activations",
                self.mlp_activations,
                "but transformers has no such network",
                f"set one of {', '.join(map(str, _FEED_FORWARD))}",
            )

    @property
    def gated(self) -> bool:
        """Whether the feed-forward layer has two input kernels."""
        return len(self.mlp_activations) == 2

    @property
    def tied(self) -> bool:
        """Whether the embedding computes the logits, without a separate head."""
        return bool(self.logits_via_embedding)

    @property
    def fitting(self) -> tuple[str, ...]:
        """The families that can hold it: mT5 is a T5 1.1, but its class scales no tied head."""
        if self.own_relative_bias:
            return ("umt5",)
        if self.tied:
            return ("t5",)
        return ("mt5", "t5") if self.vocab_size >= 250_000 and self.gated else ("t5", "mt5")

    def summary(self) -> str:
        """Return the network in a few words, for messages."""
        return (
            f"{self.num_encoder_layers}+{self.num_decoder_layers} layers, emb_dim {self.emb_dim}, "
            f"mlp {'/'.join(self.mlp_activations)}, {'tied' if self.tied else 'untied'} logits, "
            f"one bias table in each {'layer' if self.own_relative_bias else 'stack'}"
        )

    @property
    def output_scale(self) -> float:
        """The factor for a separate head: emb_dim**-0.5 for a umT5."""
        scaled = self.own_relative_bias and not self.tied
        return self.emb_dim**-0.5 if scaled else 1.0

    def _derived(self) -> dict[str, Any]:
        scales = {"scale_decoder_outputs": True} if self.output_scale != 1.0 else {}
        return {
            "num_decoder_layers": self.num_decoder_layers,
            "feed_forward_proj": _FEED_FORWARD[self.mlp_activations],
            "tie_word_embeddings": self.tied,
            "initializer_factor": 1.0,
            "eos_token_id": T5_IDS["eos_token_id"],
            # transformers makes a cache of as many layers as the encoder has.
            "use_cache": self.num_decoder_layers <= self.num_encoder_layers,
            **scales,
        }

    @classmethod
    def _read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        family = config["model_type"]
        word = config.get("feed_forward_proj", "relu" if family == "t5" else "gated-gelu")
        if word not in _ACTIVATIONS:
            raise UserError(
                "feed_forward_proj of config.json",
                word,
                f"but the trainer's T5 computes {', '.join(_ACTIVATIONS)} only",
            )
        # transformers may state the same in two other keys, which then win.
        gate, _, name = word.rpartition("-")
        for key, value in {
            "dense_act_fn": "gelu_new" if word == "gated-gelu" else name,
            "is_gated_act": bool(gate),
        }.items():
            _check_constant(config, key, value, family)
        return {
            "num_decoder_layers": config.get("num_decoder_layers") or config["num_layers"],
            "mlp_activations": _ACTIVATIONS[word],
            "logits_via_embedding": config.get("tie_word_embeddings", True),
            "own_relative_bias": family == "umt5",
        }


@dataclasses.dataclass(frozen=True)
class T5Gemma2Sizes(EncoderDecoderSizes):
    """T5Gemma 2 of text: `t5x.examples.t5gemma2.network.T5Gemma2Config`.

    Its config.json has one configuration for the encoder's text and one for the decoder, which
    agree but for the number of layers. It must have one for images, too, which nothing uses: of
    the smallest network, and with ids that no text has.
    """

    vocab_size: int = _key("vocab_size")
    emb_dim: int = _key("hidden_size", 512)
    num_heads: int = _key("num_attention_heads", 4)
    mlp_dim: int = _key("intermediate_size", 1024)
    dropout_rate: float = _key("dropout_rate", 0.0)
    head_dim: int = _key("head_dim", 128)
    num_encoder_layers: int = 8
    num_decoder_layers: int = _key("num_hidden_layers", 4)
    num_kv_heads: int = _key("num_key_value_heads", 4)
    rope_theta: float = 10_000.0

    configuration = "T5Gemma2Config"
    package = "t5x.examples.t5gemma2"
    module = "T5Gemma2"
    families: ClassVar = {"t5gemma2": "T5Gemma2ForConditionalGeneration"}
    fitting = ("t5gemma2",)
    tied = True
    norms_less = 1.0
    states_sizes = True
    constants: ClassVar = {
        "is_encoder_decoder": True,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "rms_norm_eps": 1e-06,
        "tie_word_embeddings": True,
        "decoder_start_token_id": T5_IDS["decoder_start_token_id"],
        "bos_token_id": T5_IDS["decoder_start_token_id"],  # transformers starts labels with it
        "pad_token_id": T5_IDS["pad_token_id"],
    }

    def __post_init__(self):
        super().__post_init__()
        if self.emb_dim % self.num_heads:
            raise UserError(
                "network.T5Gemma2Config.num_heads",
                self.num_heads,
                f"but transformers wants a divisor of emb_dim, {self.emb_dim}",
            )

    def summary(self) -> str:
        """Return the network in a few words, for messages."""
        return (
            f"{self.num_encoder_layers}+{self.num_decoder_layers} layers, emb_dim {self.emb_dim}, "
            f"{self.num_kv_heads} heads of keys"
        )

    def config(self, ids: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return config.json without a dtype."""
        flat = super().config(ids)
        names = "architectures model_type is_encoder_decoder decoder_start_token_id use_cache"
        top = {name: flat.pop(name) for name in (*names.split(), "attention_dropout")}
        top |= {name: flat[name] for name in ("dropout_rate", "tie_word_embeddings")}
        depths = flat.pop("num_encoder_layers"), self.num_decoder_layers
        text, decoder = (
            flat | {"num_hidden_layers": depth, "layer_types": [_ALL_TOKENS] * depth}
            for depth in depths
        )
        # An id beyond the vocabulary would be that of a token which a user adds.
        images = {"image_token_index": -1, "eoi_token_index": -1}
        encoder = images | {
            "boi_token_index": -1,
            "mm_tokens_per_image": 1,
            "text_config": text,
            "vision_config": _NO_IMAGES,
        }
        ids = {name: value for name, value in flat.items() if name.endswith("_token_id")}
        return top | ids | images | {"encoder": encoder, "decoder": decoder}

    @classmethod
    def flat(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the decoder's configuration with the encoder's number of layers."""
        encoder, decoder = ({**(config.get(side) or {})} for side in ("encoder", "decoder"))
        text = encoder.get("text_config") or {}
        # transformers reads the constants at the top, such as whether there is one table.
        nested = {*encoder, "encoder", "decoder"} - cls.constants.keys()
        rest = {k: v for k, v in config.items() if k not in nested}
        # Without the key transformers makes most layers with windows.
        kinds = {k for side in (text, decoder) for k in side.get("layer_types") or [_NEAR_TOKENS]}
        if kinds - {_ALL_TOKENS}:
            raise UserError(
                "layer_types of config.json",
                sorted(kinds),
                "but the trainer's t5gemma2 attends to all tokens in every layer",
            )
        differing = {"num_hidden_layers", "layer_types", "model_type", *NO_EFFECT}
        for name in sorted((text.keys() | decoder.keys()) - differing):
            if text.get(name) != decoder.get(name):
                raise UserError(
                    f"{name} of config.json",
                    text.get(name),
                    f"in the encoder but {decoder.get(name)} in the decoder, and the trainer's "
                    "t5gemma2 has one for both",
                )
        return decoder | rest | {"num_encoder_layers": text.get("num_hidden_layers")}

    def _derived(self) -> dict[str, Any]:
        theta = {"rope_type": "default", "rope_theta": self.rope_theta}
        return {
            "num_encoder_layers": self.num_encoder_layers,
            "attention_dropout": self.dropout_rate,
            "eos_token_id": T5_IDS["eos_token_id"],
            "use_cache": True,
            "query_pre_attn_scalar": self.head_dim,
            "rope_parameters": {_ALL_TOKENS: theta},
        }

    @classmethod
    def _read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        divided = {"query_pre_attn_scalar": 256, **config}  # transformers' default
        _check_constant(divided, "query_pre_attn_scalar", config["head_dim"], "t5gemma2")
        dropped = {"attention_dropout": 0.0, **config}
        rate = config.get("dropout_rate", 0.0)  # of the trainer's attention, too
        _check_constant(dropped, "attention_dropout", rate, "t5gemma2")
        _check_constant(config, "rope_scaling", None, "t5gemma2")
        theta = {"rope_type": "default", "rope_theta": config.get("rope_theta", 1_000_000.0)}
        theta |= (config.get("rope_parameters") or {}).get(_ALL_TOKENS) or {}
        _check_constant(theta, "rope_type", "default", "t5gemma2")
        base = theta["rope_theta"]
        if not (_is_number(base) and base):
            raise UserError("rope_theta of config.json", base, "but must be a number above 0")
        return {"num_encoder_layers": config.get("num_encoder_layers"), "rope_theta": base}


# The smallest network of images that transformers builds.
_NO_IMAGES = {
    "model_type": "siglip_vision_model",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 1,
    "patch_size": 1,
}


@dataclasses.dataclass(frozen=True)
class EncoderSizes(Sizes):
    """The sizes that both kinds of encoders have."""

    num_layers: int
    max_length: int
    attention_dropout_rate: float
    norm_epsilon: float

    package = "t5x.examples.encoder"

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.emb_dim // self.num_heads

    def summary(self) -> str:
        """Return the network in a few words, for messages."""
        return f"{self.num_layers} layers, emb_dim {self.emb_dim}"


@dataclasses.dataclass(frozen=True)
class BertSizes(EncoderSizes):
    """BERT, RoBERTa, XLM-R: `t5x.examples.encoder.network.BertConfig`."""

    vocab_size: int = _key("vocab_size")
    emb_dim: int = _key("hidden_size", 768)
    num_heads: int = _key("num_attention_heads", 12)
    mlp_dim: int = _key("intermediate_size", 3072)
    dropout_rate: float = _key("hidden_dropout_prob", 0.1)
    num_layers: int = _key("num_hidden_layers", 12)
    max_length: int = 512
    attention_dropout_rate: float = _key("attention_probs_dropout_prob", 0.1)
    norm_epsilon: float = _key("layer_norm_eps", 1e-12)
    type_vocab_size: int = _key("type_vocab_size", 2)
    position_offset: int = 0
    next_sentence: bool = True  # no key: the architecture says it, or the weights

    configuration = "BertConfig"
    module = "Bert"
    families: ClassVar = {
        "bert": "BertForMaskedLM",
        "roberta": "RobertaForMaskedLM",
        "xlm-roberta": "XLMRobertaForMaskedLM",
    }
    constants: ClassVar = {
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    classes = 2  # whether the second sentence follows the first

    @property
    def architecture(self) -> str:
        """The class in transformers, with the next-sentence head if the network has one."""
        return "BertForPreTraining" if self.next_sentence else super().architecture

    @property
    def fitting(self) -> tuple[str, ...]:
        """The families that can hold it: only RoBERTa's positions begin with unused rows."""
        return ("roberta", "xlm-roberta") if self.position_offset else ("bert",)

    @property
    def positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_length + self.position_offset

    def _derived(self) -> dict[str, Any]:
        # transformers counts the positions of a RoBERTa from its padding.
        ids = _special_ids(pad=max(0, self.position_offset - 1))
        return {"max_position_embeddings": self.positions, "initializer_range": 0.02, **ids}

    @classmethod
    def _read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        # transformers counts the positions of a RoBERTa from the id after its padding's.
        pad = -1 if config["model_type"] == "bert" else config.get("pad_token_id", 1)
        if not _is_size(pad, -1):
            raise UserError("pad_token_id of config.json", pad, "but must be an id")
        offset, rows = pad + 1, config.get("max_position_embeddings", 512)
        return {"position_offset": offset, "max_length": rows - offset, "next_sentence": False}


@dataclasses.dataclass(frozen=True)
class ModernBertSizes(EncoderSizes):
    """ModernBERT and mmBERT: `t5x.examples.encoder.network.ModernBertConfig`."""

    vocab_size: int = _key("vocab_size")
    emb_dim: int = _key("hidden_size", 768)
    num_heads: int = _key("num_attention_heads", 12)
    mlp_dim: int = _key("intermediate_size", 1152)
    dropout_rate: float = _key("embedding_dropout", 0.0)
    num_layers: int = _key("num_hidden_layers", 22)
    max_length: int = _key("max_position_embeddings", 8192)
    attention_dropout_rate: float = _key("attention_dropout", 0.0)
    norm_epsilon: float = _key("norm_eps", 1e-5)
    global_every: int = 3
    local_window: int = _key("local_attention", 128)
    global_theta: float = 160_000.0
    local_theta: float = 10_000.0

    configuration = "ModernBertConfig"
    module = "ModernBert"
    families: ClassVar = {"modernbert": "ModernBertForMaskedLM"}
    fitting = ("modernbert",)
    constants: ClassVar = {
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "mlp_dropout": 0.0,
        "classifier_bias": False,
        "decoder_bias": True,
        "tie_word_embeddings": True,
    }

    def _derived(self) -> dict[str, Any]:
        thetas = {kind: getattr(self, field) for kind, (field, *_) in _THETAS.items()}
        return {
            "layer_types": _layer_types(self.num_layers, self.global_every),
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": theta}
                for kind, theta in thetas.items()
            },
            # The names of transformers 4.
            "global_attn_every_n_layers": self.global_every,
            "global_rope_theta": self.global_theta,
            "local_rope_theta": self.local_theta,
            **_special_ids(),
        }

    @classmethod
    def _read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        period = config.get("global_attn_every_n_layers", 3)
        if kinds := config.get("layer_types"):
            later = [i for i, kind in enumerate(kinds) if i and kind == _ALL_TOKENS]
            period = later[0] if later else len(kinds)
            if kinds != _layer_types(len(kinds), period):
                raise UserError(
                    "layer_types of config.json",
                    kinds,
                    "but the trainer's layers with global attention are regular, beginning with "
                    "the first",
                )
        return {"global_every": period, **_thetas(config)}


KINDS: tuple[type[Sizes], ...] = (
    T5Sizes,
    T5Gemma2Sizes,
    BertSizes,
    ModernBertSizes,
)


def read_gin(bindings: Bindings) -> Sizes:
    """Return the sizes that a run's gin binds; raise UserError if it binds no network."""
    fields = {kind: bindings.of(kind.configuration) for kind in KINDS}
    bound = [kind for kind in KINDS if fields[kind]] or [T5Sizes]
    # A recipe may replace the network of another that it includes.
    kind = next((kind for kind in bound if bindings.refers(kind.module)), bound[0])
    sizes = kind.from_fields(fields[kind])
    return dataclasses.replace(sizes, model_type=bindings.macro(PUBLISHED_AS))


def read_config(config: Mapping[str, Any]) -> Sizes:
    """Return the sizes in a config.json; raise UserError if the trainer has no such network."""
    family = config.get("model_type", "")
    kind = next((kind for kind in KINDS if family in kind.families), None)
    if kind is None:
        families = ", ".join(sorted(name for kind in KINDS for name in kind.families))
        raise UserError("model_type", family, f"but must be one of {families}")
    if config.get("quantization_config"):
        raise UserError(
            "quantization_config of config.json",
            why="is set, and weights are read as they were before quantization only",
            to_set="take the model that is not quantized",
        )
    config = kind.flat(config)
    for constant, value in kind.constants.items():
        _check_constant(config, constant, value, family)
    renamed = {kind.aliases[name]: config[name] for name in kind.aliases if name in config}
    config = {**config, **renamed}
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if key := field.metadata.get("key"):
            is_size = field.type is int
            absent = None if is_size and kind.states_sizes else field.default
            value = fields[field.name] = config.get(key, absent)
            most = _most(field.name)
            what = f"an integer from 1 to {most:,}" if is_size else "a number of at least 0"
            if not (_is_size(value, most=most) if is_size else _is_number(value)):
                raise UserError(
                    f"{key} of config.json",
                    config.get(key),
                    f"but must be {what}",
                    "add what the model was trained with",
                )
    sizes = kind(**fields, **kind._read(config))
    return sizes if sizes.family == family else dataclasses.replace(sizes, model_type=family)


def unknown(config: Mapping[str, Any], sizes: Sizes) -> set[str]:
    """Return the settings of a config.json that are neither kept nor refused nor in `NO_EFFECT`."""
    config = sizes.flat(config)
    names = {*sizes.flat(sizes.config()), *sizes.aliases, *NO_EFFECT, *_READ}
    return {name for name in config if name not in names and config[name] is not None}


def _check_constant(config: Mapping[str, Any], key: str, value: Any, family: str) -> None:
    if config.get(key) not in (None, value):
        raise UserError(
            f"{key} of config.json",
            config[key],
            f"but the trainer's {family} computes {value!r} only",
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _most(field: str) -> int:
    """Return the largest value of a field: each layer has tensors, which are named one by one."""
    return _MOST_LAYERS if field.endswith("layers") else _MOST


def _is_size(value: Any, least: int = 1, most: int = _MOST) -> bool:
    return isinstance(value, int) and least <= value <= most


def _thetas(config: Mapping[str, Any]) -> dict[str, float]:
    """Return the bases of a ModernBERT's rotary positions, by the name of our field."""
    # transformers applies it to all layers.
    _check_constant(config, "rope_scaling", None, "modernbert")
    by_kind = config.get("rope_parameters") or {}
    thetas = {}
    for kind, (field, old_key, default) in _THETAS.items():
        # transformers 5 keeps them by the kind of a layer, transformers 4 in a key of their own.
        rotary = {"rope_type": "default", "rope_theta": config.get(old_key, default)}
        rotary |= by_kind.get(kind) or {}
        thetas[field] = base = rotary.pop("rope_theta")
        if rotary != {"rope_type": "default"}:
            raise UserError(
                "rope_parameters of config.json",
                by_kind,
                "but the trainer's modernbert computes rope_type 'default' with a rope_theta only",
            )
        if not (_is_number(base) and base):
            raise UserError(
                f"{'rope_theta' if by_kind.get(kind) else old_key} of config.json",
                base,
                "but must be a number above 0",
                "set it to the base that the model was trained with",
            )
    if unknown_kinds := by_kind.keys() - _THETAS:
        raise UserError(
            "rope_parameters of config.json",
            why=f"has {', '.join(sorted(unknown_kinds))}, but the trainer's modernbert has "
            f"{' and '.join(_THETAS)} only",
        )
    return thetas


def _special_ids(pad: int = 0) -> dict[str, int]:
    """Return special ids for a model without tokenizer; transformers' defaults may be too large."""
    return {f"{role}_token_id": 0 for role in ("cls", "sep", "bos", "eos")} | {"pad_token_id": pad}


def _layer_types(layers: int, period: int) -> list[str]:
    return [_NEAR_TOKENS if i % period else _ALL_TOKENS for i in range(layers)]
