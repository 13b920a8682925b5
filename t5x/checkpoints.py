"""Save the checkpoints of a run asynchronously, atomically, and with a limit on their number.

  with Checkpointer("runs/tiny", SaveCheckpointConfig(period=1000, keep=5)) as checkpointer:
      checkpointer.save(1000, state_dict)   # returns once the arrays have left the devices
      checkpointer.check()                  # raises the error of a failed save, if any
      checkpointer.wait()                   # until checkpoint_1000 is complete

  runs/tiny/checkpoint_1000/state/          # Orbax: {"target": …, "state": {"step", …}}
  runs/tiny/checkpoint_1000/dataset/        # the data position, as its writer leaves it

T5X restores these; `checkpointing.restore` reads what T5X saved, this kind and the older one.
"""

import contextlib
import errno
import functools
import os
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging
from etils import epath

from common.errors import Failure, UserError, first_line
from common.tables import counted
from t5x.array_types import PyTree
from t5x.bad_steps import REMEDY
from t5x.checkpointing import checksums, layout, orbax_writer
from t5x.checkpointing.async_save import AsyncSave
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.checkpointing.lease import Lease
from t5x.checkpointing.reader import DIGESTS
from t5x.checkpointing.restore import all_finite, by_name, check_readable, digest_of
from t5x.checkpointing.retention import BestCheckpoints, steps_to_delete
from t5x.multihost.broadcast import broadcast_from_first

# How a checkpoint is saved. In a pod every process makes every call.
# 1. `save` waits for the save before it. If the step has a complete checkpoint, it does nothing.
# 2. One pass over the arrays computes their digests and looks for NaN and infinity. If it finds
#    any, no checkpoint is written.
# 3. Orbax makes the folder, on disk under a temporary name, in a bucket under the final one, and
#    copies the arrays from the devices. Then `save` returns, and training continues.
# 4. In the background each process writes its shards to `state/` and its data position to
#    `dataset/`.
# 5. When all have written, the first process writes the checksums of `dataset/` and the metadata
#    with the digests, and commits: on disk by a rename, in a bucket, which has none, by
#    `commit_success.txt`. Only now is the checkpoint complete; nothing reads an incomplete one.
# 6. The first process opens the first checkpoint that it writes as a resume would. If that fails,
#    the save has failed: the run ends while it has lost little.
# 7. Then the first process deletes old checkpoints: all but the newest `keep`, the best ones and
#    `checkpoint_steps`; and `dataset/` in all but the newest `keep_dataset_checkpoints`. A deletion
#    first undoes the commit, so that a half-deleted checkpoint is an incomplete one.
# 8. A save that raises or exceeds `timeout` has failed: the run stops, or with
#    `when_failed='go_on'` continues to the next save. What a failed, killed or incomplete save or
#    deletion leaves is removed immediately or at the next start.

# After a failure in a pod the current save may wait for hosts that are gone. All processes should
# end within a minute of a fault.
_QUICK_CLOSE_SECONDS = 45
_NO_TIMEOUT = 30 * 24 * 3600


class SaveError(Failure):
    """A checkpoint was not written; earlier ones are untouched."""


class NonFiniteStateError(FloatingPointError):
    """A state holds NaN or infinity, so no checkpoint of it is written."""


