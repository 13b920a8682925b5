"""The checkpoints of a run: saved while training goes on, kept few, never half.

  with Checkpointer("runs/tiny", SaveCheckpointConfig(period=1000, keep=5)) as checkpointer:
      checkpointer.save(1000, state_dict)   # returns once the arrays have left the devices
      checkpointer.check()                  # raises what went wrong behind the scenes, if anything
      checkpointer.wait()                   # until checkpoint_1000 is whole

  runs/tiny/checkpoint_1000/state/          # Orbax: {"target": …, "state": {"step", …}}
  runs/tiny/checkpoint_1000/dataset/        # the place in the data, as its writer leaves it

T5X restores these, and `restore` what T5X saved, this kind and the older one. In a pod every
process makes every call; each writes its own shards, the first one commits and deletes.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath

from t5x.checkpointing import checksums, layout
from t5x.checkpointing.async_save import Background
from t5x.checkpointing.best import BestCheckpoints
from t5x.checkpointing.config import SaveCheckpointConfig, checkpoint_paths
from t5x.checkpointing.layout import all_steps, dataset_folder, latest_checkpoint, latest_step
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.checkpointing.reader import DIGESTS
from t5x.checkpointing.restore import Restored, look, restore
from t5x.multihost.broadcast import broadcast_from_first

__all__ = [
    "Checkpointer",
    "DamagedCheckpoint",
    "PoisonedState",
    "Restored",
    "SaveError",
    "all_steps",
    "checkpoint_paths",
    "dataset_folder",
    "latest_checkpoint",
    "latest_step",
    "restore",
    "steps_to_delete",
]

REMEDY = (
    "Lower utils.create_learning_rate_scheduler.base_learning_rate, or set "
    "trainer.Trainer.bad_steps to 'skip' or 'go_back', and start the same command again: it goes "
    "on from the last checkpoint."
)
# Small enough that a process which needs a part of an array reads little more than its part.
_CHUNK_BYTES = 64 << 20
# How long a host of a pod that fails waits for the save on its way, which may need the others: all
# are to have ended within a minute of a fault.
_HURRY_SECONDS = 45
_FOR_EVER = 30 * 24 * 3600


class SaveError(RuntimeError):
    """A checkpoint was not written; the ones before it are untouched."""


class PoisonedState(FloatingPointError):
    """A state with NaN or infinity in it, of which no checkpoint is written."""


class Checkpointer:
    """Saves the checkpoints of one run and deletes those past their time.

    Args:
      run_folder: MODEL_DIR, on disk or under gs://; made if it is not there, and cleared of what
        a save that was cut short has left.
      config: what to save, what to keep and when to give up.

    Attributes:
      last_whole: step of the newest checkpoint that is whole, None before the first.
      best: which checkpoints are the best.

    Raises:
      ValueError: the folder cannot be made.
    """

    def __init__(self, run_folder: str, config: SaveCheckpointConfig | None = None):
        self.run_folder = _absolute(run_folder)
        self.config = config or SaveCheckpointConfig()
        self._timeout = self.config.timeout or _FOR_EVER
        self._is_first = jax.process_index() == 0
        if self._is_first:
            try:
                epath.Path(self.run_folder).mkdir(parents=True, exist_ok=True)
                layout.remove_leftovers(self.run_folder)
            except OSError as error:
                raise ValueError(
                    f"MODEL_DIR {run_folder} cannot be written ({error}); set it to a folder "
                    "that can."
                ) from error
        self.last_whole = self.latest_step()
        c = self.config
        self.best = BestCheckpoints(self.run_folder, c.keep_best, c.metric, c.mode)
        self._pending: Background | None = None
        self._begin()

    def _begin(self) -> None:
        # Folders are made before `save` returns, so that a place that refuses them says so there.
        options = ocp.options.AsyncOptions(
            timeout_secs=self._timeout, create_directories_asynchronously=False
        )
        self._writer = ocp.AsyncCheckpointer(
            ocp.CompositeCheckpointHandler(
                composite_options=ocp.CompositeOptions(async_options=options),
                state=ocp.PyTreeCheckpointHandler(),
                dataset=DatasetCheckpointHandler(),
            ),
            async_options=options,
        )

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()

    def save(
        self,
        step: int,
        state_dict: Mapping[str, Any],
        dataset_writer: Callable[[str], None] | None = None,
    ) -> bool:
        """Starts writing `checkpoint_<step>`, once the save before it is done.

        Args:
          step: updates behind the state.
          state_dict: the tree as it stands on disk, of (sharded) jax or numpy arrays; they may be
            changed or donated as soon as this returns.
          dataset_writer: called with the checkpoint's `dataset` folder, once a process, to write
            its place in the data there under a name of its own; not called unless
            `save_dataset` is set.

        Returns:
          False if a whole checkpoint of this step was there already and was left as it is, or if
          the save failed and `when_failed` is 'go_on'.

        Raises:
          SaveError: this save could not start, or the one before it failed.
          PoisonedState: an array holds NaN or infinity.
        """
        self.wait()
        folder = layout.step_folder(self.run_folder, step)
        if broadcast_from_first(lambda: layout.kind(folder)):  # folders may show late
            logging.info("%s is there already and stays as it is.", folder)
            return False
        state_dict = self._rounded(state_dict)
        notes = {DIGESTS: _digests(state_dict)}
        items = {"state": ocp.args.PyTreeSave(state_dict, _save_args(state_dict))}
        if dataset_writer is not None and self.config.save_dataset:
            items["dataset"] = _DatasetSave(dataset_writer)
        writer, args = self._writer, ocp.args.Composite(**items)
        self._pending = Background(
            f"checkpoint_{step}",
            lambda: writer.save(folder, args=args, force=True, custom_metadata=notes),
            lambda: self._finish(writer, step),
            self._timeout,
        )
        return self._ends_well(self._pending.started)

    @property
    def saving(self) -> bool:
        """Whether a save is under way."""
        return self._pending is not None

    def check(self) -> None:
        """Raises SaveError if the save in the background has failed; does not wait for it."""
        if self.saving and self._pending.is_over:
            self.wait()

    def wait(self) -> None:
        """Waits until what was saved is whole.

        Raises:
          SaveError: it was not saved, and `when_failed` is 'stop'.
        """
        if self.saving and self._ends_well(self._pending.wait):
            self._pending = None

    def close(self, hurry: bool = False) -> None:
        """Waits, if in a `hurry` no longer than 45 seconds, then lets go of threads."""
        if hurry and self.saving:
            self._pending.hurry(_HURRY_SECONDS)
        self.wait()
        self._writer.close()

    def latest_step(self) -> int | None:
        """The step of this run's newest whole checkpoint, None before the first."""
        return layout.latest_step(self.run_folder)

    def _rounded(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """The state with its parameters as they stand on disk."""
        if self.config.dtype is None or "target" not in state_dict:
            return dict(state_dict)
        dtype = jnp.dtype(self.config.dtype)
        own = lambda x: x if x.dtype == dtype else x.astype(dtype)
        return {**state_dict, "target": jax.tree.map(own, state_dict["target"])}

    def _ends_well(self, wait: Callable[[], None]) -> bool:
        """Waits; False for a save that has failed where the run goes on, else SaveError."""
        try:
            wait()
            return True
        except Exception as error:
            pending, self._pending = self._pending, None
            failed = self._failed(pending.name, error)
            # What hangs before it has copied would meet the other hosts out of turn.
            out_of_turn = pending.is_starting and jax.process_count() > 1
            if self.config.when_failed == "stop" or out_of_turn:
                raise failed from error
            self._begin()
            return False

    def _finish(self, writer: ocp.AsyncCheckpointer, step: int) -> None:
        """In the background: waits for the commit, then deletes what is past its time."""
        writer.wait_until_finished()
        self.last_whole = step
        logging.info("checkpoint_%d is whole.", step)
        if not self._is_first:
            return
        try:
            self._delete_old()
        except OSError as error:  # a checkpoint too many stops no run
            logging.warning("Old checkpoints could not be deleted: %s", error)

    def _delete_old(self) -> None:
        steps = layout.all_steps(self.run_folder)
        folder = lambda step: layout.step_folder(self.run_folder, step)
        pinned = {*(self.config.checkpoint_steps or ()), *self.best.steps()}
        old = steps_to_delete(steps, self.config.keep, pinned)
        for step in old:
            logging.info("Deleting checkpoint_%d: past SaveCheckpointConfig.keep.", step)
            layout.remove(folder(step))
        left = [s for s in steps if s not in old and dataset_folder(folder(s))]
        for step in steps_to_delete(left, self.config.keep_dataset_checkpoints):
            layout.remove(dataset_folder(folder(step)))

    def _failed(self, name: str, error: BaseException) -> SaveError:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        # A place in TensorFlow's graph; how tensorstore was asked.
        reason = re.sub(r"\{\{.*?\}\} ?| ?\[tensorstore_spec='.*?'\](?= \[|$)", "", reason)
        if len(reason) > 300:  # what went wrong stands first, why it did last
            reason = f"{reason[:60]} … {reason[-230:]}"
        last = self.last_whole
        message = f"{name} could not be written to {self.run_folder}: {reason}. " + (
            "No checkpoint was there before." if last is None else f"checkpoint_{last} is whole."
        )
        logging.error(message)
        hangs = isinstance(error, TimeoutError)  # as whoever asks anything of the place would
        if self._is_first and not hangs:
            try:  # on a full disk it is the half-written one that takes the room
                layout.remove_leftovers(self.run_folder)
            except OSError as second:
                logging.warning("What is left of it could not be removed: %s", second)
        return SaveError(message)


def _save_args(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES), state_dict)


