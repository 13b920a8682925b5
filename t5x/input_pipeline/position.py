"""What a saved data position says of itself, in `stream.json`: the run and the rows that it fits.

The positions of the shards lie beside it, see `t5x.input_pipeline.shard`.
"""

import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from common.errors import UserError
from common.small_files import read_json
from t5x.checkpointing.lazy_array import parsing
from t5x.input_pipeline.config import DatasetConfig


def saved(folder: str | None) -> dict[str, Any] | None:
    """Return what `write` has written to a checkpoint's dataset folder, None if there is nothing.

    Raise DamagedCheckpoint for what is cut off, or of another form.
    """
    path = f"{folder}/stream.json"
    if folder is None or not tf.io.gfile.exists(path):
        return None
    with parsing(path):
        found = read_json(path)
        if not (isinstance(found["seed"], int) and range(found["shards"])):
            raise UserError("its seed or shards are no numbers")
        return found


def write(
    folder: str,
    cfg: DatasetConfig,
    seed: int,
    shards: int,
    orders: Mapping[str, str],
    corpora: Mapping[str, Any],
) -> None:
    """Describe a stream: `orders` and identities of `corpora` by task, `shards` virtual ones."""
    about: dict[str, Any] = {"seed": seed, "shards": shards, "batch_size": cfg.batch_size}
    about |= {"orders": orders, **_row_settings(cfg), "corpora": corpora}
    with tf.io.gfile.GFile(f"{folder}/stream.json", "w") as file:
        file.write(json.dumps(about))


def misfit(saved: Mapping[str, Any], cfg: DatasetConfig) -> str | None:
    """Return why the position in `saved` cannot fill batches, as a predicate; None if it can."""
    for name, now in _row_settings(cfg).items():
        if (before := saved[name]) != now:
            return (
                f"holds the position of rows made with {name} = {before}, and it is {now} now; "
                f"set it to {before}"
            )
    shards, batch_size = saved["shards"], cfg.batch_size
    if batch_size % shards == 0:
        return None
    return (
        f"holds the position of {shards} virtual shards, which cannot fill a batch of {batch_size} "
        f"rows in equal parts; set BATCH_SIZE to a multiple of {shards} (it was "
        f"{saved['batch_size']})"
    )


def _row_settings(cfg: DatasetConfig) -> dict[str, Any]:
    """Return what decides the rows that a position holds, by the name of its setting."""
    lengths = cfg.task_feature_lengths
    return {"TASK_FEATURE_LENGTHS": None if lengths is None else dict(lengths), "pack": cfg.pack}
