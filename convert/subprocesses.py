"""Calls in a process of their own, so that the memory of several libraries never adds up.

Importing jax takes 70 MB, importing transformers 250, and a process may keep freed memory of large
tensors. `multiprocessing` would import the main module in the child, and with it what the
child must not load; here it imports only what the function's module imports.
"""

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, BinaryIO

from command_line.malloc import return_freed_memory

_PROGRAM = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from convert import subprocesses
with open(int(sys.argv[1]), "wb") as result:
    subprocesses.answer(sys.stdin.buffer, result)
"""


def answer(call: BinaryIO, result: BinaryIO) -> None:
    """Run the pickled call in the child, and write its value or its error."""
    return_freed_memory()
    function, args = pickle.load(call)
    outcome: tuple[Any, Exception | None]
    try:
        outcome = (function(*args), None)
    except (ValueError, OSError) as error:
        outcome = (None, error)
    pickle.dump(outcome, result, protocol=5)


def call_isolated(isolate: bool, function: Callable, *args) -> Any:
    """Return `function(*args)`; with `isolate`, computed in a separate process.

    Raise ValueError and OSError as the function does, and ChildProcessError if the process ended
    without a result, after printing why unless it was killed.
    """
    if not isolate:
        return function(*args)
    return_freed_memory()
    call = pickle.dumps(sys.path) + pickle.dumps((function, args))
    with tempfile.TemporaryFile() as file:
        command = [sys.executable, "-c", _PROGRAM, str(file.fileno())]
        done = subprocess.run(command, input=call, pass_fds=[file.fileno()], check=False)
        if done.returncode:
            raise ChildProcessError(
                f"the process of {function.__module__}.{function.__name__} ended with status "
                f"{done.returncode}; -9 usually means that the system ran out of memory"
            )
        file.seek(0)
        value, error = pickle.load(file)
    if error:
        raise error
    return value
