"""Read a run's last checkpoint and write a new run: for from_hf and tools that edit checkpoints.

old = last_checkpoint("runs/mt5_base")
with staged_run(Path("runs/ro_mt5_base")) as temporary:
    write_run(temporary, old.step, changed_arrays, changed_sizes)
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from convert import atomic_output
from convert.formats import t5x_checkpoint_writer
from convert.model_config import Sizes
from convert.run import model_dir
from convert.t5x_params import Tree, check_network, check_values, open_tree
from t5x.checkpointing.lazy_array import LazyArray
from t5x.checkpointing.reader import open_checkpoint


class RunCheckpoint(NamedTuple):
    """A checkpoint's step, path, network and arrays by state dict path (`target/…`, `state/…`)."""

    step: int
    path: str
    sizes: Sizes
    arrays: Tree


def last_checkpoint(folder: str, config: str | None = None) -> RunCheckpoint:
    """Open the last checkpoint of a run, or one checkpoint; `config` as `convert --config` has it.

    Raises ValueError if there is none, or it is not of the named network.
    """
    run = model_dir.open_run(folder)
    step = max(run.checkpoints)
    path = run.checkpoints[step]
    sizes, _ = model_dir.network(run, config)
    sizes = check_network(open_tree([path]), sizes)
    return RunCheckpoint(step, path, sizes, open_checkpoint(path))


@contextlib.contextmanager
def staged_run(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes the new run if the block ends without an error.

    Raises ValueError if `folder` holds a run already, or other files, or the disk is full.
    """
    if model_dir.holds_run(folder):
        raise ValueError(f"{folder} holds a run already: name an empty folder.")
    with atomic_output.staged(folder) as temporary:
        yield temporary


def write_run(
    folder: Path, step: int, arrays: Tree, sizes: Sizes, byte_sentinels: int | None = None
) -> str:
    """Write `checkpoint_<step>` and `config.gin` into a folder; return the checkpoint's path.

    Raises ValueError for too small a disk, or a parameter that is NaN, infinite or all zeros.
    """
    needed = sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays.values())
    atomic_output.check_disk_space(folder.parent, needed)
    checkpoint = folder / f"checkpoint_{step}"
    checked = {name: _checked(name, array) for name, array in arrays.items()}
    t5x_checkpoint_writer.write(checkpoint, checked)
    (folder / model_dir.GIN_FILES[0]).write_text(gin_of(sizes, byte_sentinels))
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


def gin_of(sizes: Sizes, byte_sentinels: int | None = None) -> str:
    """Return the gin bindings from which the trainer and the converter know this network.

    `byte_sentinels`: number of sentinels of a byte vocabulary, which needs no file.
    """
    fields = dataclasses.asdict(sizes)
    for constant in ("relative_attention_num_buckets", "relative_attention_max_distance"):
        del fields[constant]  # T5X has no field for them
    if not sizes.own_relative_bias:
        del fields["own_relative_bias"]  # a field that upstream's T5Config lacks
    lines = [f"network.T5Config.{name} = {value!r}" for name, value in fields.items()]
    imports = ["from t5x.examples.t5 import network"]
    if byte_sentinels is not None:
        imports.insert(0, "import seqio")
        lines.append(f"seqio.ByteVocabulary.extra_ids = {byte_sentinels}")
    return "\n".join([*imports, "", *lines, ""])
