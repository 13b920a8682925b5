"""Write files and folders that appear complete or not at all.

    write_files({"ro.model": model, "ro.vocab": listing})         # refuses to replace a file
    replace_file("runs/report.html", page)
    with staged_folder(Path("runs/ro_hf/checkpoint_1")) as new:   # takes its place at the end
        (new / "model.safetensors").write_bytes(weights)

Until then they are in a hidden folder beside their place, `.checkpoint_1.<random>.part`, which an
error or a signal removes. A process that is killed leaves it, and the next one that writes there
removes it: each process holds the lock of its own.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from absl import logging

from common.errors import Failure, UserError

OVERWRITE_HELP = "replace what --out names"
_SUFFIX, _LOCK, _OLD = ".part", "lock", "old"
_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_CURRENT_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def check_new(paths: Iterable[str], flag: str = "") -> None:
    """Raise UserError, which names all, if files exist that a command is to write for a flag."""
    if existing := [path for path in paths if os.path.lexists(path)]:
        raise _exist(existing).at(flag) if flag else _exist(existing)


def check_empty(folder: Path) -> None:
    """Raise UserError for a folder that holds something, and for a file."""
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(str(folder), why="holds files already", to_set="name an empty folder")


def commit_command(paths: Sequence[str]) -> str:
    """Return the command line that commits and pushes files of the repository."""
    return f"git add {shlex.join(paths)} && git commit -m 'Add {Path(paths[0]).stem}' && git push"


def write_files(contents: Mapping[str, bytes], overwrite: bool = False) -> None:
    """Write all of the files, by path, or none. Their folders are made.

    Raises:
      UserError: one exists, perhaps by now, and `overwrite` is not set.
      Failure: the disk is full, or has an error.
    """
    if not overwrite:
        check_new(contents)
    paths = [Path(path) for path in contents]
    parents = [path.absolute().parent for path in paths]
    with _made(parents), _workplace(Path(os.path.commonpath(parents)), paths[0].name) as work:
        parts = {path: work / str(number) for number, path in enumerate(paths)}
        for part, content in zip(parts.values(), contents.values(), strict=True):
            part.write_bytes(content)
        placed: list[Path] = []
        try:
            for path, part in parts.items():
                if overwrite:
                    part.replace(path)
                else:
                    _link(part, path)
                    placed.append(path)
        except BaseException:
            for path in placed:
                path.unlink()
            raise


def replace_file(path: str, content: bytes) -> None:
    """Write a file that others may read at any moment."""
    write_files({path: content}, overwrite=True)


@contextlib.contextmanager
def staged_folder(folder: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder, which takes the place of `folder` at the end.

    Raises:
      UserError: `folder` holds something, perhaps by then, and `overwrite` is not set.
      Failure: the disk is full, or has an error.
    """
    if not overwrite:
        check_empty(folder)
    with _made([folder.parent]), _workplace(folder.parent, folder.name) as work:
        new = work / folder.name
        new.mkdir(mode=0o755)
        yield new
        if overwrite and folder.exists():
            _exchange(new, folder)
            return
        try:
            new.rename(folder)  # which takes the place of an empty folder
        except OSError:
            check_empty(folder)
            raise


@contextlib.contextmanager
def named_disk(place: str | Path, inside: Path | None = None) -> Iterator[None]:
    """Name the place in the error of a disk that names no file, or one `inside`, as a Failure.

    A write to an open file does not know its name.
    """
    try:
        yield
    except OSError as error:
        named = error.filename and not (inside and str(error.filename).startswith(str(inside)))
        if named or error.errno not in _OF_DISKS:
            raise
        raise Failure(str(place), why=f"cannot be written ({error.strerror})") from error


@contextlib.contextmanager
def _made(folders: Iterable[Path]) -> Iterator[None]:
    """Make folders, and remove at the end those that were made and are empty."""
    absent = {f for folder in folders for f in (folder, *folder.parents) if not f.exists()}
    try:
        for folder in sorted(absent):
            folder.mkdir(exist_ok=True)
        yield
    finally:
        for folder in sorted(absent, reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def _workplace(parent: Path, name: str) -> Iterator[Path]:
    """Yield a hidden folder in `parent` for a file or folder `name`, and remove it at the end."""
    _remove_abandoned(parent, name)
    work = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=_SUFFIX, dir=parent))
    try:
        with named_disk(parent, work), open(work / _LOCK, "w") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
                print("locked", file=lock, flush=True)
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _remove_abandoned(parent: Path, name: str) -> None:
    """Remove what killed processes have left of `name`, after putting back what they replaced."""
    left = [p for p in parent.iterdir() if p.name.startswith(f".{name}.") and p.suffix == _SUFFIX]
    for work in left:
        with contextlib.suppress(OSError), open(work / _LOCK, "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
            if not lock.read():
                continue  # its process is about to lock it
            if (work / _OLD).exists() and not (parent / name).exists():
                (work / _OLD).rename(parent / name)
            logging.warning("Removing %s: the process that wrote it was killed.", work)
            shutil.rmtree(work, ignore_errors=True)


def _link(part: Path, path: Path) -> None:
    """Give a file its name, unless the name is taken."""
    try:
        os.link(part, path)
    except FileExistsError as error:
        raise _exist([str(path)]) from error
    except OSError:  # a file system without links
        check_new([str(path)])
        part.rename(path)


def _exchange(new: Path, folder: Path) -> None:
    """Put `new` in the place of `folder`, at once where the system can do that."""
    libc = ctypes.CDLL(None)
    names = (_CURRENT_FOLDER, os.fsencode(new), _CURRENT_FOLDER, os.fsencode(folder))
    if not hasattr(libc, "renameat2") or libc.renameat2(*names, _EXCHANGE):
        folder.rename(new.parent / _OLD)
        new.rename(folder)


def _exist(paths: list[str]) -> UserError:
    return UserError(
        " and ".join(paths),
        why="exists already" if len(paths) == 1 else "exist already",
        to_set="give another name, or --overwrite",
    )
