"""MODEL_DIR: may it be written, where does the run go on, and what is noted about the run."""

import dataclasses
import os
import uuid
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from flax.traverse_util import flatten_dict

from t5x import checkpoint_folders, checkpoints
from t5x.checkpoint_config import RestoreCheckpointConfig, checkpoint_paths
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
    def foreign_step(self) -> int:
        """The step of another run's checkpoint, from which training counts on; else 0."""
        return (checkpoint_folders.step_of(self.path) or 0) if self.config else 0

    @property
    def dataset_folder(self) -> str | None:
        """Where the position of the training stream lies, None to begin the corpus."""
        wanted = self.config.restore_dataset if self.config else self.keeps_place
        return checkpoints.dataset_folder(self.path) if self.path and wanted else None


def check_writable(model_dir: str) -> None:
    """Makes MODEL_DIR.

    Raises:
      ValueError: nothing can be written there.
    """
    probe = os.path.join(model_dir, f".probe-{uuid.uuid4().hex}")
    try:
        tf.io.gfile.makedirs(model_dir)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")
        tf.io.gfile.remove(probe)
    except (tf.errors.OpError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"MODEL_DIR is {model_dir}, which cannot be written ({reason}); set it to a folder "
            "or bucket of yours."
        ) from error


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
    own = checkpoints.latest_checkpoint(model_dir)
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
