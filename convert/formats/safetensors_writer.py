"""model.safetensors, as transformers' `save_pretrained` writes it.

Above `shard_bytes` the tensors are split over `model-00001-of-0000N.safetensors`, with
`model.safetensors.index.json` next to them. One of these files is in memory at a time.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from convert.atomic_output import check_full_disk, write_json
from t5x.checkpointing.lazy_array import LazyArray

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def write(
    folder: Path, tensors: Mapping[str, LazyArray], dtype: str, shard_bytes: int = 5 * 10**9
) -> None:
    """Write tensors, by name, into `folder`; `dtype` is "float32" or "bfloat16"."""
    from huggingface_hub import split_state_dict_into_shards_factory

    split = split_state_dict_into_shards_factory(
        dict(tensors),
        get_storage_size=lambda tensor: math.prod(tensor.shape) * DTYPES[dtype].itemsize,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=shard_bytes,
    )
    for file, names in split.filename_to_tensors.items():
        values = {n: np.ascontiguousarray(tensors[n].read(), DTYPES[dtype]) for n in names}
        _save(folder / file, values)
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        write_json(folder / "model.safetensors.index.json", index)


def _save(path: Path, values: dict[str, np.ndarray]) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(values, path, metadata={"format": "pt"})
        path.chmod(0o644)  # it may be its owner's alone
    except SafetensorError as error:
        check_full_disk(error, path)
        raise
