"""Lines of JSON that only someone who knows a pod's secret can have written, and only once.

  nonces = new_nonce(), theirs                # one of each side, so that no line can be repeated
  line = sign(secret, "report", nonces, {"worker": 1})
  verify(secret, "report", nonces, line)      # {"worker": 1}, or ValueError

A line is the HMAC-SHA256 in hexadecimal of all that follows, a space, and the JSON.
"""

import hashlib
import hmac
import json
import pathlib
import re
import secrets
from collections.abc import Sequence
from typing import Any

_SHORTEST_SECRET = 32


def read_secret(given: str | None, path: pathlib.Path) -> bytes:
    """Return the secret of the pod: `given`, else the text of the file `path`, else b"".

    Raise ValueError if it is shorter than 32 characters, or other users can read the file.
    """
    source = "T5X_POD_SECRET"
    if not given:
        try:
            given = path.read_text(errors="replace")
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ValueError(
                f"The pod's secret cannot be read from {path} ({error.strerror}); make it your own "
                "file, or set T5X_POD_SECRET."
            ) from error
        source = str(path)
        if path.stat().st_mode & 0o077:
            raise ValueError(
                f"Other users of this machine can read the pod's secret in {path}: chmod 600 {path}"
            )
    secret = given.strip().encode()
    if len(secret) < _SHORTEST_SECRET:
        raise ValueError(
            f"{source} holds {len(secret)} characters, and a pod's secret has at least "
            f"{_SHORTEST_SECRET}; write the output of `openssl rand -hex 32` there on all workers."
        )
    return secret


def new_nonce() -> str:
    """Return 32 random hexadecimal digits."""
    return secrets.token_hex(16)


def is_nonce(value: object) -> bool:
    """Return whether a value can be the nonce of the other side."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32}", value) is not None


def sign(secret: bytes, purpose: str, nonces: Sequence[str], content: object) -> bytes:
    """Return `content`, anything that JSON can hold, as a line of JSON with its HMAC.

    It is accepted for this `purpose` and exchange, of these `nonces`, alone. The secret b"" signs
    as anyone can.
    """
    text = json.dumps(content).encode()
    return _digest(secret, purpose, nonces, text) + b" " + text + b"\n"


def verify(secret: bytes, purpose: str, nonces: Sequence[str], line: bytes) -> Any:
    """Return the content of a line of `sign`.

    Raise PermissionError if it was not signed with this secret for this purpose and exchange,
    ValueError if it was, and is no JSON.
    """
    digest, _, text = line.rstrip(b"\n").partition(b" ")
    if not hmac.compare_digest(digest, _digest(secret, purpose, nonces, text)):
        raise PermissionError("the line is not signed with the pod's secret")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the line is nested too deeply") from error


def _digest(secret: bytes, purpose: str, nonces: Sequence[str], text: bytes) -> bytes:
    message = " ".join([purpose, *nonces]).encode() + b" " + text
    return hmac.new(secret, message, hashlib.sha256).hexdigest().encode()


def printable(text: str, limit: int = 2000) -> str:
    """Return the text for a terminal: nothing but printable characters, at most `limit` of them."""
    shown = text if len(text) <= limit else f"{text[:limit]}…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
