"""What one host finds out for all of them, and what all do or none.

files = told_by_first(lambda: list_a_repository())    # asked once, not once a host
parts = together(lambda: read_my_parts())             # raises on all hosts if it does on one
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

T = TypeVar("T")


def together(do: Callable[[], T], *kinds: type[Exception]) -> T:
    """Returns what `do` returns, on every host its own; raises if it has raised on any.

    Args:
      do: called on every host.
      kinds: the exceptions that count, the worse ones last.

    Raises:
      One of `kinds`: the host's own; where it has none, one that names the hosts that have.
    """
    if jax.process_count() == 1:
        return do()
    done, raised = None, None
    try:
        done = do()
    except kinds as error:
        raised = error
    of_kind = [i + 1 for i, kind in enumerate(kinds) if raised and isinstance(raised, kind)]
    failed = multihost_utils.process_allgather(np.int32(min(of_kind, default=0)))
    if raised is not None:
        raise raised
    if failed.any():
        names = ", ".join(str(i) for i in np.flatnonzero(failed))
        raise kinds[failed.max() - 1](
            f"Host {names} of {jax.process_count()} could not go on; its own log says why."
        )
    return done


def told_by_first(find: Callable[[], Any]) -> Any:
    """Returns on every host what `find` returns on the first one, the only one that calls it.

    Args:
      find: returns what JSON can hold.

    Raises:
      ValueError: `find` has raised one; the same sentence on every host.
      RuntimeError: on the other hosts, if `find` has raised something else.
    """
    if jax.process_count() == 1:
        return find()
    told, raised = b"", None
    if jax.process_index() == 0:
        try:
            told = json.dumps({"found": find()}).encode()
        except Exception as error:
            raised = error
            told = json.dumps({type(error).__name__: str(error)}).encode()
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(told))))
    message = np.frombuffer(told.ljust(size), np.uint8)
    answer = json.loads(bytes(np.asarray(multihost_utils.broadcast_one_to_all(message), np.uint8)))
    if "found" in answer:
        return answer["found"]
    ((kind, sentence),) = answer.items()
    raise raised or (ValueError if kind == "ValueError" else RuntimeError)(sentence)
