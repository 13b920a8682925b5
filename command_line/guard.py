"""End every command in one way: one sentence about what went wrong, and a status.

@guard.guarded
def main(argv: list[str]) -> int: ...

| status | means |
|---|---|
| 0 | done |
| 1 | failed: the network, the disk, or an error in the code; a restart may succeed |
| 2 | refused: a flag or setting is wrong, and the same command would be refused again |
| 130 | stopped by Ctrl-C, as a shell reports it |
"""

import contextlib
import dis
import functools
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from command_line import extras

ROOT = Path(__file__).resolve().parent.parent
_EXPECTED = (ValueError, RuntimeError, FloatingPointError)
_RAISES = ("RAISE_VARARGS", "RERAISE")
_LONGEST = 2000  # characters of a sentence
INTERRUPTED, STOPPED = 130, "Stopped by Ctrl-C."
P = ParamSpec("P")
R = TypeVar("R")


def guarded(main: Callable[P, R], takes_interrupts: bool = True) -> Callable[P, R]:
    """Return `main`, whose errors are reported and become a SystemExit.

    So does Ctrl-C, unless the caller says otherwise because it handles it itself.
    """

    @functools.wraps(main)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return main(*args, **kwargs)
        except Exception as error:
            status = report(error)
        except KeyboardInterrupt:
            if not takes_interrupts:
                raise
            status = INTERRUPTED
            with contextlib.suppress(OSError):  # a closed terminal
                print(STOPPED, file=sys.stderr, flush=True)
        sys.exit(status)  # outside of the handler: nothing of the error is kept

    return call


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Turn an OSError into a RuntimeError of one sentence.

    For commands that read and write files which the user names: the system's words say what is
    wrong with one, and a traceback adds nothing.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, ValueError):
            raise
        said, file = error.strerror or " ".join(str(error).split()), error.filename
        raise RuntimeError(f"{file}: {said}" if file else said) from error


def report(error: Exception) -> int:
    """Print one sentence about an error, and return the status.

    A ValueError (refused), RuntimeError or FloatingPointError (failed) that this repository raised
    has its own sentence. Of any other the traceback goes to a log, whose path is printed.
    """
    # gin appends the configurables through which an exception passed.
    text = str(error).split("\n  In call to configurable")[0].strip()
    absent = extras.missing(error.name) if isinstance(error, ModuleNotFoundError) else None
    is_expected = isinstance(error, _EXPECTED) and not isinstance(error, RecursionError)
    if absent or (is_expected and is_ours(error)):
        sentence = absent or text
    else:
        first = text.partition("\n")[0].rstrip(" .") or "no message"
        log = write_log("".join(traceback.format_exception(error)))
        sentence = f"{type(error).__name__}: {first[:_LONGEST]}. The traceback is in {log}."
    with contextlib.suppress(OSError):  # a closed terminal
        print("Error:", sentence, file=sys.stderr, flush=True)
    # An OSError may pass, and a restart succeed.
    refused = isinstance(error, ValueError) and not isinstance(error, OSError) and is_ours(error)
    return 2 if absent or refused else 1


def is_ours(error: BaseException) -> bool:
    """Return whether a `raise` of this repository raised the error.

    The innermost frame of an error from C is the line that called it.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    file = Path(code.co_filename).resolve()
    is_in_repository = file.is_relative_to(ROOT) and "site-packages" not in file.parts
    return is_in_repository and dis.opname[code.co_code[trace.tb_lasti]] in _RAISES


def to_temporary_file(text: str) -> str:
    """Write a traceback to a new file, and return its path."""
    try:
        handle, path = tempfile.mkstemp(prefix="t5x-error-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        return f"no file ({error.strerror})"
    return path


# Replaced by commands that have a log.
write_log: Callable[[str], str] = to_temporary_file
