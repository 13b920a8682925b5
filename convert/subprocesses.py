"""Work in a process of its own, so that the memory of several libraries never stands side by side.

    logits = run_apart(True, verify.trainer_logits, paths, sizes, "float32")

Importing jax takes 70 MB and importing transformers 250, and freed memory of large tensors may stay
with a process. The new process imports what the function's module imports, and nothing else.
"""

import ctypes
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, BinaryIO

_PROGRAM = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from convert import subprocesses
with open(int(sys.argv[1]), "wb") as answer:
    subprocesses.answer(sys.stdin.buffer, answer)
"""


def give_back_freed_memory() -> None:
    """Has the C library return what is free, and large blocks as they are freed (glibc)."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD
        library.malloc_trim(0)


def answer(question: BinaryIO, place: BinaryIO) -> None:
    """Calls the function that was asked for, and writes what it gives, or why it does not."""
    give_back_freed_memory()
    function, args = pickle.load(question)
    try:
        result = (function(*args), None)
    except (ValueError, OSError) as error:
        result = (None, error)
    pickle.dump(result, place, protocol=5)


def run_apart(apart: bool, function: Callable, *args) -> Any:
    """What a function of a module gives; if `apart`, computed in a process of its own.

    Raises:
      ValueError, OSError: as the function does.
      ChildProcessError: the process has ended without an answer; it has said why, unless it was
        killed.
    """
    if not apart:
        return function(*args)
    question = pickle.dumps(sys.path) + pickle.dumps((function, args))
    with tempfile.TemporaryFile() as place:
        command = [sys.executable, "-c", _PROGRAM, str(place.fileno())]
        ended = subprocess.run(command, input=question, pass_fds=[place.fileno()], check=False)
        if ended.returncode:
            raise ChildProcessError(
                f"the process of {function.__module__}.{function.__name__} ended with status "
                f"{ended.returncode}; -9 is what a system gives that has no memory left"
            )
        place.seek(0)
        result, error = pickle.load(place)
    if error:
        raise error
    return result
