"""The weights of a Hugging Face folder by name, each read on request.

Published files repeat the embedding under other names, and the oldest hold a table that no model
uses; `arrays` leaves out what a T5 does not need.
"""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from t5x.checkpointing.lazy_array import LazyArray, from_numpy

_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
_UNUSED = re.compile(
    r"(en|de)coder\.embed_tokens\.weight"
    r"|decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
)


def _safetensors(path: Path) -> dict[str, LazyArray]:
    """Map the tensors of one file; raise ValueError if it is truncated, or of an unknown dtype."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise ValueError(f"{path} is not a safetensors file, or is truncated.") from error
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
        offset, nbytes = first + entry["data_offsets"][0], math.prod(shape) * dtype.itemsize

        def fetch(index, dtype=dtype, shape=shape, offset=offset, nbytes=nbytes):
            data = np.memmap(path, np.uint8, "r", offset, (nbytes,))
            return data.view(dtype).reshape(shape)[index]

        found[name] = LazyArray(shape, dtype, fetch)
    return found


def _bin(path: Path) -> dict[str, LazyArray]:
    """Map the tensors of a torch file; no code in it is run."""
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{path} is not a torch weights file, or is truncated ({reason})."
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
    raise ValueError(f"{folder} has neither model.safetensors nor pytorch_model.bin.")


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
        """Read config.json and the headers; raise ValueError if one is missing or damaged."""
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} has no config.json: give a Hugging Face model's folder.")
        config = json.loads((folder / "config.json").read_text())
        arrays: dict[str, LazyArray] = {}
        for path in _weight_files(folder):
            if not path.is_file():
                raise ValueError(f"{folder} lacks {path.name}, which its index names.")
            arrays |= _bin(path) if path.suffix == ".bin" else _safetensors(path)
        if "shared.weight" not in arrays:  # saved under one of its other names
            other = next((name for name in arrays if _UNUSED.match(name)), None)
            if other:
                arrays["shared.weight"] = arrays[other]
        used = {name: array for name, array in arrays.items() if not _UNUSED.fullmatch(name)}
        return cls(folder, config, used)

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

    def tied(self) -> bool:
        """Return whether logits are read with the embedding, scaled as in T5 1.0.

        transformers 5 saves "tie_word_embeddings: true" for every T5. Whether it scales is in
        scale_decoder_outputs, and whether there is another head, in the weights. Raise ValueError
        for a scaled separate head, which T5X's network does not have.
        """
        family = self.config.get("model_type")
        key = "scale_decoder_outputs"
        key = key if key in self.config else "tie_word_embeddings"
        scaled = self.config.get(key, True) and family != "mt5"
        head, table = self.arrays.get("lm_head.weight"), self.arrays["shared.weight"]
        same = head is None or np.array_equal(head.read(), table.read())
        if scaled and not same and family != "umt5":
            raise ValueError(
                f"{self.folder} scales the inputs of a separate head, which T5X has no network "
                f"for: its config.json should say {key} false."
            )
        return bool(scaled and same)
