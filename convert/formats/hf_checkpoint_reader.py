"""Reads a Hugging Face folder: its config.json, and its weights by name, each on request.

Weights may be in safetensors, PyTorch's or Flax's format, in one file or several. They get
PyTorch's names and axes. A Flax file is read whole.
"""

import dataclasses
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from common import small_files
from common.errors import UserError, first_line
from common.special_tokens import MOST_SENTINELS
from t5x.checkpointing.lazy_array import LazyArray, from_numpy

Reader: TypeAlias = Callable[[Path], dict[str, LazyArray]]
_ANOTHER = "take another copy of the model"
_DTYPES: dict[str, Any] = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,  # of `position_ids`, a constant in the files of RoBERTas
}


def _safetensors(path: Path) -> dict[str, LazyArray]:
    """Map the tensors of one file; raise UserError if it is damaged or has an unknown dtype."""
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, "numpy")
    except SafetensorError as error:
        raise UserError(
            str(path), why=f"is not a safetensors file, or is cut off or damaged ({error})"
        ) from error

    def lazy(name: str) -> LazyArray:
        entry = file.get_slice(name)
        if entry.get_dtype() not in _DTYPES:
            raise UserError(name, why=f"is {entry.get_dtype()}, and not of {[*_DTYPES]}").at(
                str(path)
            )
        dtype = np.dtype(_DTYPES[entry.get_dtype()])
        return LazyArray(
            tuple(entry.get_shape()), dtype, lambda index: file.get_tensor(name)[index]
        )

    return {name: lazy(name) for name in file.keys()}  # noqa: SIM118  # a file has keys, but is not iterable


