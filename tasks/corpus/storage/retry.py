"""Retries of network operations, with exponential backoff.

    data = retry(lambda: fs.cat_file(path), "reading " + path, RetryPolicy(limit_s=3600))

Time-outs, resets, unknown hosts, truncated bodies and the statuses 408, 425, 429 and 5xx (but not
501 and 505, "not supported") are transient. Every other error (missing, forbidden, malformed,
offline by choice) is raised immediately, and so is a UserError whatever has caused it, since a
user must correct it. Pauses double from `first_s` to `longest_s`. A server's Retry-After is obeyed,
and so are RateLimit (draft-ietf-httpapi-ratelimit-headers) and RateLimit-Reset. Every pause has
jitter, so that many hosts do not return together.
"""

import dataclasses
import email.utils
import http.client
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from absl import logging

import gin
from common.errors import class_and_line
from common.secrets import public

T = TypeVar("T")
_SINCE_1970 = 1e9  # seconds; fewer are a duration

# Set when the process ends, so that pending retries stop immediately.
shutting_down = threading.Event()

_TRANSIENT = (
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    ssl.SSLError,
    http.client.HTTPException,
)
# Clients that raise their own classes for a lost connection. Recognized by module name, so that
# none of them has to be imported here.
_PERMANENT = (FileNotFoundError, PermissionError, http.client.InvalidURL)
_CLIENTS = ("aiohttp", "gcsfs", "httpx", "httpx2", "httpcore", "requests", "urllib3")


@gin.configurable(module="tasks.corpus.retry")
@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Retry for `limit_s` seconds in total, with pauses from `first_s` to `longest_s`."""

    limit_s: float = 4 * 3600.0
    first_s: float = 1.0
    longest_s: float = 120.0


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    is_value = isinstance(error, ValueError) and not isinstance(error, ConnectionError)
    if is_value or isinstance(error, _PERMANENT):
        return False
    status = _status(error)
    if status in (400, 401, 403) and getattr(getattr(error, "response", None), "history", None):
        return True  # an expired address of a redirect
    if status is not None:
        return status in (408, 425, 429) or (status >= 500 and status not in (501, 505))
    chain = [error, *causes(error)]
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in chain):
        return False
    # So huggingface_hub says that HF_HUB_OFFLINE is set, and calls it a ConnectionError.
    if any(type(cause).__name__ == "OfflineModeIsEnabled" for cause in chain):
        return False
    if any(t.__module__ == "botocore.exceptions" for t in type(error).__mro__):
        lost = {t.__name__ for t in type(error).__mro__} & {"ConnectionError", "HTTPClientError"}
        return bool(lost)  # but not an absent key, or a name that is wrong
    if isinstance(error, _TRANSIENT) or type(error).__module__.split(".")[0] in _CLIENTS:
        return True
    return len(chain) > 1 and is_transient(chain[1])


def causes(error: BaseException) -> list[BaseException]:
    """Return the errors that have caused `error`, the nearest first."""
    chain: list[BaseException] = []
    while True:
        cause = getattr(error, "reason", None)  # set by urllib
        if not isinstance(cause, BaseException):
            cause = error.__cause__ or error.__context__
        if cause is None or any(cause is earlier for earlier in chain):
            return chain
        chain.append(cause)
        error = cause


def _status(error: BaseException) -> int | None:
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(holder, dict):  # botocore's response
                value = holder.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if isinstance(value, int):
                return value
    return None


def _asked_for(error: BaseException) -> float:
    """Return the seconds to wait that the server requests, by any of its headers; else 0."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    headers = headers or getattr(error, "headers", None) or {}
    if not hasattr(headers, "get"):
        return 0.0
    if value := headers.get("Retry-After"):
        return _seconds(value)
    # Of several limits those that are used up: '"a";r=0;t=20, "b";r=5;t=1', or as drafts before
    # had it, 'limit=100, remaining=0, reset=20'.
    policy = str(headers.get("RateLimit") or "")
    waits = re.findall(r"[;,\s](?:r|remaining)=0\s*[;,]\s*(?:t|reset)=(\d+)", f" {policy}")
    reset = headers.get("RateLimit-Reset") or headers.get("X-RateLimit-Reset") or 0
    return max(map(_seconds, [*waits, reset]))


def _seconds(value: Any) -> float:
    """Return a header's seconds, or those until a date or a time since 1970; 0 if it has none."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(str(value)).timestamp()
        except (TypeError, ValueError):
            return 0.0
    return max(seconds - time.time(), 0.0) if seconds > _SINCE_1970 else seconds


def retry(
    fn: Callable[[], T],
    operation: str,
    policy: RetryPolicy,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = shutting_down.wait,
) -> T:
    """Call `fn` until it succeeds, fails permanently, or `policy.limit_s` seconds have passed.

    Args:
      fn: restarts its work from the beginning at every call.
      operation: its name in the log.
      policy: how long to retry.
      clock: returns the time in seconds.
      pause: waits a number of seconds.

    Raises:
      Exception: the last error of `fn`.
    """
    start, delay = clock(), policy.first_s
    while True:
        try:
            return fn()
        except Exception as error:
            requested = _asked_for(error)
            backoff = delay * random.uniform(0.5, 1.0)
            wait = max(
                backoff,
                requested + random.uniform(0.0, max(delay, requested / 4)) if requested else 0.0,
            )
            expired = clock() + wait - start > policy.limit_s
            if expired or shutting_down.is_set() or not is_transient(error):
                raise
            reason = public(class_and_line(error))[:200]
            logging.warning("%s failed (%s); retrying in %.1f s", operation, reason, wait)
        pause(wait)
        delay = min(2 * delay, policy.longest_s)
