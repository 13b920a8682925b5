"""Waiting out a network that fails for a while.

    data = patiently(lambda: fs.cat_file(path), "reading " + path, Patience(limit_s=3600))

Time-outs, resets, unknown hosts, truncated bodies, 408, 429 and 5xx pass; everything else
(missing, forbidden, malformed) is raised at once. Pauses double from `first_s` up to `longest_s`,
each drawn between half and all of it so that many hosts do not return together; a server's
Retry-After is obeyed.
"""

import dataclasses
import datetime
import email.utils
import http.client
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from absl import logging

import gin

T = TypeVar("T")

# Set when the process ends: whoever waits stops waiting.
closing = threading.Event()

_PASSING = (
    ConnectionError,
    TimeoutError,
    EOFError,
    socket.gaierror,
    ssl.SSLError,
    http.client.HTTPException,
)
# Clients that raise classes of their own for a lost connection, none of them imported here.
_CLIENTS = ("aiohttp", "gcsfs", "httpx", "httpx2", "httpcore", "requests", "urllib3")


@gin.configurable
@dataclasses.dataclass(frozen=True)
class Patience:
    """How long to try again: `limit_s` seconds in all, pauses from `first_s` to `longest_s`."""

    limit_s: float = 4 * 3600.0
    first_s: float = 1.0
    longest_s: float = 120.0


def passes(error: BaseException) -> bool:
    """Says whether the same request may succeed later."""
    if isinstance(error, FileNotFoundError | PermissionError):
        return False
    status = _status(error)
    if status is not None:
        return status in (408, 425, 429) or status >= 500
    if isinstance(error, ssl.SSLCertVerificationError):
        return False
    if isinstance(error, _PASSING):
        return True
    if type(error).__module__.split(".")[0] in _CLIENTS and not isinstance(error, ValueError):
        return True
    cause = getattr(error, "reason", None)  # of urllib's
    if not isinstance(cause, BaseException):
        cause = error.__cause__ or error.__context__
    return cause is not None and cause is not error and passes(cause)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    for holder in (response, error):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int):
                return value
    return None


def _retry_after(error: BaseException) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None)
    headers = headers or getattr(error, "headers", None) or {}
    told = headers.get("Retry-After") if hasattr(headers, "get") else None
    try:
        return float(told or 0)
    except (TypeError, ValueError):
        pass
    try:  # a date
        until = email.utils.parsedate_to_datetime(told)
        return max((until - datetime.datetime.now(datetime.UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return 0.0


def patiently(
    fn: Callable[[], T],
    what: str,
    patience: Patience,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = closing.wait,
) -> T:
    """Calls `fn` until it succeeds, fails for good, or `patience.limit_s` seconds are over.

    Args:
      fn: does the work from its beginning each time it is called.
      what: names the work in the log.
      patience: how long to try.
      clock: the time in seconds.
      pause: waits some seconds.

    Raises:
      what `fn` raised last.
    """
    start, delay = clock(), patience.first_s
    while True:
        try:
            return fn()
        except Exception as error:
            wait = max(delay * random.uniform(0.5, 1.0), _retry_after(error))
            over = clock() + wait - start > patience.limit_s
            if over or closing.is_set() or not passes(error):
                raise
            logging.warning("%s failed (%s); again in %.1f s", what, _short(error), wait)
        pause(wait)
        delay = min(2 * delay, patience.longest_s)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
