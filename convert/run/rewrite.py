"""Reads a run's last checkpoint and writes a new run, for tools that edit checkpoints."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.errors import UserError
from convert import atomic_output
from convert.formats import t5x_checkpoint_writer
from convert.run import model_dir
from convert.sizes import PUBLISHED_AS, Sizes
from convert.t5x_params import Tree, check_network, checked, open_tree
from t5x.checkpointing.reader import open_checkpoint


class RunCheckpoint(NamedTuple):
    """A checkpoint of a run; `arrays` are named by their path (`target/…`, `state/…`)."""

    run: model_dir.TrainedRun
    step: int
    path: str
    sizes: Sizes
    arrays: Tree


def last_checkpoint(folder: str, config: str | None = None) -> RunCheckpoint:
    """Open the last checkpoint of a run, or a single one; raise UserError for another network."""
    run = model_dir.open_run(folder)
    step = max(run.checkpoints)
    path = run.checkpoints[step]
    sizes, _ = model_dir.network(run, config)
    sizes = check_network(open_tree([path]), sizes)
    return RunCheckpoint(run, step, path, sizes, open_checkpoint(path))


def write_run(
    folder: Path,
    step: int,
    arrays: Tree,
    sizes: Sizes,
    extra_ids: Mapping[str, int] | None = None,
) -> str:
    """Write `checkpoint_<step>` and `config.gin` (see `gin_of`); return the checkpoint's path.

    Raises:
      UserError: the disk is full, or a parameter has values that no training leaves.
    """
    needed = sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays.values())
    atomic_output.check_disk_space(folder.parent, needed)
    checkpoint = folder / f"checkpoint_{step}"
    t5x_checkpoint_writer.write(checkpoint, checked(arrays))
    (folder / model_dir.GIN_FILES[0]).write_text(gin_of(sizes, extra_ids))
    return str(checkpoint)


def check_written(path: str, arrays: Tree) -> None:
    """Raise UserError unless a checkpoint holds these arrays, bit by bit."""
    stored = open_checkpoint(path)
    if missing := sorted(arrays.keys() - stored.keys()):
        raise UserError(path, why=f"was written without {missing[0]}")
    for name, array in stored.items():  # stored arrays are read once in this order
        if not np.array_equal(arrays[name].read(), array.read()):
            raise UserError(name, why="was written with different values than were read").at(path)


def gin_of(sizes: Sizes, extra_ids: Mapping[str, int] | None = None) -> str:
    """Return gin bindings for this network, and the family it was published as if that is another.

    `extra_ids` maps a vocabulary class of seqio to the number of sentinels after its ids.
    """
    fields = sizes.fields()
    if not fields.get("own_relative_bias"):
        fields.pop("own_relative_bias", None)  # upstream's T5Config has no such field
    imports = ["import seqio"] * bool(extra_ids) + [f"from {sizes.package} import network"]
    lines = [f"network.{sizes.configuration}.{name} = {value!r}" for name, value in fields.items()]
    lines += [f"seqio.{name}.extra_ids = {count!r}" for name, count in (extra_ids or {}).items()]
    lines += [f"{PUBLISHED_AS} = {sizes.model_type!r}"] if sizes.model_type else []
    return "\n".join([*imports, "", *lines, ""])
