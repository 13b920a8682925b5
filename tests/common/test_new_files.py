"""Files and folders appear complete, all or none, and nothing else is left, whatever happens."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from common import new_files
from common.errors import Failure
from common.new_files import named_disk, replace_file, staged_folder, write_files
from fakes.full_disk import full_disk
from fakes.paths import PYTHONPATH
from fakes.refuses import refuses


def tree(folder):
    """Return the contents of all files below a folder, hidden ones too, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def paths(folder, *names):
    return {str(folder / name): name.encode() for name in names}


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(b"old")
    replace_file(str(path), "nou: ț".encode())
    assert tree(tmp_path) == {"page.html": "nou: ț".encode()}
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask():
    os.umask(mask := os.umask(0))
    return mask


def test_files_of_several_folders_are_written_with_their_folders(tmp_path):
    write_files(paths(tmp_path, "a/b.model", "c.rows.json", "a/d/e"))
    assert tree(tmp_path).keys() == {"a", "a/b.model", "a/d", "a/d/e", "c.rows.json"}


@pytest.mark.parametrize("late", [False, True])
def test_files_that_exist_are_named_and_stay_and_no_other_is_written(tmp_path, monkeypatch, late):
    """Also if another process has written one meanwhile."""
    if late:
        monkeypatch.setattr(new_files, "check_new", lambda _: None)
    (tmp_path / "b").write_bytes(b"old")
    with refuses(tmp_path / "b") as refusal:
        write_files(paths(tmp_path, "a", "b", "new/c"))
    assert "--overwrite" in refusal.value.to_set
    assert tree(tmp_path) == {"b": b"old"}
    write_files(paths(tmp_path, "a", "b"), overwrite=True)
    assert tree(tmp_path) == {"a": b"a", "b": b"b"}


def test_of_two_that_write_at_once_one_is_refused(tmp_path):
    barrier, outcomes = threading.Barrier(8), []

    def write(number):
        contents = {str(tmp_path / name): b"%d" % number for name in ("x.model", "x.vocab")}
        barrier.wait()
        try:
            write_files(contents)
            outcomes.append(number)
        except ValueError:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    (winner,) = {*outcomes} - {None}
    assert tree(tmp_path) == dict.fromkeys(("x.model", "x.vocab"), b"%d" % winner)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["write_bytes", "replace"])
def test_a_full_disk_is_named_and_nothing_is_left(tmp_path, monkeypatch, number, call):
    (tmp_path / "a").write_bytes(b"old")

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, call, fail)
    with refuses(tmp_path, kind=Failure):
        write_files(paths(tmp_path, "a", "b"), overwrite=True)
    monkeypatch.undo()
    with refuses(tmp_path, kind=Failure), full_disk(100):
        write_files({str(tmp_path / "a"): bytes(200)}, overwrite=True)
    assert tree(tmp_path) == {"a": b"old"}


def test_the_place_of_an_open_file_is_named(tmp_path):
    with refuses("runs/x", kind=Failure), named_disk("runs/x"), full_disk(100):
        with open(tmp_path / "a", "wb", buffering=0) as file:
            file.write(bytes(100))
            file.write(b"1")
    for error in (
        FileNotFoundError(errno.ENOENT, "no", "a"),
        OSError(errno.ENOSPC, "no", "/tmp/a"),
    ):
        with pytest.raises(OSError, match="no"), named_disk("runs/x"):
            raise error  # which names its file


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    folder = tmp_path / "made" / "run"
    with contextlib.suppress(ZeroDivisionError), staged_folder(folder) as new:
        (new / "half").write_text("half")
        raise ZeroDivisionError
    assert tree(tmp_path) == {}
    with staged_folder(folder) as new:
        (new / "file").write_text("complete")
        assert not folder.exists()
    assert tree(folder) == {"file": b"complete"}
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_folder_that_holds_files_is_refused_at_once(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    for name in ("run", "run/file"):
        with refuses(tmp_path / name), staged_folder(tmp_path / name):
            pytest.fail("it is not empty")
    assert tree(tmp_path) == {"run": None, "run/file": b""}


def test_a_folder_that_appeared_meanwhile_stays(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()  # an empty one is taken
    with refuses(folder), staged_folder(folder) as new:
        (new / "file").write_text("second")
        (folder / "file").write_text("first")
    assert tree(tmp_path) == {"run": None, "run/file": b"first"}


@pytest.mark.parametrize("at_once", [True, False])
def test_a_replaced_folder_is_there_at_every_moment(tmp_path, monkeypatch, at_once):
    """Where the system cannot exchange folders, a process that is killed between leaves the old."""
    folder = tmp_path / "run"
    folder.mkdir()
    rename, seen = Path.rename, []

    def watched(path, target):
        seen.append((folder.exists(), target))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", watched)
    if not at_once:
        monkeypatch.setattr(new_files.ctypes, "CDLL", lambda _: object())
    for text in ("1", "2", "3"):
        with staged_folder(folder, overwrite=True) as new:
            (new / text).write_text(text)
    assert tree(tmp_path) == {"run": None, "run/3": b"3"}
    assert all(there for there, _ in seen) == at_once


KILLED = """
import os, signal, sys
from pathlib import Path
from common import new_files
folder = Path(sys.argv[1])
rename = Path.rename
def killed(path, target):
    rename(path, target)
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "renaming":
    new_files.ctypes.CDLL = lambda _: object()
    Path.rename = killed
with new_files.staged_folder(folder, overwrite=True) as new:
    (new / "weights").write_text("new")
    if sys.argv[2] == "writing":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["writing", "renaming"])
def test_what_a_killed_process_left_is_named_and_removed_by_the_next(tmp_path, moment, caplog):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "weights").write_text("old")
    command = [sys.executable, "-c", KILLED, str(folder), moment]
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    killed = subprocess.run(command, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob(".run.*")
    with contextlib.suppress(ZeroDivisionError), staged_folder(folder, overwrite=True):
        assert not left.exists()
        raise ZeroDivisionError
    assert left.name in caplog.text
    assert tree(tmp_path) == {"run": None, "run/weights": b"old"}


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    with staged_folder(tmp_path / "run") as first:
        with staged_folder(tmp_path / "run") as second:
            assert first.exists()
            (second / "2").write_text("2")
        (first / "1").write_text("1")
        (tmp_path / "run" / "2").unlink()
    assert tree(tmp_path) == {"run": None, "run/1": b"1"}