class Checkpointer:
    """Saves the checkpoints of one run and deletes old ones.

    Args:
      run_folder: MODEL_DIR, on disk or in a bucket; made if missing, and cleared of what an
        incomplete save has left.
      config: what to save and keep, and when a save has failed.
      lease: nothing is saved or deleted without it; None for no such check.

    Attributes:
      last_complete: step of the newest complete checkpoint, None before the first.
      best: the best checkpoints.

    Raises:
      UserError: the folder cannot be made.
    """

    def __init__(
        self,
        run_folder: str,
        config: SaveCheckpointConfig | None = None,
        lease: Lease | None = None,
    ):
        folder = os.fspath(run_folder)
        self.run_folder = folder.rstrip("/") if "://" in folder else os.path.abspath(folder)
        self._lease = lease
        self.config = c = config or SaveCheckpointConfig()
        self._timeout = c.timeout or _NO_TIMEOUT
        self._is_first = jax.process_index() == 0
        if self._is_first:
            try:
                epath.Path(self.run_folder).mkdir(parents=True, exist_ok=True)
                layout.remove_leftovers(self.run_folder)
            except OSError as error:
                raise UserError(
                    "MODEL_DIR",
                    folder,
                    f"which cannot be written ({error})",
                    "set it to a folder that can",
                ) from error
        self.last_complete = layout.latest_step(self.run_folder)
        self.best = BestCheckpoints(self.run_folder, c.keep_best, c.metric, c.mode)
        self._is_read = False  # whether a checkpoint of this writer was opened
        self._pending: AsyncSave | None = None
        self._hangs = False  # whether a save of this writer was given up

    @functools.cached_property
    def _writer(self) -> Any:
        return orbax_writer.make()

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
        """Start writing `checkpoint_<step>`, once the save before it is done.

        Args:
          step: updates applied.
          state_dict: the tree as on disk, of (sharded) jax or numpy arrays, which may be changed
            or donated as soon as this returns.
          dataset_writer: called once per process with the checkpoint's `dataset` folder, to write
            its data position to a file of its own there; not called unless `save_dataset` is set.

        Returns:
          False if this step has a complete checkpoint already, or if the save failed and
          `when_failed` is 'go_on'.

        Raises:
          SaveError: this save could not start, or the one before it failed.
          NonFiniteStateError: an array holds NaN or infinity.
          Failure: another run has taken over the lease.
        """
        self.wait()
        if self._lease:
            self._lease.check()
        folder = layout.step_folder(self.run_folder, step)
        # Asked on one host: a new folder may become visible later on others.
        if broadcast_from_first(lambda: layout.kind(folder)):
            logging.info("%s exists already and is kept.", folder)
            return False
        state_dict = self._rounded(state_dict)
        name = f"{step}-{secrets.token_hex(8)}"  # the first process's name is written
        metadata: dict[str, Any] = {layout.SAVE: name, DIGESTS: _digests(state_dict)}
        if not self.config.save_dataset:
            dataset_writer = None
        if dataset_writer is not None:
            metadata[layout.HAS_POSITION] = True
        writer, args = self._writer, orbax_writer.arguments(state_dict, dataset_writer, name)
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state_dict)
        self._pending = AsyncSave(
            f"checkpoint_{step}",
            lambda: writer.save(folder, args=args, force=True, custom_metadata=metadata),
            lambda: self._finish(writer, step, like),
            self._timeout,
        )
        return self._succeeds(self._pending, self._pending.wait_for_copy)

    @property
    def saving(self) -> bool:
        """Whether a save is in progress."""
        return self._pending is not None

    def check(self) -> None:
        """Raise SaveError if the save in the background has failed, without waiting for it."""
        if self._pending and self._pending.is_over:
            self.wait()

    def wait(self) -> None:
        """Wait until the last save is complete.

        Raise SaveError if it failed, and `when_failed` is 'stop'.
        """
        if self._pending and self._succeeds(self._pending, self._pending.wait):
            self._pending = None

    def close(self, quickly: bool = False) -> None:
        """Wait for the last save, `quickly` for 45 seconds at most, then release threads."""
        if quickly and self._pending:
            self._pending.shorten_deadline(_QUICK_CLOSE_SECONDS)
        self.wait()
        if "_writer" in vars(self) and not self._hangs:  # its thread would be waited for
            # Orbax raises again what a failed save has raised, which `wait` has reported.
            with contextlib.suppress(OSError):
                self._writer.close()

    def _rounded(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state with its parameters in the dtype on disk."""
        if self.config.dtype is None or "target" not in state_dict:
            return dict(state_dict)
        dtype = jnp.dtype(self.config.dtype)
        rounded = lambda x: x if x.dtype == dtype else x.astype(dtype)
        return {**state_dict, "target": jax.tree.map(rounded, state_dict["target"])}

    def _succeeds(self, pending: AsyncSave, wait: Callable[[], None]) -> bool:
        """Wait; return False if the save failed and the run may continue, else raise SaveError."""
        try:
            wait()
            return True
        except Exception as error:
            self._pending, self._hangs = None, isinstance(error, TimeoutError)
            failed = self._failed(pending.name, error)
            # A save that hangs before it has copied would later meet the other hosts' next save.
            out_of_step = not pending.has_copied and jax.process_count() > 1
            if self.config.when_failed == "stop" or out_of_step:
                raise failed from error
            logging.error("%s", failed)
            del self._writer  # the next save makes another
            self._hangs = False
            return False

    def _finish(self, writer: Any, step: int, like: PyTree) -> None:
        """In the background: wait for the commit, then delete old checkpoints.

        `like` has the shapes of the state.
        """
        writer.wait_until_finished()
        if self._is_first and not self._is_read:
            try:
                check_readable(self.run_folder, step, like)
            except UserError as error:
                raise Failure(why=f"what was written cannot be read: {error.fault}") from error
            self._is_read = True
        self.last_complete = max(step, self.last_complete or 0)  # one given up may end late
        logging.info("checkpoint_%d is complete.", step)
        if self._is_first and self._may_delete():
            try:
                self._delete_old()
            except OSError as error:  # one checkpoint too many stops no run
                logging.warning("Old checkpoints could not be deleted: %s", error)

    def _may_delete(self) -> bool:
        return self._lease is None or self._lease.is_held()

    def _delete_old(self) -> None:
        steps = layout.all_steps(self.run_folder)
        folder = lambda step: layout.step_folder(self.run_folder, step)
        pinned = {*(self.config.checkpoint_steps or ()), *self.best.steps()}
        old = steps_to_delete(steps, self.config.keep, pinned)
        for step in old:
            logging.info("Deleting checkpoint_%d, beyond SaveCheckpointConfig.keep.", step)
            layout.remove(folder(step))
        with_data = [s for s in steps if s not in old and layout.dataset_folder(folder(s))]
        for step in steps_to_delete(with_data, self.config.keep_dataset_checkpoints):
            layout.remove(os.path.join(folder(step), "dataset"))

    def _failed(self, name: str, error: BaseException) -> SaveError:
        """Remove what a failed save has left, and return its SaveError."""
        last = self.last_complete
        earlier = "there is no earlier one" if last is None else f"checkpoint_{last} is complete"
        # If storage hangs, another call to it would hang too.
        if self._is_first and self._may_delete() and not isinstance(error, TimeoutError):
            try:  # the incomplete one takes space, and the disk may be full
                layout.remove_leftovers(self.run_folder)
            except OSError as second:
                logging.warning("Its remains could not be removed: %s", second)
        why = f"could not be written to {self.run_folder}: {reason_of(error)}"
        return SaveError(name, why=why, to_set=earlier)


def reason_of(error: BaseException) -> str:
    """Return the first line of an error, without a node of TensorFlow or tensorstore's request.

    A full disk is named as such: libraries bury it in paths.
    """
    if (full := os.strerror(errno.ENOSPC)) in str(error):
        return full[0].lower() + full[1:]
    reason = re.sub(r"\{\{.*?\}\} ?| ?\[tensorstore_spec='.*?'\](?= \[|$)", "", first_line(error))
    # It starts with the operation and ends with the cause.
    return reason if len(reason) <= 300 else f"{reason[:60]} … {reason[-230:]}"


def _digests(state_dict: PyTree) -> dict[str, int]:
    """Return the digests of the arrays by name, computed where they are.

    Raise NonFiniteStateError if one of them is not finite.
    """
    # One array at a time: many such programs at once deadlock on machines with few cores.
    arrays = {n: a for n, a in by_name(state_dict).items() if checksums.has_digest(a.dtype)}
    inspected = {name: (digest_of(array), all_finite(array)) for name, array in arrays.items()}
    if bad := [name for name, (_, is_finite) in inspected.items() if not is_finite]:
        others = f" and {counted(len(bad) - 1, 'other array')}" if bad[1:] else ""
        raise NonFiniteStateError(
            f"The state holds NaN or infinity in {bad[0]}{others}; no checkpoint is written. "
            f"{REMEDY}"
        )
    return {name: digest for name, (digest, _) in inspected.items()}
