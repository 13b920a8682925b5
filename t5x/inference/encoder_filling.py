"""Fills in the masks of sentences during the training of an encoder, as `mask_filling` does for T5.

  fill_masks = EncoderFilling(("Copiii merg la [MASK].",), model, partitioner, length=512)
  fill_masks(params)         # ["Copiii merg la [școală]."], the same on every host

[MASK] is the mask of any vocabulary. All masks of a sentence are filled in at once, each with its
best piece.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from t5x.inference.predictor import Predictor
from t5x.partitioning import PjitPartitioner

MASK = "[MASK]"


def check_sentences(sentences: Sequence[str], vocabulary: Any, length: int | None) -> None:
    """Raise ValueError for a sentence without a mask, or with too many tokens."""
    for sentence in sentences:
        if MASK not in sentence:
            raise ValueError(
                f"INFILL_SENTENCES holds {sentence!r}, but an encoder fills in masks; write {MASK} "
                "where a piece is missing."
            )
        check_length(sentence, len(encode(sentence, vocabulary)), length)


def check_length(sentence: str, count: int, most: int | None) -> None:
    """Raise ValueError for a sentence of more tokens than the model reads."""
    if isinstance(most, int) and count > most:  # missing lengths are reported elsewhere
        raise ValueError(
            f"INFILL_SENTENCES holds a sentence of {count} tokens and the model reads "
            f"{most}; shorten {sentence[:40]!r}."
        )


def encode(sentence: str, vocabulary: Any) -> list[int]:
    """Return the ids of a sentence with masks, the first and the last token included."""
    mask = vocabulary.tokenizer.id_to_token(vocabulary.mask_id)
    ids = vocabulary.encode(sentence.replace(MASK, mask))
    return [vocabulary.cls_id, *ids, vocabulary.sep_id]


def predictor_of(sentences: int, model: Any, partitioner: PjitPartitioner) -> Predictor:
    """Return a predictor of one batch that holds all sentences."""
    rows = partitioner.mesh.size  # divisible by every partitioning of a batch
    return Predictor(model, partitioner, -(-sentences // rows) * rows)


class EncoderFilling:
    """Fills in the same sentences repeatedly, by one compiled program; see `check_sentences`."""

    def __init__(
        self, sentences: Sequence[str], model: Any, partitioner: PjitPartitioner, length: int
    ):
        self.sentences, self.vocabulary = tuple(sentences), model.input_vocabulary
        self._ids = [encode(sentence, self.vocabulary) for sentence in sentences]
        length = min(length, -(-max(map(len, self._ids)) // 16) * 16)
        pad = lambda row, dtype: np.pad(np.array(row, dtype), (0, length - len(row)))
        self._examples = [
            {
                "encoder_input_tokens": pad(row, np.int32),
                "encoder_segment_ids": pad(np.ones(len(row)), np.int32),
                "encoder_loss_weights": pad(self._masks(row), np.float32),
            }
            for row in self._ids
        ]
        self._predict = predictor_of(len(self._ids), model, partitioner)

    def _masks(self, ids: Sequence[int]) -> np.ndarray:
        return np.array(ids) == self.vocabulary.mask_id

    def __call__(self, params: Any) -> list[str]:
        """Return the sentences, filled in; every host must call it."""
        found = self._predict("predict", params, self._examples)
        return [
            self._filled(sentence, ids, best)
            for sentence, ids, best in zip(self.sentences, self._ids, found, strict=True)
        ]

    def _filled(self, sentence: str, ids: Sequence[int], best: np.ndarray) -> str:
        pieces = [self.vocabulary.decode([i]).strip() for i in best[: len(ids)][self._masks(ids)]]
        parts = [*(f"[{piece}]" for piece in pieces), ""]
        texts = zip(sentence.split(MASK), parts, strict=True)  # a piece may spell the mask
        return "".join(part for pair in texts for part in pair)