def _bin(path: Path) -> dict[str, LazyArray]:
    """Map the tensors of a torch file; no code in it is run."""
    import torch

    mmap = zipfile.is_zipfile(path)  # torch before 1.6 wrote files that cannot be mapped
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # another kind of file may raise anything
        raise UserError(
            str(path), why=f"is not a torch weights file, or is truncated ({first_line(error)})"
        ) from error
    tensors = state.values() if isinstance(state, dict) else [None]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise UserError(
            str(path),
            why="holds more than tensors by name",
            to_set="take the weights alone",
        )

    def mapped(name, tensor):
        if tensor.dtype == torch.bfloat16:  # torch cannot convert it to numpy
            return from_numpy(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
        try:
            return from_numpy(tensor.numpy())
        except TypeError as error:  # of 8 bits, quantized or sparse
            raise UserError(name, why=f"is {tensor.dtype}, which numpy lacks").at(
                str(path)
            ) from error

    return {name: mapped(name, tensor) for name, tensor in state.items()}


def _flax(path: Path) -> dict[str, LazyArray]:
    """Map the tensors of a Flax file; its kernels have PyTorch's axes the other way round."""
    from flax import serialization, traverse_util

    try:
        tree = serialization.msgpack_restore(path.read_bytes())
        flat = traverse_util.flatten_dict(tree, sep="/")
        arrays = {name: np.asarray(value) for name, value in flat.items()}
        _check_numbers(arrays)
    except Exception as error:  # another kind of file may raise anything
        raise UserError(
            str(path), why=f"is not a Flax weights file, or is truncated ({first_line(error)})"
        ) from error
    return {
        _torch_name(name): from_numpy(array.T if name.endswith("/kernel") else array)
        for name, array in arrays.items()
    }


def _check_numbers(arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        if array.dtype not in _DTYPES.values():
            raise ValueError(f"{name} is {array.dtype}, and not of {[*_DTYPES]}")


def _torch_name(flax_path: str) -> str:
    """Return PyTorch's name of a Flax parameter."""
    *modules, leaf = flax_path.split("/")
    return ".".join([*modules, "bias" if leaf == "bias" else "weight"])


_READERS = {
    "model.safetensors": _safetensors,
    "pytorch_model.bin": _bin,
    "flax_model.msgpack": _flax,
}


def weights_file(folder: Path) -> str | None:
    """Return the file of a folder's weights or, if they are in several, of their index."""
    names = [name for file in _READERS for name in (file, f"{file}.index.json")]
    return next((name for name in names if (folder / name).is_file()), None)


def _weights(folder: Path) -> dict[str, LazyArray]:
    if not (name := weights_file(folder)):
        raise UserError(str(folder), why=f"has neither {' nor '.join(_READERS)}")
    reader = _READERS[name.removesuffix(".index.json")]
    return reader(folder / name) if name in _READERS else _shards(folder, name, reader)


def _shards(folder: Path, index: str, reader: Reader) -> dict[str, LazyArray]:
    with small_files.parsing(folder / index, _ANOTHER):
        names = sorted(set(small_files.read_json(folder / index)["weight_map"].values()))
        for name in names:
            if Path(name).name != name:
                raise UserError(
                    str(folder / index), why=f"names {name!r}, which is no file beside it"
                )
            if not (folder / name).is_file():
                raise UserError(str(folder), why=f"lacks {name}, which its index names")
    return {tensor: array for name in names for tensor, array in reader(folder / name).items()}


# How each file of a tokenizer names (token, id) of what it adds.
_ADDED_TOKENS: dict[str, Callable[[dict[str, Any]], Iterable[tuple[Any, Any]]]] = {
    "tokenizer.json": lambda content: [
        (token["content"], token["id"]) for token in content.get("added_tokens", [])
    ],
    "added_tokens.json": lambda content: content.items(),
    "tokenizer_config.json": lambda content: [
        (token["content"], i) for i, token in content.get("added_tokens_decoder", {}).items()
    ],
}


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Return a folder's JSON object, empty if there is no such file; raise UserError if damaged."""
    if not (folder / name).exists():
        return {}
    with small_files.parsing(folder / name, _ANOTHER):
        return small_files.read_json(folder / name)


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
            raise UserError(
                f"{folder}/config.json",
                why="is missing",
                to_set="give a Hugging Face model's folder",
            )
        return cls(folder, read_json(folder, "config.json"), _weights(folder))

    @property
    def is_flax(self) -> bool:
        """Whether the weights are Flax's."""
        return (weights_file(self.folder) or "").startswith("flax")

    def byte_sentinels(self) -> int | None:
        """Return how many sentinels follow the bytes of a ByT5, as seqio counts, or None.

        The first ByT5 was trained with its last bytes as sentinels. The rows that transformers
        names upwards from the first row after the bytes are no sentinels, so the count is 0.
        """
        if self._tokenizer().get("tokenizer_class") != "ByT5Tokenizer":
            return None
        return self._sentinels_last()

    def extra_ids(self) -> int | None:
        """Return how many sentinels follow a SentencePiece model that holds none, or None."""
        count = self._tokenizer().get("extra_ids")
        if count is None:  # PreTrainedTokenizerFast, which byte fallback needs, has none
            return self._sentinels_last() or None
        if not isinstance(count, int) or not 0 <= count <= MOST_SENTINELS:
            raise UserError(
                "extra_ids", count, f"but must be an integer from 0 to {MOST_SENTINELS:,}"
            ).at(f"{self.folder}/tokenizer_config.json")
        return count

    def added_tokens(self) -> dict[str, int]:
        """Return the ids of the tokens that the tokenizer adds to its model."""
        ids: dict[str, int] = {}
        for name, tokens_of in _ADDED_TOKENS.items():
            with small_files.parsing(self.folder / name, _ANOTHER):
                tokens = tokens_of(read_json(self.folder, name))
                ids |= {str(token): int(i) for token, i in tokens}
        return ids

    def _sentinels_last(self) -> int:
        """Return the number of named sentinels if the first is the highest id, else 0."""
        ids = {token: i for token, i in self.added_tokens().items() if "extra_id" in token}
        return len(ids) if ids and ids.get("<extra_id_0>") == max(ids.values()) else 0

    def _tokenizer(self) -> dict[str, Any]:
        return read_json(self.folder, "tokenizer_config.json") or self.config
