"""Ask one host for all of them.

    files = broadcast_from_first(lambda: list_a_repository())    # called on host 0 only
    parts = raise_together(read_my_parts, DamagedCheckpoint)     # raises on all hosts if on one
    [{"read": 12}, {"read": 9}] = gather({"read": 12})           # one value of each host

An error on one host is raised on all of them.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.experimental import multihost_utils

from common.errors import CommandError, Failure, UserError

T = TypeVar("T")


def raise_together(do: Callable[[], T], *kinds: type[Exception]) -> T:
    """Call `do` on every host and return each host's own result, unless it raised on any.

    Then raise, on all, the host's own exception, else one that names the hosts that raised. `kinds`
    are the exceptions that are shared, the more severe ones last.
    """
    if jax.process_count() == 1:
        return do()
    result, raised = None, None
    try:
        result = do()
    except kinds as error:
        raised = error
    # 0 for success, else 1 + the index in `kinds`.
    mine = next((i + 1 for i, kind in enumerate(kinds) if isinstance(raised, kind)), 0)
    codes = multihost_utils.process_allgather(np.int32(mine))
    if raised is not None:
        raise raised
    if codes.any():
        kind = kinds[codes.max() - 1]
        kind = {ValueError: UserError, RuntimeError: Failure}.get(kind, kind)
        raise _remote_error(kind, np.flatnonzero(codes).tolist())
    return cast(T, result)


def _remote_error(kind: type[Exception], hosts: Sequence[int]) -> Exception:
    """Return the error of other hosts than this one."""
    *others, last = map(str, hosts)
    names = f"Hosts {', '.join(others)} and {last}" if others else f"Host {last}"
    fields = {"why": f"{names} of {jax.process_count()} failed", "to_set": "read their own logs"}
    return kind(**fields) if issubclass(kind, CommandError) else kind(CommandError(**fields))


def broadcast_from_first(find: Callable[[], T]) -> T:
    """Call `find` on the first host only, and return its result, which JSON can hold, on all.

    If it raises a UserError, the other hosts raise one with the same fields; if it raises anything
    else, they raise a Failure.
    """
    if jax.process_count() == 1:
        return find()
    message, raised = b"", None
    if jax.process_index() == 0:
        try:
            message = json.dumps({"found": find()}).encode()
        except Exception as error:
            raised = error
            kind = "refused" if isinstance(error, ValueError) else "failed"
            fields = error.as_fields if isinstance(error, CommandError) else {"why": str(error)}
            message = json.dumps({kind: fields}).encode()
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(message))))
    padded = np.frombuffer(message.ljust(size), np.uint8)
    answer = json.loads(bytes(np.asarray(multihost_utils.broadcast_one_to_all(padded), np.uint8)))
    if "found" in answer:
        return answer["found"]
    ((kind, fields),) = answer.items()
    raise raised or (UserError if kind == "refused" else Failure)(**fields)


def gather(mine: Any) -> list[Any]:
    """Return the value of each host, by its index; all hosts must call this, with JSON values."""
    text = json.dumps(mine).encode()
    size = int(multihost_utils.process_allgather(np.int32(len(text))).max())
    padded = np.frombuffer(text.ljust(size), np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(padded), np.uint8)
    return [json.loads(bytes(row)) for row in rows]
