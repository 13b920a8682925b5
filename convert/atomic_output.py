"""Output folders that appear complete or not at all, each with a record of its conversion."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import small_files
from common.errors import UserError
from common.new_files import staged_folder
from common.tables import data_size

RECORD = "conversion.json"
_ELSEWHERE = "move it away, or name another --out"


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a conversion, or None if the folder holds no complete one."""
    if not (folder / RECORD).exists():
        return None
    with small_files.parsing(folder / RECORD, f"remove {folder} yourself"):
        return small_files.read_json(folder / RECORD)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with sorted keys."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def write_record(folder: Path, facts: dict[str, Any]) -> None:
    """Write the record of a conversion."""
    write_json(folder / RECORD, facts)


def check_replaceable(folder: Path) -> None:
    """Raise UserError if the folder holds files that no conversion wrote."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError(str(folder), why="is not a folder", to_set=_ELSEWHERE)
    if folder.is_dir() and any(folder.iterdir()) and read_record(folder) is None:
        raise foreign_files(str(folder))


def check_full_disk(error: Exception, path: Path) -> None:
    """Raise OSError if the text of a library's error, its only sign, says that the disk is full."""
    text = os.strerror(errno.ENOSPC)
    if text in str(error):
        raise OSError(errno.ENOSPC, text, str(path)) from error


def foreign_files(place: str) -> UserError:
    """Return the error for a folder or an address with files that no conversion wrote."""
    why = f"holds files that no conversion wrote (it has no {RECORD})"
    return UserError(place, why=why, to_set=_ELSEWHERE)


def check_disk_space(folder: Path, needed: int) -> None:
    """Make the folder; raise UserError if its disk has less than `needed` bytes free."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            str(folder),
            why=f"needs {data_size(needed)}, but its disk has {data_size(free)} free",
            to_set="free some space, or name another --out",
        )


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield a new folder, which takes the place of `folder` at the end; see `staged_folder`.

    Raises:
      UserError: `folder` holds files that no conversion wrote.
    """
    check_replaceable(folder)
    with staged_folder(folder, overwrite=True) as new:
        yield new
        check_replaceable(folder)
