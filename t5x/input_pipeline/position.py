"""`stream.json`, the metadata of a saved data position: which run and row layout it belongs to.

The positions of the shards lie beside it, see `t5x.input_pipeline.shard`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from common.errors import UserError
from common.small_files import read_json
from t5x.checkpointing.lazy_array import parsing
from t5x.input_pipeline import mixed
from t5x.input_pipeline.config import DatasetConfig


def saved(folder: str | None) -> dict[str, Any] | None:
    """Return what `write` wrote to a checkpoint's dataset folder, None if there is nothing.

    Raise DamagedCheckpoint if it is cut off or has another form.
    """
    path = f"{folder}/stream.json"
    if folder is None or not tf.io.gfile.exists(path):
        return None
    with parsing(path):
        about = read_json(path)
        if not (isinstance(about["seed"], int) and range(about["shards"])):
            raise UserError(path, why="has a seed or shards that are no numbers")
        return about


def write(
    folder: str,
    cfg: DatasetConfig,
    seed: int,
    shards: int,
    orders: Mapping[str, str],
    corpora: Mapping[str, Any],
    pipelines: Sequence[str],
    steps: int,
) -> None:
    """Describe a stream of `shards` virtual shards: orders and identities of corpora by task.

    `pipelines` are the names of each shard's pipelines, see `t5x.input_pipeline.mixed`; `steps` are
    the batches since the mixture was first read.
    """
    about: dict[str, Any] = {"seed": seed, "shards": shards, "batch_size": cfg.batch_size}
    about |= {"mixture": cfg.provider.name, "pipelines": list(pipelines), "steps": steps}
    about |= {"orders": orders, **_row_settings(cfg), "corpora": corpora}
    with tf.io.gfile.GFile(f"{folder}/stream.json", "w") as file:
        file.write(json.dumps(about))


class Misfit(NamedTuple):
    """Why a position cannot fill batches, and what to set, as in a UserError."""

    why: str
    to_set: str


def misfit(saved: Mapping[str, Any], cfg: DatasetConfig) -> Misfit | None:
    """Return why the position in `saved` cannot fill batches, None if it can."""
    for name, now in _row_settings(cfg).items():
        if (before := saved[name]) != now:
            return Misfit(
                f"holds the position of rows made with {name} = {before}, and it is {now} now",
                f"set it to {before}",
            )
    shards, batch_size = saved["shards"], cfg.batch_size
    if batch_size % shards == 0:
        return None
    return Misfit(
        f"holds the position of {shards} virtual shards, which cannot fill a batch of {batch_size} "
        "rows in equal parts",
        f"set BATCH_SIZE to a multiple of {shards} (it was {saved['batch_size']})",
    )


def pipelines(saved: Mapping[str, Any], mixture: str) -> list[str]:
    """Return the names of the saved pipelines; a position without names has that of `mixture`."""
    return saved.get("pipelines", [mixture])


def changed_mixture(saved: Mapping[str, Any], mixture: str, names: Sequence[str]) -> str | None:
    """Return which pipelines of `mixture` continue from `saved` and which begin; None if all do."""
    before_names = pipelines(saved, mixture)
    began = [name for name in names if name not in before_names]
    if not began and set(before_names) <= set(names):
        return None
    changes = [f"{', '.join(began)} begins"] if began else []
    if continued := [name for name in names if name in before_names]:
        changes = [f"{', '.join(continued)} continues where it was", *changes]
    if ended := [name for name in before_names if name not in names]:
        changes.append(f"{', '.join(ended)} is read no more")
    before = saved.get("mixture", "other data")
    return f"The data of {mixture} follows on {before}: {'; '.join(changes)}."


def check_own(saved: Mapping[str, Any] | None, cfg: DatasetConfig, run: str) -> None:
    """Raise UserError if a run cannot resume at its own position `saved`.

    It cannot if its mixture is another one, or if there is no position and the rates change with
    the step.
    """
    name, phases = cfg.provider.name, mixed.phases_of(cfg.provider)
    if saved is None and len(phases) > 1:
        raise UserError(
            f"the newest checkpoint in {run}",
            why=f"has no data position, which says how many steps of mixture {name} are done",
            to_set="remove it, and the same command resumes from the one before",
        )
    if saved is None:
        return
    held = pipelines(saved, name)
    names = mixed.names_of(cfg.provider, cfg.split, held)
    if set(held) != set(names):
        raise UserError(
            "MIXTURE_OR_TASK_NAME",
            name,
            f"which reads {', '.join(names)}, but {run} is a run on {', '.join(held)}",
            "set another MODEL_DIR, and COOLDOWN_FROM, or RestoreCheckpointConfig.path with "
            "restore_dataset = True, to go on from a checkpoint",
        )


def _row_settings(cfg: DatasetConfig) -> dict[str, Any]:
    """Return the settings that decide the rows of a position."""
    lengths = cfg.task_feature_lengths
    return {"TASK_FEATURE_LENGTHS": None if lengths is None else dict(lengths), "pack": cfg.pack}
