"""A converted folder: written beside its place, renamed when whole, known again by its record.

with staged(folder) as temporary:
    ...                                     # write into `temporary`
    write_record(temporary, {"step": 1000})
record(folder)["step"]
"""

import contextlib
import errno
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORD = "conversion.json"


def record(folder: Path) -> dict[str, Any] | None:
    """What was converted into a folder, or None where no whole conversion lies there."""
    try:
        return json.loads((folder / RECORD).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise ValueError(f"{folder / RECORD} is not JSON: remove {folder} yourself.") from error


def write_record(folder: Path, facts: dict[str, Any]) -> None:
    """Writes what was converted."""
    (folder / RECORD).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")


def check_ours(folder: Path) -> None:
    """Refuses to write over what no conversion made.

    Raises:
      ValueError: where the folder holds something else.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ValueError(f"{folder} is not a folder: move it away, or name another --out.")
    if folder.is_dir() and any(folder.iterdir()) and record(folder) is None:
        raise ValueError(
            f"{folder} holds files that no conversion wrote (it has no {RECORD}): move it away, "
            "or name another --out."
        )


def check_room(folder: Path, needed: int) -> None:
    """Refuses to start what cannot end.

    Raises:
      ValueError: where the disk has less than `needed` bytes free.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ValueError(
            f"{folder} needs {needed / 1e9:.2f} GB and its disk has {free / 1e9:.2f} GB free: "
            "make room, or name another --out."
        )


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Gives a temporary sibling of `folder` that takes its place when the block ends well.

    Raises:
      ValueError: where `folder` is not ours, or the disk is full.
    """
    check_ours(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
            folder.rename(old / folder.name)
            temporary.rename(folder)
            shutil.rmtree(old)
        else:
            temporary.rename(folder)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ValueError(
                f"The disk of {folder.parent} is full: nothing was left there."
            ) from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
