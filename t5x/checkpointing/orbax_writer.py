"""Orbax as `checkpoints.Checkpointer` uses it.

    writer = orbax_writer.make()
    arguments = orbax_writer.arguments(state_dict, write_position)
    writer.save("runs/tiny/checkpoint_1000", args=arguments)
    writer.wait_until_finished()

A checkpoint has a state and, next to it, a data position.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from t5x.checkpointing import layout

# Small enough that a process which needs a part of an array reads little more than its part.
_CHUNK_BYTES = 64 << 20
# Seconds until Orbax gives a save up, by the wall clock, which may jump: a machine may learn of the
# year after 1970. `AsyncSave` does so in time.
_CENTURY = 100 * 365 * 24 * 3600


def make() -> ocp.AsyncCheckpointer:
    """Return a writer of checkpoints."""
    # Folders are made before `save` returns, so that a missing permission is reported there.
    options = ocp.options.AsyncOptions(
        timeout_secs=_CENTURY, create_directories_asynchronously=False
    )
    handler = ocp.CompositeCheckpointHandler(
        composite_options=ocp.CompositeOptions(async_options=options),
        state=ocp.PyTreeCheckpointHandler(),
        dataset=DatasetCheckpointHandler(),
    )
    return ocp.AsyncCheckpointer(handler, async_options=options)


def arguments(
    state_dict: Mapping[str, Any], dataset_writer: Callable[[str], None] | None, save: str = ""
) -> ocp.args.Composite:
    """Return what the writer's `save` takes for a state and a writer of a data position, or None.

    `dataset_writer` is called once per process with the checkpoint's `dataset` folder. `save` is
    noted there.
    """
    save_args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES), state_dict)
    items = {"state": ocp.args.PyTreeSave(state_dict, save_args)}
    if dataset_writer is not None:
        items["dataset"] = _DatasetSave(dataset_writer, save)
    return ocp.args.Composite(**items)


class DatasetCheckpointHandler(ocp.CheckpointHandler):
    """Makes Orbax write the data position of every process before it commits a checkpoint."""

    def save(self, directory: epath.Path, args: "_DatasetSave") -> None:
        """Write this process's data position."""
        self._save = args.save
        args.write(os.fspath(directory))

    def finalize(self, directory: epath.Path) -> None:
        """On one process, once all have written: write the checksums of their files."""
        layout.write_checksums(directory, self._save)

    def restore(self, directory: epath.Path, args: Any = None) -> None:
        """Unused: the data's reader opens `layout.dataset_folder` itself."""
        raise NotImplementedError


@ocp.args.register_with_handler(DatasetCheckpointHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class _DatasetSave(ocp.args.CheckpointArgs):
    """The writer of the data position, and the name of the save."""

    write: Callable[[str], None]
    save: str
