"""The weights of a Hugging Face folder by name, each read when asked for.

  model = Published.open(Path("mt5-small"))          # safetensors, sharded or not, or .bin
  model.config["d_model"]
  model.arrays["shared.weight"].read()               # numpy, as saved

Published files repeat the embedding under other names, and the oldest hold a table that no model
uses; what a T5 does not need is left out of `arrays`.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Index = tuple[slice | int, ...]
_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
_UNUSED = re.compile(
    r"(en|de)coder\.embed_tokens\.weight"
    r"|decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
)


@dataclasses.dataclass(frozen=True)
class Stored:
    """An array in a file, like `lazy_array.LazyArray`, whose tensorstore no mapped file needs."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fetch: Callable[[Index], np.ndarray] = dataclasses.field(repr=False)

    def read(self, index: Index = ()) -> np.ndarray:
        """The part under `index`, all of it by default, as saved."""
        return self.fetch(index)


def _safetensors(path: Path) -> dict[str, Stored]:
    """The tensors of one file, mapped into memory.

    Raises:
      ValueError: for a file that is cut off, or of a type that no T5 has.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise ValueError(f"{path} is no safetensors file, or cut off.") from error
    header.pop("__metadata__", None)
    first = 8 + length
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if path.stat().st_size < first + end:
        raise ValueError(f"{path} is cut off: it should have {first + end} bytes.")
    found = {}
    for name, entry in header.items():
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{path}: {name} is {entry['dtype']}; T5's weights are {[*_DTYPES]}.")
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
        offset, count = first + entry["data_offsets"][0], math.prod(shape)

        def fetch(index, dtype=dtype, shape=shape, offset=offset, count=count):
            raw = np.memmap(path, np.uint8, "r", offset, (count * dtype.itemsize,))
            return raw.view(dtype).reshape(shape)[index]

        found[name] = Stored(shape, dtype, fetch)
    return found


def _bin(path: Path) -> dict[str, Stored]:
    """The tensors of a torch file, mapped into memory; no code in it is run."""
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is no torch file of weights, or cut off ({reason}).") from error
    found = {}
    for name, tensor in state.items():
        bfloat16 = tensor.dtype == torch.bfloat16

        def fetch(index, tensor=tensor, bfloat16=bfloat16):
            if bfloat16:  # numpy knows no bfloat16 of torch's
                return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)[index]
            return tensor.numpy()[index]

        dtype = np.dtype(ml_dtypes.bfloat16 if bfloat16 else str(tensor.dtype).split(".")[-1])
        found[name] = Stored(tuple(tensor.shape), dtype, fetch)
    return found


def _weight_files(folder: Path) -> list[Path]:
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            return [folder / name for name in names]
    raise ValueError(f"{folder} has neither model.safetensors nor pytorch_model.bin.")


@dataclasses.dataclass(frozen=True)
class Published:
    """A folder's config.json and its tensors by Hugging Face name."""

    folder: Path
    config: dict[str, Any]
    arrays: dict[str, Stored]

    @classmethod
    def open(cls, folder: Path) -> "Published":
        """Reads the headers.

        Raises:
          ValueError: where config.json or the weights are missing or damaged.
        """
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} has no config.json: give a Hugging Face model's folder.")
        config = json.loads((folder / "config.json").read_text())
        arrays: dict[str, Stored] = {}
        for path in _weight_files(folder):
            if not path.is_file():
                raise ValueError(f"{folder} lacks {path.name}, which its index names.")
            arrays |= _bin(path) if path.suffix == ".bin" else _safetensors(path)
        if "shared.weight" not in arrays:  # kept under one of its other names
            other = next((name for name in arrays if _UNUSED.match(name)), None)
            if other:
                arrays["shared.weight"] = arrays[other]
        used = {name: array for name, array in arrays.items() if not _UNUSED.fullmatch(name)}
        return cls(folder, config, used)

    def byte_sentinels(self) -> int | None:
        """How many sentinels stand behind the bytes of a ByT5, as seqio counts; else None.

        The first ByT5 was trained with its last bytes as sentinels: rows that transformers names
        upwards from the first row behind the bytes are no sentinels, and none is counted.
        """
        path = self.folder / "tokenizer_config.json"
        tokenizer = json.loads(path.read_text()) if path.is_file() else self.config
        if tokenizer.get("tokenizer_class") != "ByT5Tokenizer":
            return None
        tokens = tokenizer.get("added_tokens_decoder", {}).items()
        ids = {token["content"]: int(i) for i, token in tokens if "extra_id" in token["content"]}
        highest = ids.get("<extra_id_0>")
        return len(ids) if ids and highest == max(ids.values()) else 0

    def tied(self) -> bool:
        """Whether logits are read with the embedding, scaled as T5 1.0 does.

        transformers 5 saves "tie_word_embeddings: true" for every T5; what it scales stands in
        scale_decoder_outputs, and whether the head is another one, in the weights.

        Raises:
          ValueError: for a scaled head of its own, which T5X's network does not have.
        """
        family = self.config.get("model_type")
        key = "scale_decoder_outputs"
        key = key if key in self.config else "tie_word_embeddings"
        scaled = self.config.get(key, True) and family != "mt5"
        head, table = self.arrays.get("lm_head.weight"), self.arrays["shared.weight"]
        same = head is None or np.array_equal(head.read(), table.read())
        if scaled and not same and family != "umt5":
            raise ValueError(
                f"{self.folder} scales the inputs of a head of its own, which T5X has no network "
                f"for: its config.json should say {key} false."
            )
        return bool(scaled and same)
