"""Do a task's vocabularies and lengths fit the model?"""

from typing import Any

import seqio
import tensorflow as tf
from google.protobuf.message import DecodeError

from t5x.input_pipeline.config import DatasetConfig


def verify_matching_vocabs(cfg: DatasetConfig, model: Any) -> None:
    """Raise ValueError unless a task's vocabularies are the model's and fit its embedding."""
    features = cfg.provider.output_features
    for feature, vocabulary, side in (
        ("inputs", model.input_vocabulary, "input_vocabulary"),
        ("targets", model.output_vocabulary, "output_vocabulary"),
    ):
        task_vocabulary = features[feature].vocabulary
        size = max(vocabulary_size(task_vocabulary), vocabulary_size(vocabulary))
        if task_vocabulary != vocabulary:
            raise ValueError(
                f"Task {cfg.provider.name} encodes {feature!r} with {task_vocabulary} but "
                f"EncoderDecoderModel.{side} is {vocabulary}; bind both to the same vocabulary."
            )
        rows = getattr(getattr(model.module, "config", None), "vocab_size", None)
        if rows is not None and size > rows:
            raise ValueError(
                f"The vocabulary {vocabulary} has {size} ids but network.T5Config.vocab_size is "
                f"{rows}, so some ids have no embedding; set it to {-(-size // 128) * 128}."
            )


def vocabulary_size(vocabulary: seqio.Vocabulary) -> int:
    """Load the vocabulary and return its number of ids.

    Raises:
      ValueError: it is no vocabulary, or its file cannot be read.
    """
    try:
        return vocabulary.vocab_size
    except AttributeError as error:
        raise ValueError(
            f"The model's vocabulary is {vocabulary!r}; set VOCABULARY to one of seqio, such as "
            "@seqio.SentencePieceVocabulary()."
        ) from error
    except (tf.errors.OpError, OSError, DecodeError) as error:
        raise ValueError(
            f"The vocabulary file {vocabulary.sentencepiece_model_file} cannot be read "
            f"({str(error).splitlines()[0]}); set "
            "seqio.SentencePieceVocabulary.sentencepiece_model_file to a copy that can."
        ) from error


def feature_shapes(cfg: DatasetConfig) -> dict[str, tuple[int, int]]:
    """Return the shapes of a global batch's ids; raise ValueError for a length below 1."""
    shapes = {}
    for feature, side in (("inputs", "encoder"), ("targets", "decoder")):
        length = (cfg.task_feature_lengths or {}).get(feature)
        if not isinstance(length, int) or length < 1:
            raise ValueError(
                f"TASK_FEATURE_LENGTHS[{feature!r}] is {length!r}; set it to a positive number of "
                "tokens, such as {'inputs': 512, 'targets': 114}."
            )
        shapes[f"{side}_input_tokens"] = (cfg.batch_size, length)
    return shapes
