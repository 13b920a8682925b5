"""The vocabulary that a run was trained with, and the tokenizer made of it.

vocabulary = vocabulary_of(run, bindings)          # RunVocabulary("…/vocabulary.model", 0)
vocabulary.check(vocab_size=64000)
vocabulary.write(folder)
assert_folder_has_same_ids(vocabulary.reference_ids(), folder)      # on a sample
"""

import dataclasses
import os
import tempfile
from pathlib import Path

from etils import epath

from convert.run.gin_reader import Bindings, Reference
from convert.run.model_dir import TrainedRun
from convert.tokenizer import (
    NUM_BYTE_IDS,
    NUM_SENTINELS,
    NUM_SPECIAL,
    SENTINEL_IN_TEXT,
    ReferenceIds,
    write_byte_tokenizer,
    write_tokenizer,
)

BYTES = "bytes"
# An embedding is rounded up to a multiple of this at most; more rows mean another vocabulary.
_ROUNDING = 128
SAMPLE = (
    "Ana are mere, iar țăranii și-au strâns grânele înainte de furtună.",
    "Copiii se joacă <extra_id_0> în curtea <extra_id_1> școlii .",
    "<extra_id_99> a fost odată <extra_id_42>",
    "The quick brown fox jumps over 13 lazy dogs, doesn't it?",
    "Ştiinţa cu sedile; «ghilimele» „românești” – și 3,14 lei/m².",
    "Привет, мир! 你好，世界。 こんにちは 🙂",
    "  două  spații,\tun tab și\no linie nouă  ",
    "",
)


@dataclasses.dataclass(frozen=True)
class RunVocabulary:
    """A SentencePiece model (a local path), or `BYTES`, and the ids that seqio adds behind it."""

    path: str
    extra_ids: int

    def reference_ids(self) -> ReferenceIds:
        """Return the trainer's ids of the sample.

        As in seqio ids come from SentencePiece, with the sentinels behind the model's pieces, but
        without TensorFlow, for which seqio would need 300 MB.
        """
        texts = {part for text in SAMPLE for part in (text, *SENTINEL_IN_TEXT.split(text))}
        if self.path == BYTES:
            ids = {text: [NUM_SPECIAL + byte for byte in text.encode()] for text in texts}
            return ReferenceIds(self.size(), self.extra_ids, 1, 2, True, SAMPLE, ids)
        import sentencepiece
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

        proto = ModelProto.FromString(Path(self.path).read_bytes())
        kind = ModelProto.SentencePiece.USER_DEFINED
        for number in reversed(range(self.extra_ids)):
            proto.pieces.add(piece=f"▁<extra_id_{number}>", score=0.0, type=kind)
        model = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        special = (model.eos_id(), model.unk_id())
        ids = {text: model.encode(text) for text in texts}
        return ReferenceIds(len(model), self.extra_ids, *special, False, SAMPLE, ids)

    def size(self) -> int:
        """Return the number of ids, sentinels included."""
        known = NUM_BYTE_IDS if self.path == BYTES else len(_load(self.path))
        return known + self.extra_ids

    def check(self, vocab_size: int) -> None:
        """Raise ValueError unless the vocabulary fits an embedding of so many rows."""
        size = self.size()
        if size > vocab_size or vocab_size - size >= _ROUNDING:
            raise ValueError(
                f"{self.path} has {size} ids and the embedding {vocab_size} rows, so the model "
                "was not trained with it: give the trained one with --vocabulary."
            )

    def write(self, folder: Path) -> None:
        """Write the Hugging Face tokenizer's files."""
        if self.path == BYTES:
            write_byte_tokenizer(str(folder), extra_ids=self.extra_ids)
        else:
            write_tokenizer(self.path, str(folder), extra_ids=self.extra_ids)


def _load(path: str):
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor()
    try:
        model.Load(path)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path} is not a SentencePiece model: {error}") from error
    return model


def _sentencepiece_vocabulary(path: str) -> RunVocabulary:
    """Return the vocabulary: with sentinels in the model seqio adds none, else T5's hundred."""
    if "://" in path:
        with tempfile.NamedTemporaryFile(suffix=".model", delete=False) as copy:
            copy.write(epath.Path(path).read_bytes())
        path = copy.name
    model = _load(path)
    inside = any(model.PieceToId(mark + "<extra_id_0>") != model.unk_id() for mark in ("", "▁"))
    return RunVocabulary(path, 0 if inside else NUM_SENTINELS)


def _path_in_gin(bindings: Bindings, folders: list[Path]) -> str | None:
    path = bindings.first("sentencepiece_model_file")
    if not isinstance(path, str):
        return None
    if "://" in path or os.path.isabs(path):
        return path
    return next((str(folder / path) for folder in folders if (folder / path).is_file()), path)


def _binds_bytes(bindings: Bindings) -> bool:
    vocabulary = bindings.of("EncoderDecoderModel").get("output_vocabulary")
    if isinstance(vocabulary, Reference):
        return vocabulary.split(".")[-1] == "ByteVocabulary"
    return bindings.names("ByteVocabulary")


def vocabulary_of(
    run: TrainedRun,
    bindings: Bindings | None,
    given: str | None = None,
    folders: list[Path] | None = None,
) -> RunVocabulary:
    """Return the vocabulary beside the run, or the given one, or the one that its gin names.

    Args:
      run: its folder may hold `vocabulary.model`, as the trainer leaves it.
      bindings: the run's gin, if there is one.
      given: a path that the user named, or "bytes" (ByT5).
      folders: where relative paths in the gin are looked for.

    Raises:
      ValueError: if there is none, or the given one is not the trainer's.
    """
    bytes_bound = bindings.of("ByteVocabulary").get("extra_ids") if bindings else None
    if given == BYTES or (not given and bindings and _binds_bytes(bindings)):
        return RunVocabulary(BYTES, NUM_SENTINELS if bytes_bound is None else bytes_bound)
    trained = run.vocabulary()
    if given and trained and _differ(given, trained):
        raise ValueError(
            f"{given} is not the vocabulary that the run was trained with, {trained}: leave "
            "--vocabulary out."
        )
    path = given or trained or (_path_in_gin(bindings, folders or []) if bindings else None)
    if path is None:
        raise ValueError(
            f"{run.folder} has no vocabulary.model and its gin names none: give the trained one "
            "with --vocabulary (a SentencePiece model, bytes for ByT5, none for weights alone)."
        )
    if not epath.Path(path).is_file():
        raise ValueError(f"There is no vocabulary {path}: give the trained one with --vocabulary.")
    return _sentencepiece_vocabulary(path)


def _differ(a: str, b: str) -> bool:
    paths = [epath.Path(a), epath.Path(b)]
    return all(path.is_file() for path in paths) and paths[0].read_bytes() != paths[1].read_bytes()
