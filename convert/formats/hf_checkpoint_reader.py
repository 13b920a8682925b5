"""A Hugging Face folder: its config.json and its weights by name, each read on request."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from common.errors import UserError, first_line
from t5x.checkpointing.lazy_array import LazyArray, from_numpy

_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


def _safetensors(path: Path) -> dict[str, LazyArray]:
    """Map the tensors of one file; raise UserError if it is damaged, or has other numbers."""
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, "numpy")
    except SafetensorError as error:
        raise UserError(
            f"{path} is not a safetensors file, or is cut off or damaged ({error})."
        ) from error

    def lazy(name: str) -> LazyArray:
        entry = file.get_slice(name)
        if entry.get_dtype() not in _DTYPES:
            raise UserError(f"{path}: {name} is {entry.get_dtype()}, and not of {[*_DTYPES]}.")
        dtype = np.dtype(_DTYPES[entry.get_dtype()])
        return LazyArray(
            tuple(entry.get_shape()), dtype, lambda index: file.get_tensor(name)[index]
        )

    return {name: lazy(name) for name in file.keys()}  # noqa: SIM118  # it is no dict


def _bin(path: Path) -> dict[str, LazyArray]:
    """Map the tensors of a torch file; no code in it is run."""
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"{path} is not a torch weights file, or is truncated ({first_line(error)})."
        ) from error

    def mapped(tensor):
        if tensor.dtype == torch.bfloat16:  # which torch cannot give to numpy
            return from_numpy(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
        return from_numpy(tensor.numpy())

    return {name: mapped(tensor) for name, tensor in state.items()}


def _weight_files(folder: Path) -> list[Path]:
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            return [folder / name for name in names]
    raise UserError(f"{folder} has neither model.safetensors nor pytorch_model.bin.")


def _sentinels_last(tokenizer: dict[str, Any]) -> int:
    """Return the number of named sentinels if the first is the highest id, as in seqio, else 0."""
    tokens = tokenizer.get("added_tokens_decoder", {}).items()
    ids = {token["content"]: int(i) for i, token in tokens if "extra_id" in token["content"]}
    return len(ids) if ids and ids.get("<extra_id_0>") == max(ids.values()) else 0


@dataclasses.dataclass(frozen=True)
class HfCheckpoint:
    """A folder's config.json and its tensors by Hugging Face name."""

    folder: Path
    config: dict[str, Any]
    arrays: dict[str, LazyArray]

    @classmethod
    def open(cls, folder: Path) -> "HfCheckpoint":
        """Read config.json and the headers; raise UserError if one is missing or damaged."""
        if not (folder / "config.json").is_file():
            raise UserError(f"{folder} has no config.json: give a Hugging Face model's folder.")
        config = json.loads((folder / "config.json").read_text())
        arrays: dict[str, LazyArray] = {}
        for path in _weight_files(folder):
            if not path.is_file():
                raise UserError(f"{folder} lacks {path.name}, which its index names.")
            arrays |= _bin(path) if path.suffix == ".bin" else _safetensors(path)
        return cls(folder, config, arrays)

    def byte_sentinels(self) -> int | None:
        """Return how many sentinels follow the bytes of a ByT5, as seqio counts, or None.

        The first ByT5 was trained with its last bytes as sentinels. The rows that transformers
        names upwards from the first row behind the bytes are no sentinels, so the count is 0.
        """
        tokenizer = self._tokenizer()
        if tokenizer.get("tokenizer_class") != "ByT5Tokenizer":
            return None
        return _sentinels_last(tokenizer)

    def extra_ids(self) -> int | None:
        """Return how many sentinels follow a SentencePiece model that holds none, or None."""
        tokenizer = self._tokenizer()
        declared = tokenizer.get("extra_ids")
        # PreTrainedTokenizerFast, which a model with byte fallback needs, has no extra_ids.
        return _sentinels_last(tokenizer) or None if declared is None else declared

    def _tokenizer(self) -> dict[str, Any]:
        path = self.folder / "tokenizer_config.json"
        return json.loads(path.read_text()) if path.is_file() else self.config
