"""Fills in sentences with holes during training, to show what the model has learned.

  fill_masks = MaskFilling(("Copii la <extra_id_0>.",), model, partitioner, {"inputs": 512, …})
  fill_masks(params)         # ["Copii la [școală]."], the same on every host

The decoded text is `<extra_id_0> first filling <extra_id_1> second …`. The id of <extra_id_N> is
the N-th from the end of the vocabulary.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t5x.inference import encoder_filling
from t5x.partitioning import PjitPartitioner

_HOLE = re.compile(r"<extra_id_(\d+)>")
_MAX_SENTINELS = 100
_TARGETS = 32  # tokens of all fillings together


def check_sentences(
    sentences: Sequence[str], vocabulary: Any, lengths: Mapping[str, int] | None
) -> None:
    """Raise ValueError for a sentence whose holes are not 0, 1, …, or with too many tokens.

    With the vocabulary of an encoder the holes are masks; see `encoder_filling`.
    """
    if isinstance(sentences, str):
        raise ValueError(
            f"watch.Watch.infill_sentences is {sentences!r}, a string; set INFILL_SENTENCES to "
            "several, ('…', '…'), or to one, ('…',)."
        )
    most = (lengths or {}).get("inputs")
    if getattr(vocabulary, "mask_id", None) is not None:
        encoder_filling.check_sentences(sentences, vocabulary, most)
        return
    for sentence in sentences:
        holes = [int(n) for n in _HOLE.findall(sentence)]
        if not holes or holes != list(range(len(holes))) or len(holes) > _MAX_SENTINELS:
            raise ValueError(
                f"INFILL_SENTENCES holds {sentence!r}, whose holes are {holes}; write <extra_id_0> "
                "for the first, <extra_id_1> for the second, and so on."
            )
        encoder_filling.check_length(sentence, len(encode(sentence, vocabulary)), most)


def encode(sentence: str, vocabulary: Any) -> list[int]:
    """Return the ids of a sentence with holes, the end of sequence last."""
    parts = _HOLE.split(sentence)  # text, number, text, number, … text
    ids = []
    for i, part in enumerate(parts):
        if i % 2:
            ids.append(vocabulary.vocab_size - 1 - int(part))
        elif part.strip():
            ids += _after_hole(part, vocabulary) if i else vocabulary.encode(part.strip())
    return [*ids, vocabulary.eos_id]


def _after_hole(part: str, vocabulary: Any) -> list[int]:
    """Return the ids of a text, without SentencePiece's leading space if it has none."""
    ids = vocabulary.encode(part.strip())
    has_space = part[0].isspace() or vocabulary.decode(ids[:1]).strip()
    return ids if has_space else ids[1:]


def fillings(ids: Sequence[int], vocabulary: Any) -> dict[int, str]:
    """Return the decoded text of each hole.

    Text before the first sentinel belongs to hole 0: a young model writes no sentinels.
    """
    first = vocabulary.vocab_size - 1
    found: dict[int, list[int]] = {0: []}
    hole = 0
    for token in ids:
        if token in (0, vocabulary.eos_id):
            break
        if first - _MAX_SENTINELS < token <= first:
            hole = first - token
            found.setdefault(hole, [])
        else:
            found[hole].append(int(token))
    return {n: vocabulary.decode(part).strip() for n, part in found.items()}


def fill(sentence: str, found: Mapping[int, str]) -> str:
    """Return the sentence with each filling in brackets, empty ones where there is none."""
    return _HOLE.sub(lambda m: f"[{found.get(int(m[1]), '')}]", sentence)


class MaskFilling:
    """Fills in the same sentences repeatedly, by one compiled program; see `check_sentences`."""

    def __init__(
        self,
        sentences: Sequence[str],
        model: Any,
        partitioner: PjitPartitioner,
        lengths: Mapping[str, int],
    ):
        self.sentences, self.vocabulary = tuple(sentences), model.output_vocabulary
        ids = [encode(sentence, model.input_vocabulary) for sentence in sentences]
        length = min(lengths["inputs"], -(-max(map(len, ids)) // 16) * 16)
        targets = np.zeros(min(lengths["targets"], _TARGETS), np.int32)
        pad = lambda row: np.pad(np.array(row, np.int32), (0, length - len(row)))
        self._examples = [
            {"encoder_input_tokens": pad(row), "decoder_input_tokens": targets} for row in ids
        ]
        self._predict = encoder_filling.predictor_of(len(ids), model, partitioner)

    def __call__(self, params: Any) -> list[str]:
        """Return the sentences, filled in; every host must call it."""
        decoded = self._predict("predict", params, self._examples)
        return [
            fill(sentence, fillings(ids.tolist(), self.vocabulary))
            for sentence, ids in zip(self.sentences, decoded, strict=True)
        ]


def filling_of(
    sentences: Sequence[str], model: Any, partitioner: PjitPartitioner, batch: Mapping[str, Any]
) -> MaskFilling | encoder_filling.EncoderFilling:
    """Return what fills in sentences by this model, for a batch with the shapes of training's."""
    inputs = batch["encoder_input_tokens"].shape[1]
    if "decoder_input_tokens" not in batch:
        return encoder_filling.EncoderFilling(sentences, model, partitioner, inputs)
    lengths = {"inputs": inputs, "targets": batch["decoder_input_tokens"].shape[1]}
    return MaskFilling(sentences, model, partitioner, lengths)
