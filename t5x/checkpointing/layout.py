"""Find the checkpoints in MODEL_DIR: which are complete, and what interrupted saves have left.

  all_steps("runs/tiny")                # [1000, 2000]
  latest_checkpoint("runs/tiny")        # "runs/tiny/checkpoint_2000"
  kind("runs/tiny/checkpoint_2000")     # "orbax"; "legacy" is T5X's own msgpack and zarr

A checkpoint is complete when it has its final name and its writer has committed it: on disk a save
ends with a rename, in a bucket, which has none, with `commit_success.txt`. Works on local paths,
gs://; needs no jax.
"""

import json
import os
import re
import zlib

from absl import logging
from etils import epath

from common.errors import UserError
from common.small_files import read_json
from t5x.checkpointing.lazy_array import RESTORE_ANOTHER, DamagedCheckpoint, parsing

_STEP = re.compile(r"checkpoint_(0|[1-9][0-9]*)")  # 013 is no step, or two names were one
_TEMPORARY = ".orbax-checkpoint-tmp"
_COMMIT = "commit_success.txt"
_METADATA = "_CHECKPOINT_METADATA"
_CHECKSUMS = "checksums.json"
HAS_POSITION = "data_position"  # key of our metadata: True where `dataset/` was saved
SAVE = "save"  # key of our metadata and of the checksums of `dataset/`: which save wrote both
# Any one of them makes `state/` an Orbax tree; `checkpoint` is what T5X wrote in 2023.
_ORBAX_FILES = ("_METADATA", "manifest.ocdbt", "checkpoint")


def step_folder(run_folder: str, step: int) -> str:
    """Return the folder of the checkpoint of `step`, which need not exist."""
    return os.path.join(run_folder, f"checkpoint_{step}")


def step_of(folder: str) -> int | None:
    """Return the step in a checkpoint's name, None if the name has none."""
    match = _STEP.fullmatch(os.path.basename(os.fspath(folder).rstrip("/")))
    return int(match[1]) if match else None


def kind(folder: str) -> str | None:
    """Return "orbax" or "legacy" for a complete checkpoint, None for anything else."""
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
    # Older ones have no commit time; on disk the name alone means that they are complete.
    complete = committed != "never" and (committed or "://" not in os.fspath(folder))
    return "orbax" if complete else None


def saved_at(folder: str) -> int:
    """Return when a checkpoint was written, in seconds since 1970; 0 if unknown."""
    marks = ("checkpoint", _COMMIT, _METADATA, "state/_METADATA")
    paths = [epath.Path(folder) / name for name in marks]
    return max((int(path.stat().mtime or 0) for path in paths if path.exists()), default=0)


def all_steps(run_folder: str) -> list[int]:
    """Return the steps of the complete checkpoints of a run, of both kinds, ascending."""
    steps = _steps(run_folder)
    return [step for step in steps if kind(step_folder(run_folder, step))]


def damaged_steps(run_folder: str) -> list[int]:
    """Return the steps of checkpoints that were complete and have lost what shows it, ascending.

    These folders have a checkpoint's name and some content, but are neither complete nor left by an
    interrupted save or deletion. Raise UserError for a file with such a name: it would be in the
    way of a save.
    """
    for name in _names(run_folder):
        path = os.path.join(run_folder, name)
        if step_of(name) is not None and "://" not in path and not os.path.isdir(path):
            raise UserError(
                path,
                why="has the name of a checkpoint, but is no folder, nor a link to one",
                to_set="move it away",
            )
    damaged = []
    for step in _steps(run_folder):
        path = epath.Path(step_folder(run_folder, step))
        if not kind(os.fspath(path)) and not _is_unfinished(path) and any(path.iterdir()):
            damaged.append(step)
    return damaged


def latest_step(run_folder: str) -> int | None:
    """Return the step of the newest complete checkpoint, None if there is none."""
    steps = reversed(_steps(run_folder))
    return next((step for step in steps if kind(step_folder(run_folder, step))), None)


def latest_checkpoint(run_folder: str) -> str | None:
    """Return the folder of the newest complete checkpoint, None if there is none."""
    step = latest_step(run_folder)
    return None if step is None else step_folder(run_folder, step)


def no_checkpoint(path: str) -> UserError:
    """Return the error that says why `kind(path)` is None."""
    folder = epath.Path(path)
    if epath.Path(f"{path}.index").exists():
        why = "is a TensorFlow checkpoint, which is not supported"
        return UserError(path, why=why, to_set="convert it with T5X")
    if not folder.exists():
        return UserError(path, why="does not exist", to_set="name a checkpoint that does")
    if steps := all_steps(path):
        return UserError(
            path,
            why=f"is not a checkpoint but a folder of {len(steps)}",
            to_set=f"name one, such as {step_folder(path, steps[-1])}, or set "
            "RestoreCheckpointConfig.mode = 'latest'",
        )
    earlier = "restore an earlier one"
    lost_index = not any((folder / "state" / name).exists() for name in _ORBAX_FILES)
    if lost_index and not _is_unfinished(folder) and any(folder.iterdir()):
        return UserError(path, why="is damaged (its `state` has no index)", to_set=earlier)
    if (folder / _METADATA).exists() or (folder / "state").exists():
        why = "is a checkpoint whose save was interrupted"
        return UserError(path, why=why, to_set=earlier)
    why = "holds no checkpoint: neither a file `checkpoint` nor a folder `state`"
    return UserError(path, why=why, to_set="name another folder")


