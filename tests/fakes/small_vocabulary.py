"""A SentencePiece model of 300 pieces, with sentinels of any spelling."""

import json
import pathlib

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tasks import vocabularies

MINI = vocabularies.resolve("data/ro_mini/validation.jsonl")
TEXTS = [json.loads(line)["text"] for line in pathlib.Path(MINI).read_text().splitlines()]


def train(folder, sentinels="<extra_id_{}>", count=100, first=False, texts=TEXTS, **settings):
    """Writes a SentencePiece model of 300 pieces with sentinels after (or before) the others."""
    prefix = str(folder / "small")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=prefix,
        **{"vocab_size": 300, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, **settings},
        minloglevel=2,
    )
    model = model_pb2.ModelProto.FromString((folder / "small.model").read_bytes())
    user_defined = model_pb2.ModelProto.SentencePiece.USER_DEFINED
    pieces = [
        model_pb2.ModelProto.SentencePiece(piece=sentinels.format(i), type=user_defined)
        for i in reversed(range(count))
    ]
    old = list(model.pieces)
    del model.pieces[:]
    model.pieces.extend([*old[:3], *pieces, *old[3:]] if first else [*old, *pieces])
    (folder / "small.model").write_bytes(model.SerializeToString())
    return prefix + ".model"
