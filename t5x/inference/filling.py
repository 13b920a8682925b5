"""Fills the gaps of sentences during training, to show what the model has learned.

  fill_in = Filling(("Copii la <extra_id_0>.",), model, partitioner, {"encoder_input_tokens": …})
  fill_in(params)            # ["Copii la [școală]."], the same on every host

A T5's gaps are <extra_id_0>, <extra_id_1>, …, and it decodes `<extra_id_0> first filling
<extra_id_1> second …`; the id of <extra_id_N> is the N-th from the end of the vocabulary. An
encoder's gaps are [MASK], whatever its vocabulary calls that, and each gets its best piece.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.errors import UserError
from t5x.inference.predictor import Predictor
from t5x.partitioning import PjitPartitioner

MASK = "[MASK]"
_HOLE = re.compile(r"<extra_id_(\d+)>")
_MAX_SENTINELS = 100
_TARGETS = 32  # tokens of all fillings together


def check_sentences(
    sentences: Sequence[str], vocabulary: Any, lengths: Mapping[str, int] | None
) -> None:
    """Raise UserError for a sentence that lacks this model's gaps or has too many tokens."""
    if isinstance(sentences, str):
        raise UserError(
            "watch.Watch.infill_sentences",
            sentences,
            "a string",
            "set INFILL_SENTENCES to several, ('…', '…'), or to one, ('…',)",
        )
    most = (lengths or {}).get("inputs")
    for sentence in sentences:
        if _has_masks(vocabulary) and MASK not in sentence:
            raise UserError(
                "INFILL_SENTENCES",
                why=f"holds {sentence!r}, but an encoder fills in masks",
                to_set=f"write {MASK} where a piece is missing",
            )
        holes = [int(n) for n in _HOLE.findall(sentence)]
        in_order = holes and holes == list(range(len(holes))) and len(holes) <= _MAX_SENTINELS
        if not _has_masks(vocabulary) and not in_order:
            raise UserError(
                "INFILL_SENTENCES",
                why=f"holds {sentence!r}, whose holes are {holes}",
                to_set="write <extra_id_0> for the first, <extra_id_1> for the second, and so on",
            )
        count = len(encode(sentence, vocabulary))
        if isinstance(most, int) and count > most:  # missing lengths are reported elsewhere
            raise UserError(
                "INFILL_SENTENCES",
                why=f"holds a sentence of {count} tokens and the model reads {most}",
                to_set=f"shorten {sentence[:40]!r}",
            )


def _has_masks(vocabulary: Any) -> bool:
    """Return whether a vocabulary belongs to an encoder."""
    return getattr(vocabulary, "mask_id", None) is not None


def encode(sentence: str, vocabulary: Any) -> list[int]:
    """Return the ids of a sentence with gaps and the tokens that the model expects around it."""
    if _has_masks(vocabulary):
        mask = vocabulary.tokenizer.id_to_token(vocabulary.mask_id)
        ids = vocabulary.encode(sentence.replace(MASK, mask))
        return [vocabulary.cls_id, *ids, vocabulary.sep_id]
    parts = _HOLE.split(sentence)  # text, number, text, number, … text
    ids = []
    for i, part in enumerate(parts):
        if i % 2:
            ids.append(vocabulary.vocab_size - 1 - int(part))
        elif part.strip():
            ids += _encode_after_hole(part, vocabulary) if i else vocabulary.encode(part.strip())
    return [*ids, vocabulary.eos_id]


def _encode_after_hole(part: str, vocabulary: Any) -> list[int]:
    """Return the ids of a text; a text without a leading space gets none from SentencePiece."""
    ids = vocabulary.encode(part.strip())
    has_space = part[0].isspace() or vocabulary.decode(ids[:1]).strip()
    return ids if has_space else ids[1:]


def fillings(ids: Sequence[int], vocabulary: Any) -> dict[int, str]:
    """Return the text of each hole from the ids that a T5 decodes.

    Text before the first sentinel belongs to hole 0, since a young model writes no sentinels.
    """
    first = vocabulary.vocab_size - 1
    ids_by_hole: dict[int, list[int]] = {0: []}
    hole = 0
    for token in ids:
        if token in (0, vocabulary.eos_id):
            break
        if first - _MAX_SENTINELS < token <= first:
            hole = first - token
            ids_by_hole.setdefault(hole, [])
        else:
            ids_by_hole[hole].append(int(token))
    return {n: vocabulary.decode(part).strip() for n, part in ids_by_hole.items()}


def fill(sentence: str, texts: Mapping[int, str]) -> str:
    """Return the sentence with the text of each hole in brackets; unknown holes are empty."""
    return _HOLE.sub(lambda m: f"[{texts.get(int(m[1]), '')}]", sentence)


class Filling:
    """Fills the same sentences again and again by one compiled program; see `check_sentences`.

    `batch` has the shapes of the training batches.
    """

    def __init__(
        self,
        sentences: Sequence[str],
        model: Any,
        partitioner: PjitPartitioner,
        batch: Mapping[str, Any],
    ):
        self.sentences, self.vocabulary = tuple(sentences), model.output_vocabulary
        self._has_masks = _has_masks(model.input_vocabulary)
        self._ids = [encode(sentence, model.input_vocabulary) for sentence in sentences]
        longest = -(-max(map(len, self._ids)) // 16) * 16
        length = min(batch["encoder_input_tokens"].shape[1], longest)
        pad = lambda row, dtype: np.pad(np.array(row, dtype), (0, length - len(row)))
        self._examples = [{"encoder_input_tokens": pad(row, np.int32)} for row in self._ids]
        for example, row in zip(self._examples, self._ids, strict=True):
            if self._has_masks:
                example["encoder_segment_ids"] = pad(np.ones(len(row)), np.int32)
                example["encoder_loss_weights"] = pad(self._masks(row), np.float32)
            else:
                targets = min(batch["decoder_input_tokens"].shape[1], _TARGETS)
                example["decoder_input_tokens"] = np.zeros(targets, np.int32)
        rows = partitioner.mesh.size  # divisible by every partitioning of a batch
        self._predict = Predictor(model, partitioner, -(-len(self._ids) // rows) * rows)

    def _masks(self, ids: Sequence[int]) -> np.ndarray:
        return np.array(ids) == self.vocabulary.mask_id

    def __call__(self, params: Any) -> list[str]:
        """Return the sentences with their fillings in brackets; every host must call this."""
        decoded = self._predict("predict", params, self._examples)
        rows = zip(self.sentences, self._ids, decoded, strict=True)
        if self._has_masks:
            return [self._fill_masks(*row) for row in rows]
        texts = lambda ids: fillings(ids.tolist(), self.vocabulary)
        return [fill(sentence, texts(ids)) for sentence, _, ids in rows]

    def _fill_masks(self, sentence: str, ids: Sequence[int], best: np.ndarray) -> str:
        pieces = [self.vocabulary.decode([i]).strip() for i in best[: len(ids)][self._masks(ids)]]
        parts = [*(f"[{piece}]" for piece in pieces), ""]
        texts = zip(sentence.split(MASK), parts, strict=True)  # a piece may spell the mask
        return "".join(part for pair in texts for part in pair)
