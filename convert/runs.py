"""A run's folder: its checkpoints, its saved gin, its vocabulary; on this disk or at gs://.

run = find("runs/ro_t5x_tiny")        # or one checkpoint of it
run.checkpoints                       # {1000: "/…/runs/ro_t5x_tiny/checkpoint_1000", …}
run.gin()                             # the text of its config.gin, or None
"""

import os
from pathlib import Path
from typing import NamedTuple

from etils import epath

from t5x import checkpoint_folders

GIN_FILES = ("config.gin", "operative_config.gin")
VOCABULARY = "vocabulary.model"


class Run(NamedTuple):
    """`folder` is where the gin lies; `checkpoints` are those asked for, by step."""

    folder: str
    checkpoints: dict[int, str]

    @property
    def name(self) -> str:
        """The last part of the folder's path."""
        return self.folder.rsplit("/", 1)[-1]

    @property
    def local(self) -> Path | None:
        """The folder, if it is on this disk."""
        return None if "://" in self.folder else Path(self.folder)

    def gin(self) -> str | None:
        """The configuration that the run saved, or None."""
        for name in GIN_FILES:
            path = epath.Path(self.folder) / name
            if path.exists():
                return path.read_text()
        return None

    def vocabulary(self) -> str | None:
        """The vocabulary that the trainer copied beside the checkpoints, or None."""
        path = epath.Path(self.folder) / VOCABULARY
        return os.fspath(path) if path.exists() else None


def find(folder: str) -> Run:
    """Looks at a run's folder, or at one `checkpoint_<step>`.

    Raises:
      ValueError: where neither is there.
    """
    path = epath.Path(folder.rstrip("/"))
    if not path.is_dir():
        raise ValueError(f"{folder} is not a folder: give a run's MODEL_DIR or a checkpoint.")
    path = path if "://" in folder else path.resolve()
    step = checkpoint_folders.step_of(os.fspath(path))
    if step is not None:
        return Run(os.fspath(path.parent), {step: os.fspath(path)})
    steps = checkpoint_folders.all_steps(os.fspath(path))
    if not steps:
        raise ValueError(
            f"{folder} holds no whole checkpoint_<step>: give a run's MODEL_DIR or a checkpoint."
        )
    found = {step: checkpoint_folders.step_folder(os.fspath(path), step) for step in steps}
    return Run(os.fspath(path), found)


def newest(runs: Path) -> str:
    """The run under `runs` whose last checkpoint is the youngest.

    Raises:
      ValueError: where no run has a checkpoint.
    """
    found = [
        path
        for path in runs.glob("*/checkpoint_*")
        if not path.parent.name.endswith("_hf") and checkpoint_folders.kind(os.fspath(path))
    ]
    if not found:
        raise ValueError(f"No run under {runs} holds a checkpoint: give a run's folder.")
    return str(max(found, key=lambda path: path.stat().st_mtime).parent)
