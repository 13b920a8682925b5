"""Access to files and services that may be remote: allowed, reachable, and with a timeout."""

import concurrent.futures
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlparse

from common.storage_wait import in_thread
from common.tables import NotChecked

T = TypeVar("T")
_HOSTS = {"gs": "storage.googleapis.com"}
_CONNECT_S = 5.0


def is_remote(path: str) -> bool:
    """Return whether `path` is not a path of this machine."""
    return "://" in path


def require_reachable(path: str, offline: bool) -> None:
    """Raise NotChecked if `path` is remote and cannot, or with `offline` must not, be accessed."""
    if not is_remote(path):
        return
    if offline:
        raise NotChecked(f"{path} is remote, and --offline is set")
    address = urlparse(path)
    host = _HOSTS.get(address.scheme, address.hostname or "")
    try:
        socket.create_connection((host, 443), _CONNECT_S).close()
    except OSError as error:
        raise NotChecked(f"{path}: {host} cannot be reached from here ({error})") from error


def require_file(path: str, offline: bool, how: str) -> None:
    """Raise ValueError for a missing local file, NotChecked for one that cannot be reached.

    With `offline` a missing one is NotChecked too: the machine that trains may have it. `how` says
    how to get it.
    """
    require_reachable(path, offline)
    if not is_remote(path) and not Path(path).is_file():
        if offline:
            raise NotChecked(f"there is no file {path} here; {how} before training")
        raise ValueError(f"there is no file {path}; {how}.")


def answer_within(seconds: float, function: Callable[[], T], what: str) -> T:
    """Return `function()`, or raise NotChecked if it takes longer or the network is unreachable."""
    answer = in_thread(function, what)
    concurrent.futures.wait([answer], seconds)
    if not answer.done():
        raise NotChecked(f"{what} has not answered within {seconds:.0f} s")
    try:
        return answer.result()
    except ValueError as error:  # in which the run is not at fault
        if "cannot be reached" in str(error) or "_OFFLINE" in str(error):
            raise NotChecked(str(error)) from error
        raise
