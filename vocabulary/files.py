"""Finds the files of a vocabulary.

    path = download("google/mt5-base")        # a path as it is, or a folder of the hub's files
    find_tokenizer(path)                      # the folder of a tokenizer.json, or None
    find_model(path)                          # else the SentencePiece model

A path is a file, a folder, a run or a repository of the hub.
"""

import os

from etils import epath

from common.errors import UserError
from convert import hub
from convert.formats.sentencepiece_model import MODEL_FILES
from convert.run.vocabulary import TOKENIZER

_HUB_FILES = ["spiece.model", "*token*.json", "config.json"]


def download(path: str) -> str:
    """Return a path as it is, or the folder with the vocabulary's files of a hub model.

    Raises:
      UserError: it is neither.
    """
    if os.path.exists(path) or "://" in path or path.endswith((".model", ".json")):
        return path
    return str(hub.fetch(path, _HUB_FILES))


def find_model(path: str) -> str:
    """Return a path's SentencePiece file: itself or in a folder, run or hub repository.

    Raises:
      UserError: there is none.
    """
    path = download(path)
    folder = epath.Path(path)
    if not folder.is_dir():
        return path
    for name in MODEL_FILES:
        if (folder / name).exists():
            return str(folder / name)
    raise UserError(path, why=f"holds neither {' nor '.join(MODEL_FILES)}")


def find_tokenizer(path: str) -> str | None:
    """Return the folder of a tokenizer.json, by a path or hub name; None for SentencePiece.

    A folder with a SentencePiece model is T5's, whose tokenizer.json is made from the model. The
    run of an encoder has it in `tokenizer/`.

    Raises:
      UserError: a hub model cannot be read.
    """
    path = download(path)
    if path.endswith("tokenizer.json"):
        return os.path.dirname(path) or "."
    folder = epath.Path(path)
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if names.intersection(MODEL_FILES):
        return None
    if TOKENIZER in names:
        return f"{path}/{TOKENIZER}"
    return path if "tokenizer.json" in names else None
