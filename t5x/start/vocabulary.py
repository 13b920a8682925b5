"""Check that a task's vocabularies and lengths fit the model."""

from typing import Any

import seqio
import tensorflow as tf
from google.protobuf.message import DecodeError

from common.embedding import padded_rows
from common.errors import UserError, first_line
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter


def verify_matching_vocabs(cfg: DatasetConfig, model: Any) -> None:
    """Raise UserError unless a task's vocabularies are the model's and fit its embedding."""
    features = cfg.provider.output_features
    owner, rows = type(model).__name__, embedding_rows(model)
    _check_kind(cfg, model)
    for feature, vocabulary, side in (
        ("inputs", model.input_vocabulary, "input_vocabulary"),
        ("targets", model.output_vocabulary, "output_vocabulary"),
    ):
        task_vocabulary = features[feature].vocabulary
        size = max(vocabulary_size(task_vocabulary), vocabulary_size(vocabulary))
        if task_vocabulary != vocabulary:
            raise UserError(
                f"task {cfg.provider.name}",
                why=f"encodes {feature!r} with {_named(task_vocabulary)}, but {owner}.{side} is "
                f"{_named(vocabulary)}",
                to_set="bind both to the same vocabulary",
            )
        if rows is not None and size > rows:
            raise UserError(
                f"network.{type(model.module.config).__name__}.vocab_size",
                rows,
                f"but the vocabulary {_named(vocabulary)} has {size} ids, and some no embedding",
                f"set it to {padded_rows(size)}",
            )


def embedding_rows(model: Any) -> int | None:
    """Return the rows of a model's embedding, None for a network that does not say them."""
    return getattr(getattr(model.module, "config", None), "vocab_size", None)


def _named(vocabulary: seqio.Vocabulary) -> str:
    """Return a vocabulary's own text, or its class and size: seqio's of bytes prints an address."""
    if " object at 0x" in str(vocabulary):
        return f"{type(vocabulary).__name__} of {vocabulary.vocab_size} ids"
    return str(vocabulary)


def _check_kind(cfg: DatasetConfig, model: Any) -> None:
    """Raise UserError if the model is an encoder and the task is for T5, or the other way round."""
    name, is_masked = cfg.provider.name, "loss_weights" in cfg.provider.output_features
    converter = getattr(model, "FEATURE_CONVERTER_CLS", None)
    if isinstance(converter, type) and issubclass(converter, EncoderFeatureConverter):
        if not is_masked:
            raise UserError(
                f"task {name}",
                why="has inputs and targets of a T5, but the model is an encoder, which predicts "
                "masked tokens",
                to_set="set MIXTURE_OR_TASK_NAME to a task of an objective such as masked_lm",
            )
        _check_encoder(cfg, model)
    elif is_masked and converter is seqio.EncDecFeatureConverter:
        raise UserError(
            f"task {name}",
            why="masks tokens for an encoder, but the model is a T5",
            to_set="set MIXTURE_OR_TASK_NAME to a task of an objective such as span_corruption",
        )


def _check_encoder(cfg: DatasetConfig, model: Any) -> None:
    """Raise UserError if a task's lengths, tokens or pairs do not fit an encoder."""
    name, features, config = cfg.provider.name, cfg.provider.output_features, model.module.config
    sizes, length = (
        f"network.{type(config).__name__}",
        (cfg.task_feature_lengths or {}).get("inputs"),
    )
    if isinstance(length, int) and length > config.max_length:
        raise UserError(
            "TASK_FEATURE_LENGTHS['inputs']",
            length,
            f"but {sizes}.max_length is {config.max_length}, and later tokens have no position",
            "lower the former, or train a network with more positions",
        )
    vocabulary = features["inputs"].vocabulary
    if hasattr(vocabulary, "mask_id") and vocabulary.mask_id is None:
        raise UserError(
            f"The vocabulary {_named(vocabulary)} of task {name}",
            why="has no mask token, which an encoder is trained with",
            to_set="name its mask_token in the tokenizer_config.json beside it",
        )
    if "next_sentence_label" in features and not getattr(config, "next_sentence", False):
        remedy = "choose a task of single texts"
        if hasattr(config, "next_sentence"):
            remedy = f"set {sizes}.next_sentence to True, or {remedy}"
        raise UserError(
            f"task {name}",
            why="has next-sentence labels, but the network has no head that predicts them",
            to_set=remedy,
        )
    types = getattr(config, "type_vocab_size", 1)
    if "type_ids" in features and types < 2:
        raise UserError(
            f"task {name}",
            why=f"has pairs of texts of two token types, but the network knows {types}",
            to_set="choose a task of single texts, or a BERT with type_vocab_size 2",
        )


def vocabulary_size(vocabulary: seqio.Vocabulary) -> int:
    """Load the vocabulary and return its number of ids.

    Raise UserError if it is not a vocabulary, or its file cannot be read.
    """
    try:
        return vocabulary.vocab_size
    except AttributeError as error:
        raise UserError(
            "VOCABULARY",
            vocabulary,
            "which is no vocabulary",
            "set VOCABULARY to one of seqio, such as @seqio.SentencePieceVocabulary()",
        ) from error
    except (tf.errors.OpError, OSError, DecodeError, RuntimeError) as error:  # empty, for one
        file = getattr(vocabulary, "sentencepiece_model_file", vocabulary)
        raise UserError(
            f"The vocabulary file {file}",
            why=f"cannot be read ({first_line(error)})",
            to_set="set seqio.SentencePieceVocabulary.sentencepiece_model_file to a copy that can",
        ) from error


def check_feature_lengths(cfg: DatasetConfig) -> None:
    """Raise UserError if `task_feature_lengths` lacks a length or has one below 1."""
    for feature in ("inputs", "targets"):
        length = (cfg.task_feature_lengths or {}).get(feature)
        if not isinstance(length, int) or length < 1:
            raise UserError(
                f"TASK_FEATURE_LENGTHS[{feature!r}]",
                length,
                to_set="set it to a positive number of tokens, such as "
                "{'inputs': 512, 'targets': 114}",
            )


def check_features(cfg: DatasetConfig) -> None:
    """Raise UserError if `task_feature_lengths` has a feature that the task does not have."""
    features = cfg.provider.output_features
    for feature, length in (cfg.task_feature_lengths or {}).items():
        if feature not in features:
            raise UserError(
                f"TASK_FEATURE_LENGTHS[{feature!r}]",
                length,
                f"but task {cfg.provider.name} has no feature of this name",
                f"leave it out; it has {', '.join(features)}",
            )
