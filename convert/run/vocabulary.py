"""The vocabulary that a T5 was trained with, and the tokenizer of an encoder's run."""

import os
from pathlib import Path

from etils import epath

from common.errors import UserError
from common.gin_reader import Bindings
from convert.formats.sentencepiece_model import NUM_SENTINELS, read_model, sentinel_ids
from convert.run.model_dir import TrainedRun
from convert.tokenizer import BYTES, TokenizerFolder, TrainedVocabulary

TOKENIZER = "tokenizer"  # the folder in which an encoder's run keeps its tokenizer


def tokenizer_of(run: TrainedRun, path: str | None = None) -> TokenizerFolder:
    """Return the given tokenizer, or the one in an encoder's run.

    Raises:
      UserError: there is no tokenizer, or the given one is not the trained one.
    """
    own = f"{run.folder}/{TOKENIZER}"
    if path and _differ(f"{path}/tokenizer.json", f"{own}/tokenizer.json"):
        raise _another(path, own)
    path = path or own
    if not (epath.Path(path) / "tokenizer.json").is_file():
        raise UserError(
            path,
            why="holds no tokenizer.json",
            to_set="give the trained one's folder with --vocabulary, or none for weights alone",
        )
    return TokenizerFolder(path)


def sentencepiece_vocabulary(path: str, extra_ids: int | None = None) -> TrainedVocabulary:
    """Return a model's vocabulary, with `extra_ids` sentinels appended (None: T5's 100).

    A model that already contains sentinels gets none.
    """
    appended = NUM_SENTINELS if extra_ids is None else extra_ids
    return TrainedVocabulary(path, 0 if 0 in sentinel_ids(read_model(path)) else appended)


def _bound_extra_ids(bindings: Bindings | None, configurable: str) -> int | None:
    count = bindings.of(configurable).get("extra_ids") if bindings else None
    return count if isinstance(count, int) else None


def _path_in_gin(bindings: Bindings, folders: list[Path]) -> str | None:
    path = bindings.first("sentencepiece_model_file")
    if not isinstance(path, str):
        return None
    if "://" in path or os.path.isabs(path):
        return path
    return next((str(folder / path) for folder in folders if (folder / path).is_file()), path)


def vocabulary_of(
    run: TrainedRun,
    bindings: Bindings | None,
    given: str | None = None,
    folders: list[Path] | None = None,
) -> TrainedVocabulary:
    """Return a T5's vocabulary: the given one, the one in the run, or the one that its gin names.

    Args:
      run: holds a copy of its vocabulary if it was trained here.
      bindings: the run's gin.
      given: a path that the user named, or "bytes" (ByT5).
      folders: where relative paths of the gin are looked for.

    Raises:
      UserError: there is no vocabulary, or the given one is not the trained one.
    """
    if given == BYTES or (not given and bindings and bindings.binds_bytes()):
        extra_ids = _bound_extra_ids(bindings, "ByteVocabulary")
        return TrainedVocabulary(BYTES, NUM_SENTINELS if extra_ids is None else extra_ids)
    trained = run.vocabulary()
    if given and trained and _differ(given, trained):
        raise _another(given, trained)
    path = given or trained or (_path_in_gin(bindings, folders or []) if bindings else None)
    if path is None:
        raise UserError(
            run.folder,
            why="has no vocabulary.model, and its gin names none",
            to_set="give the trained one with --vocabulary (a SentencePiece model, bytes for ByT5, "
            "none for weights alone)",
        )
    if not epath.Path(path).is_file():
        raise UserError(
            path, why="is no file", to_set="give the trained vocabulary with --vocabulary"
        )
    return sentencepiece_vocabulary(path, _bound_extra_ids(bindings, "SentencePieceVocabulary"))


def _another(given: str, trained: str) -> UserError:
    why = f"but the run was trained with {trained}"
    return UserError("--vocabulary", given, why, "leave --vocabulary out")


def _differ(a: str, b: str) -> bool:
    paths = [epath.Path(a), epath.Path(b)]
    return all(path.is_file() for path in paths) and paths[0].read_bytes() != paths[1].read_bytes()