def dataset_folder(folder: str) -> str | None:
    """Return the folder with the saved data position, None for a checkpoint without one."""
    path = epath.Path(folder) / "dataset"
    has_one = path.is_dir() and any(p.name != _COMMIT for p in path.iterdir())
    return os.fspath(path) if has_one else None


def check_position(run_folder: str, step: int, is_new: bool = False) -> None:
    """Compare a checkpoint's data position to its checksums; see `check_checksums`.

    Raise DamagedCheckpoint for a file that is missing or has changed, and for a missing position,
    if the checkpoint `is_new` or an earlier one still has one (positions are deleted oldest first).
    """
    folder = step_folder(run_folder, step)
    if position := dataset_folder(folder):
        check_checksums(position)
    elif custom_metadata(folder).get(HAS_POSITION):
        earlier = [s for s in all_steps(run_folder) if s < step]
        if is_new or any(dataset_folder(step_folder(run_folder, s)) for s in earlier):
            raise DamagedCheckpoint(
                f"{folder}/dataset",
                why="is missing, though a data position was saved",
                to_set=RESTORE_ANOTHER,
            )


def custom_metadata(folder: str) -> dict:
    """Return the metadata that the writer of a checkpoint added, empty for none.

    Raise DamagedCheckpoint for what is cut off, or of another form.
    """
    path = epath.Path(folder) / _METADATA
    if not path.exists():
        return {}
    with parsing(path):
        return dict(read_json(path).get("custom_metadata") or {})


def write_checksums(folder: epath.Path, save: str | None = None) -> None:
    """Write the CRC-32 of every file of `dataset/`, and which save wrote it, to a file in it."""
    if folder.is_dir():
        sums = {file.name: zlib.crc32(file.read_bytes()) for file in folder.iterdir()}
        (folder / _CHECKSUMS).write_text(json.dumps(sums | ({SAVE: save} if save else {})))


def check_checksums(folder: str) -> None:
    """Raise DamagedCheckpoint if a file that `write_checksums` saw is missing or has changed.

    The same if the checkpoint's metadata is of another save.
    """
    path = epath.Path(folder)
    metadata = custom_metadata(os.fspath(path.parent))
    if not (path / _CHECKSUMS).exists() and HAS_POSITION not in metadata:
        return  # a checkpoint of upstream T5X
    with parsing(path / _CHECKSUMS):
        sums = read_json(path / _CHECKSUMS)
        save = sums.pop(SAVE, None)
        if metadata and metadata.get(SAVE) != save:
            raise DamagedCheckpoint(
                folder,
                why=f"is the data position of save {save}, and the rest of the checkpoint is of "
                f"save {metadata.get(SAVE)}",
                to_set=RESTORE_ANOTHER,
            )
    for name, checksum in sums.items():
        with parsing(path / name):
            if zlib.crc32((path / name).read_bytes()) != checksum:
                raise ValueError("it is not what was saved")


def remove(folder: str) -> None:
    """Delete a checkpoint, or a part of one, after undoing its commit; see `checkpoints`."""
    path = epath.Path(folder)
    if os.path.islink(folder):  # a link to another disk
        os.unlink(folder)
        return
    if "://" in os.fspath(folder):
        if (path / _METADATA).exists():
            (path / _METADATA).write_text(json.dumps({"commit_timestamp_nsecs": None}))
        for mark in (_COMMIT, "checkpoint"):
            (path / mark).unlink(missing_ok=True)
    elif _TEMPORARY not in path.name:
        path = path.rename(path.parent / f"{path.name}{_TEMPORARY}-removed")
    path.rmtree()


def remove_leftovers(run_folder: str) -> list[str]:
    """Delete what interrupted saves and deletions have left; return the names.

    Only remains of this writer are touched: temporary names, and checkpoints whose metadata has no
    commit time.
    """
    left = []
    for name in _names(run_folder):
        path = epath.Path(run_folder) / name
        unfinished = step_of(name) is not None and _is_unfinished(path)
        if unfinished or (name.startswith("checkpoint_") and _TEMPORARY in name):
            logging.warning("Removing %s: its save or its removal was interrupted.", path)
            remove(os.fspath(path))
            left.append(name)
    return left


def _steps(run_folder: str) -> list[int]:
    steps = (step_of(name) for name in _names(run_folder))
    is_folder = lambda step: "://" in run_folder or os.path.isdir(step_folder(run_folder, step))
    return sorted(step for step in steps if step is not None and is_folder(step))


def _names(run_folder: str) -> list[str]:
    path = epath.Path(run_folder)
    return sorted(p.name for p in path.iterdir()) if path.is_dir() else []


def _is_unfinished(path: epath.Path) -> bool:
    """Return whether a folder is what an interrupted save or deletion leaves."""
    return not (path / _COMMIT).exists() and _commit_time(path) == "never"


def _commit_time(path: epath.Path) -> int | str | None:
    """Return the commit time in the metadata, "never" for none yet, None if it is unknown."""
    try:
        with parsing(path / _METADATA):
            return read_json(path / _METADATA).get("commit_timestamp_nsecs") or "never"
    except DamagedCheckpoint:  # on a disk it was complete before the folder got its name
        return None
