"""MODEL_DIR: may it be written, where does the run go on, and what is noted about the run."""

import contextlib
import dataclasses
import os
import time
import uuid
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from absl import logging
from flax.traverse_util import flatten_dict

from t5x.checkpointing import layout
from t5x.checkpointing.config import RestoreCheckpointConfig, checkpoint_paths
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.multihost import broadcast
from t5x.train_state import StateSpecs


@dataclasses.dataclass(frozen=True)
class Start:
    """The checkpoint a run starts from; `path` None for none, `config` None for its own.

    `keeps_place`: its own also say where in the data to go on.
    """

    path: str | None
    config: RestoreCheckpointConfig | None
    keeps_place: bool = True

    @property
    def is_own(self) -> bool:
        """True for a checkpoint that this run has saved itself."""
        return self.path is not None and self.config is None

    @property
    def known_step(self) -> int | None:
        """The step at which training starts, None where the checkpoint's name tells none."""
        return layout.step_of(self.path) if self.path else 0

    @property
    def step(self) -> int:
        """The step that the checkpoint's name tells, 0 without one."""
        return self.known_step or 0

    @property
    def foreign_step(self) -> int:
        """The step of another run's checkpoint, from which training counts on; else 0."""
        return self.step if self.config else 0

    @property
    def dataset_folder(self) -> str | None:
        """Where the position of the training stream lies, None to begin the corpus."""
        wanted = self.config.restore_dataset if self.config else self.keeps_place
        return layout.dataset_folder(self.path) if self.path and wanted else None

    def check_place(self) -> None:
        """Raises DamagedCheckpoint, on all hosts, if the place in the data is not as saved."""
        if damage := broadcast.broadcast_from_first(self._damage_of_place):
            raise DamagedCheckpoint(damage)

    def _damage_of_place(self) -> str | None:
        try:
            if self.dataset_folder:
                layout.check_checksums(self.dataset_folder)
        except DamagedCheckpoint as damage:
            return str(damage)
        return None


def check_writable(model_dir: str, seconds: float = 30.0) -> None:
    """Makes MODEL_DIR.

    Args:
      model_dir: local or under gs://; in a pod the same for all hosts.
      seconds: how long a file system may take to show one host what another has written.

    Raises:
      ValueError: nothing can be written there, or the hosts of a pod do not share it.
    """
    probe = (
        f"{model_dir.rstrip('/')}/.probe-{broadcast.broadcast_from_first(lambda: uuid.uuid4().hex)}"
    )
    try:
        broadcast.broadcast_from_first(lambda: _make(model_dir, probe))
        broadcast.raise_together(lambda: _look_for(model_dir, probe, seconds), ValueError)
    finally:
        if jax.process_index() == 0:
            with contextlib.suppress(tf.errors.OpError, OSError):  # what matters has been raised
                tf.io.gfile.remove(probe)


def _make(model_dir: str, probe: str) -> None:
    try:
        tf.io.gfile.makedirs(model_dir)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")
    except (tf.errors.OpError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"MODEL_DIR is {model_dir}, which cannot be written ({reason}); set it to a folder "
            "or bucket of yours."
        ) from error


def _look_for(model_dir: str, probe: str, seconds: float) -> None:
    end = time.monotonic() + seconds

    def is_there() -> bool:
        try:
            return tf.io.gfile.exists(probe)
        except tf.errors.OpError as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"MODEL_DIR is {model_dir}, which host {jax.process_index()} cannot read "
                f"({reason}); give it the rights that host 0 has."
            ) from error

    while not is_there():
        if time.monotonic() > end:
            raise ValueError(
                f"MODEL_DIR is {model_dir}, which host {jax.process_index()} does not share with "
                "host 0, though all hosts of a pod write one checkpoint; set it to a gs:// bucket "
                "or a folder that all of them mount."
            )
        time.sleep(0.2)


def find_start(
    model_dir: str, restore: RestoreCheckpointConfig | None, keeps_place: bool = True
) -> Start:
    """Where a run begins.

    1. From the newest whole checkpoint in `model_dir`, which is this run's own.
    2. From the checkpoint that `restore` names.
    3. From scratch.

    Raises:
      ValueError: what `restore` names is not there, or names several.
    """
    own = broadcast.broadcast_from_first(lambda: layout.latest_checkpoint(model_dir))
    if own:
        return Start(own, None, keeps_place)
    if restore is not None and restore.path:
        if restore.mode == "all":
            raise ValueError(
                "RestoreCheckpointConfig.mode is 'all', which names many checkpoints, and training "
                "starts from one; set it to 'specific' or 'latest'."
            )
        return Start(checkpoint_paths(restore)[0], restore)
    return Start(None, None)


def before(start: Start, damage: DamagedCheckpoint) -> Start:
    """Where a run begins if its own checkpoint is damaged: at the one before.

    Raises:
      DamagedCheckpoint: `damage`, where there is none, or the checkpoint is another run's.
    """
    if not start.is_own:
        raise damage
    folder, name = os.path.split(start.path)
    step = layout.step_of(name)
    steps = broadcast.broadcast_from_first(lambda: layout.all_steps(folder))
    steps = [other for other in steps if other < step]
    if not steps:
        raise DamagedCheckpoint(
            f"{damage} It is the only one of this run: remove it, and the same command begins anew."
        ) from damage
    earlier = layout.step_folder(folder, steps[-1])
    logging.warning("%s Going on from %s instead.", damage, earlier)
    return dataclasses.replace(start, path=earlier)


def drop_after(start: Start) -> None:
    """Deletes the run's checkpoints behind the one it goes on from: they were found damaged.

    Only once that one has been read whole, so what seemed damage was not the storage being away.
    """
    if not start.is_own or jax.process_index():
        return
    model_dir, name = os.path.split(start.path)
    for step in layout.all_steps(model_dir):
        if step > layout.step_of(name):
            folder = layout.step_folder(model_dir, step)
            logging.warning("Deleting %s, which is damaged.", folder)
            layout.remove(folder)


def describe(model_dir: str, model: Any, specs: StateSpecs) -> None:
    """Writes `model-info.txt` and a copy of the vocabulary, on one host."""
    if jax.process_index():
        return
    flat = flatten_dict(specs.on_disk["target"], sep="/")
    lines = [f"{k:70} {v.shape!s:20} {v.sharding.spec}" for k, v in sorted(flat.items())]
    count = sum(int(np.prod(v.shape)) for v in flat.values())
    with tf.io.gfile.GFile(os.path.join(model_dir, "model-info.txt"), "w") as file:
        file.write("\n".join([*lines, f"parameters: {count:,}", ""]))
    source = getattr(model.output_vocabulary, "sentencepiece_model_file", None)
    if source:
        with tf.io.gfile.GFile(source, "rb") as original:
            content = original.read()  # whole, since the copy may be the source
        with tf.io.gfile.GFile(os.path.join(model_dir, "vocabulary.model"), "wb") as copy:
            copy.write(content)