def _digests(state_dict: Mapping[str, Any]) -> dict[str, int]:
    """The digests of the arrays by name, computed where they lie.

    Raises:
      PoisonedState: one of them is not finite.
    """
    flat = jax.tree_util.tree_flatten_with_path(state_dict)[0]
    name_of = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
    arrays = {name_of(path): array for path, array in flat}
    on_device = lambda array: isinstance(array, jax.Array)
    both = lambda array: jax.device_get(look(array)) if on_device(array) else _look_here(array)
    # One after the other: of many such programs at once, small machines make a knot.
    found = {n: both(array) for n, array in arrays.items() if checksums.has_digest(array.dtype)}
    if bad := [name for name, (_, finite) in found.items() if not finite]:
        raise PoisonedState(
            f"{bad[0]} and {len(bad) - 1} other arrays of the state hold NaN or infinity; no "
            f"checkpoint is written. {REMEDY}"
        )
    return {name: int(value) for name, (value, _) in found.items()}


def _look_here(array: np.ndarray) -> tuple[int, bool]:
    return checksums.digest(array), bool(jnp.isfinite(array).all())


def steps_to_delete(
    steps: Iterable[int], keep: int | None, pinned: Iterable[int] = ()
) -> list[int]:
    """The steps that go when the `keep` newest stay, and the pinned ones, which do not count."""
    counted = sorted(set(steps) - set(pinned))
    return counted[:-keep] if keep else []


class DatasetCheckpointHandler(ocp.CheckpointHandler):
    """Lets every process write its place in the data before the checkpoint is committed."""

    def save(self, directory: epath.Path, args: "_DatasetSave") -> None:
        """Has it written."""
        args.write(os.fspath(directory))

    def finalize(self, directory: epath.Path) -> None:
        """On one process, once all have written: notes the checksums of their files."""
        layout.note_checksums(directory)

    def restore(self, directory: epath.Path, args: Any = None) -> None:
        """Not by Orbax: the reader of the data opens `dataset_folder` itself."""
        raise NotImplementedError


@ocp.args.register_with_handler(DatasetCheckpointHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class _DatasetSave(ocp.args.CheckpointArgs):
    """Who writes the place in the data."""

    write: Callable[[str], None]


def _absolute(folder: str) -> str:
    folder = os.fspath(folder)
    return folder.rstrip("/") if "://" in folder else os.path.abspath(folder)
