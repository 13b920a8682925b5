"""What lies elsewhere: may it be asked for, does it answer, and not for ever.

require("gs://bucket/run", offline=False)       # NotChecked where the bucket cannot be reached
texts = within(60, lambda: source.peek("train", 100), "the corpus")
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlparse

from preflight.results import NotChecked

T = TypeVar("T")
_HOSTS = {"gs": "storage.googleapis.com"}
_CONNECT_S = 5.0


def is_remote(path: str) -> bool:
    """True for what is no path of this machine."""
    return "://" in path


def require(path: str, offline: bool) -> None:
    """Raises NotChecked if `path` lies elsewhere and cannot, or must not, be asked for."""
    if not is_remote(path):
        return
    if offline:
        raise NotChecked(f"{path} lies elsewhere, and --offline is set")
    address = urlparse(path)
    host = _HOSTS.get(address.scheme, address.hostname or "")
    try:
        socket.create_connection((host, 443), _CONNECT_S).close()
    except OSError as error:
        raise NotChecked(f"{path}: {host} cannot be reached from here ({error})") from error


def require_file(path: str, offline: bool, how: str) -> None:
    """`require`, and a file of this machine must be there.

    With `offline` this machine need not be the one that trains, so what is missing here may be
    there.

    Raises:
      ValueError: there is no such file; `how` to get one.
    """
    require(path, offline)
    if not is_remote(path) and not Path(path).is_file():
        if offline:
            raise NotChecked(f"there is no file {path} here; {how} before training")
        raise ValueError(f"there is no file {path}; {how}.")


@contextlib.contextmanager
def answers() -> Iterator[None]:
    """A network that does not answer is no fault of the run: NotChecked instead of ValueError."""
    try:
        yield
    except ValueError as error:
        if "cannot be reached" in str(error) or "_OFFLINE" in str(error):
            raise NotChecked(str(error)) from error
        raise


def within(seconds: float, function: Callable[[], T], what: str) -> T:
    """`function()`, or NotChecked when it has not answered after `seconds`."""
    answer: list = []

    def call():
        try:
            answer.append((function(), None))
        except BaseException as error:
            answer.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if not answer:
        raise NotChecked(f"{what} has not answered within {seconds:.0f} s")
    value, error = answer[0]
    if error is not None:
        raise error
    return value
