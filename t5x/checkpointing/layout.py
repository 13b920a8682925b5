"""A run's folder of checkpoints: which steps are there and whole, which remains to clear away.

  all_steps("runs/tiny")                # [1000, 2000]
  latest_checkpoint("runs/tiny")        # "runs/tiny/checkpoint_2000"
  kind("runs/tiny/checkpoint_2000")     # "orbax"; "legacy" is T5X's own msgpack and zarr

A checkpoint is whole when it stands under its final name and its writer left its last mark: on a
disk a save ends with a rename, in a bucket, which has no rename, with `commit_success.txt`.
Works on local paths and gs://; needs no jax.
"""

import json
import os
import re
import zlib

from absl import logging
from etils import epath

from t5x.checkpointing.lazy_array import DamagedCheckpoint

_STEP = re.compile(r"checkpoint_(\d+)")
_TEMPORARY = ".orbax-checkpoint-tmp"
_COMMIT = "commit_success.txt"
_METADATA = "_CHECKPOINT_METADATA"
_CHECKSUMS = "checksums.json"
# Any one of them makes `state/` an Orbax tree; `checkpoint` is what T5X wrote in 2023.
_ORBAX_FILES = ("_METADATA", "manifest.ocdbt", "checkpoint")


def step_folder(run_folder: str, step: int) -> str:
    """Where the checkpoint of `step` stands, whether it is there or not."""
    return os.path.join(run_folder, f"checkpoint_{step}")


def step_of(folder: str) -> int | None:
    """The step in a checkpoint's name, None where the name has none."""
    match = _STEP.fullmatch(os.path.basename(os.fspath(folder).rstrip("/")))
    return int(match[1]) if match else None


def kind(folder: str) -> str | None:
    """Whether a folder holds a checkpoint: "orbax", "legacy", or None for no whole one."""
    path = epath.Path(folder)
    if _TEMPORARY in path.name or re.search(r"\.tmp-\d+$", path.name):
        return None
    if (path / "checkpoint").is_file():
        return "legacy"
    if not any((path / "state" / name).exists() for name in _ORBAX_FILES):
        return None
    if (path / _COMMIT).exists():
        return "orbax"
    committed = _commit_time(path)
    # Older ones note no time; on a disk the name alone says that all is there.
    whole = committed != "never" and (committed or not os.fspath(folder).startswith("gs://"))
    return "orbax" if whole else None


def all_steps(run_folder: str) -> list[int]:
    """The steps of the whole checkpoints of a run, both kinds, ascending."""
    folders = {step_of(name): name for name in _names(run_folder)}
    return sorted(s for s in folders if s is not None and kind(step_folder(run_folder, s)))


def latest_step(run_folder: str) -> int | None:
    """The step of the newest whole checkpoint, None where there is none."""
    steps = (step_of(name) for name in _names(run_folder))
    for step in sorted((s for s in steps if s is not None), reverse=True):
        if kind(step_folder(run_folder, step)):
            return step
    return None


def latest_checkpoint(run_folder: str) -> str | None:
    """The folder of the newest whole checkpoint, None where there is none."""
    step = latest_step(run_folder)
    return None if step is None else step_folder(run_folder, step)


def why_no_checkpoint(path: str) -> str:
    """Why `kind(path)` is None, in a sentence for whoever named the path."""
    folder = epath.Path(path)
    if epath.Path(f"{path}.index").exists():
        return f"{path} is a TensorFlow checkpoint, which is not read here; convert it with T5X."
    if not folder.exists():
        return f"There is no checkpoint {path}: the path does not exist."
    if steps := all_steps(path):
        return (
            f"{path} is not a checkpoint but a folder of {len(steps)}; name one, such as "
            f"{step_folder(path, steps[-1])}, or set RestoreCheckpointConfig.mode = 'latest'."
        )
    if (folder / _METADATA).exists() or (folder / "state").exists():
        return f"{path} is a checkpoint whose save was cut short; restore an earlier one."
    return f"{path} holds no checkpoint: neither a file `checkpoint` nor a folder `state`."


def dataset_folder(folder: str) -> str | None:
    """The folder with the saved place in the data, None for a checkpoint without one."""
    path = epath.Path(folder) / "dataset"
    has_one = path.is_dir() and any(p.name != _COMMIT for p in path.iterdir())
    return os.fspath(path) if has_one else None


def notes(folder: str) -> dict:
    """What the writer of a checkpoint noted about it, empty where it noted nothing.

    Raises:
      DamagedCheckpoint: the notes are cut off.
    """
    path = epath.Path(folder) / _METADATA
    try:
        return json.loads(path.read_text()).get("custom_metadata") or {}
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DamagedCheckpoint(
            f"{path} is cut off or damaged ({error}); restore another checkpoint."
        ) from error


def note_checksums(folder: epath.Path) -> None:
    """Notes the CRC-32 of every file of a folder in a file of its own."""
    if folder.is_dir():
        sums = {file.name: zlib.crc32(file.read_bytes()) for file in folder.iterdir()}
        (folder / _CHECKSUMS).write_text(json.dumps(sums))


def check_checksums(folder: str) -> None:
    """Compares files to what `note_checksums` noted, if it did.

    Raises:
      DamagedCheckpoint: one is missing or another than was written.
    """
    path = epath.Path(folder)
    if not (path / _CHECKSUMS).exists():
        return
    try:
        name = _CHECKSUMS
        for name, checksum in json.loads((path / _CHECKSUMS).read_text()).items():
            if zlib.crc32((path / name).read_bytes()) != checksum:
                raise ValueError("it is not what was saved")
    except (ValueError, FileNotFoundError) as error:  # any other may pass
        raise DamagedCheckpoint(
            f"{path / name} is missing or damaged ({error}); restore another checkpoint."
        ) from error


def remove(folder: str) -> None:
    """Deletes a checkpoint, or a part of one, never leaving half of it under a whole one's name."""
    path = epath.Path(folder)
    if os.fspath(folder).startswith("gs://"):
        if (path / _METADATA).exists():
            (path / _METADATA).write_text(json.dumps({"commit_timestamp_nsecs": None}))
        for mark in (_COMMIT, "checkpoint"):
            (path / mark).unlink(missing_ok=True)
    elif _TEMPORARY not in path.name:
        path = path.rename(path.parent / f"{path.name}{_TEMPORARY}-removed")
    path.rmtree()


def remove_leftovers(run_folder: str) -> list[str]:
    """Deletes what saves and deletions that were cut short have left; returns the names.

    Only what this writer left is touched: a name that says temporary, or a checkpoint that says
    of itself that it was never finished.
    """
    left = []
    for name in _names(run_folder):
        path = epath.Path(run_folder) / name
        unfinished = step_of(name) is not None and (
            not (path / _COMMIT).exists() and _commit_time(path) == "never"
        )
        if unfinished or (name.startswith("checkpoint_") and _TEMPORARY in name):
            logging.warning("Removing %s: its save or its removal was cut short.", path)
            remove(os.fspath(path))
            left.append(name)
    return left


def _names(run_folder: str) -> list[str]:
    path = epath.Path(run_folder)
    return sorted(p.name for p in path.iterdir()) if path.is_dir() else []


def _commit_time(path: epath.Path) -> int | str | None:
    """When the checkpoint says it was finished: a time, "never", or None where it says nothing."""
    try:
        return json.loads((path / _METADATA).read_text()).get("commit_timestamp_nsecs") or "never"
    except FileNotFoundError:
        return None
    except ValueError:  # cut off while it was written, or damaged
        return "never"
