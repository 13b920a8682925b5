"""Read a run's last checkpoint and write a new run: for from_hf and tools that edit checkpoints."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from convert import atomic_output
from convert.formats import t5x_checkpoint_writer
from convert.run import model_dir
from convert.sizes import Sizes
from convert.t5x_params import Tree, check_network, check_values, open_tree, row_blocks
from t5x.checkpointing.lazy_array import LazyArray
from t5x.checkpointing.reader import open_checkpoint


class RunCheckpoint(NamedTuple):
    """A checkpoint's step, path, network and arrays by state dict path (`target/…`, `state/…`)."""

    step: int
    path: str
    sizes: Sizes
    arrays: Tree


def last_checkpoint(folder: str, config: str | None = None) -> RunCheckpoint:
    """Open a run's last checkpoint, or one, of the network `config`, or raise ValueError."""
    run = model_dir.open_run(folder)
    step = max(run.checkpoints)
    path = run.checkpoints[step]
    sizes, _ = model_dir.network(run, config)
    sizes = check_network(open_tree([path]), sizes)
    return RunCheckpoint(step, path, sizes, open_checkpoint(path))


@contextlib.contextmanager
def staged_run(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes the new run at the end, or raise ValueError."""
    if model_dir.holds_run(folder):
        raise ValueError(f"{folder} holds a run already: name an empty folder.")
    with atomic_output.staged(folder) as temporary:
        yield temporary


def write_run(
    folder: Path,
    step: int,
    arrays: Tree,
    sizes: Sizes,
    byte_sentinels: int | None = None,
    extra_ids: int | None = None,
) -> str:
    """Write `checkpoint_<step>` and `config.gin`; return the former's path, or raise ValueError."""
    needed = sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays.values())
    atomic_output.check_disk_space(folder.parent, needed)
    checkpoint = folder / f"checkpoint_{step}"
    checked = {name: _checked(name, array) for name, array in arrays.items()}
    t5x_checkpoint_writer.write(checkpoint, checked)
    gin = gin_of(sizes, byte_sentinels, extra_ids)
    (folder / model_dir.GIN_FILES[0]).write_text(gin)
    return str(checkpoint)


def _checked(name: str, array: LazyArray) -> LazyArray:
    """Return the array with its values checked when it is read, if it is a parameter."""

    def fetch(index):
        values = array.read()
        check_values(name, values)
        return values[index]

    if not name.startswith("target/"):
        return array
    return LazyArray(array.shape, array.dtype, fetch)


def check_written(path: str, wanted: Tree) -> None:
    """Raise ValueError unless a checkpoint holds these arrays, bit by bit."""
    found = open_checkpoint(path)
    if lost := sorted(wanted.keys() - found.keys()):
        raise ValueError(f"{path} was written without {lost[0]}.")
    for name, array in found.items():  # in this order, stored arrays are read once
        read, written = wanted[name].read(), array.read()
        blocks = row_blocks(read.shape) if read.ndim else [...]
        if not all(np.array_equal(read[rows], written[rows]) for rows in blocks):
            raise ValueError(f"{path}: {name} was written with different values than were read.")


def gin_of(
    sizes: Sizes,
    byte_sentinels: int | None = None,
    extra_ids: int | None = None,
) -> str:
    """Return gin bindings of this network, and of its vocabulary's sentinels.

    There are `byte_sentinels` of them behind bytes, or `extra_ids` behind a SentencePiece model.
    """
    fields = dataclasses.asdict(sizes)
    for constant in ("relative_attention_num_buckets", "relative_attention_max_distance"):
        del fields[constant]  # T5X has no field for them
    if not sizes.own_relative_bias:
        del fields["own_relative_bias"]  # a field that upstream's T5Config lacks
    lines = [f"network.T5Config.{name} = {value!r}" for name, value in fields.items()]
    imports = ["from t5x.examples.t5 import network"]
    counts = {"ByteVocabulary": byte_sentinels, "SentencePieceVocabulary": extra_ids}
    for name, count in counts.items():
        if count is not None:
            imports.insert(0, "import seqio")
            lines.append(f"seqio.{name}.extra_ids = {count}")
    return "\n".join([*imports, "", *lines, ""])
