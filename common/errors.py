"""End every command in one way: one sentence about what went wrong, and a status.

@errors.guarded
def main(argv: list[str]) -> int: ...

| status | means |
|---|---|
| 0 | done |
| 1 | failed: the network, the disk, or an error in the code; a restart may succeed |
| 2 | refused: a flag or setting is wrong, and the same command would be refused again |
| 130 | stopped by Ctrl-C, as a shell reports it |
"""

import contextlib
import functools
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from common import extras

ROOT = Path(__file__).resolve().parent.parent
_EXPECTED = (ValueError, RuntimeError, FloatingPointError)
_LONGEST = 2000  # characters of a sentence
INTERRUPTED, STOPPED = 130, "Stopped by Ctrl-C."
P = ParamSpec("P")
R = TypeVar("R")


def guarded(main: Callable[P, R], stopped: str = STOPPED) -> Callable[P, R]:
    """Return `main`, whose errors are reported and become a SystemExit.

    So does Ctrl-C, of which `stopped` is the sentence.
    """

    @functools.wraps(main)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return main(*args, **kwargs)
        except Exception as error:
            status = report(error)
        except KeyboardInterrupt:
            status = INTERRUPTED
            say(stopped)
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


def say(sentence: str) -> None:
    """Print a line on the terminal, which may be closed."""
    with contextlib.suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


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
        say(f"Error: {absent or text}")
        # An OSError may pass, and a restart succeed.
        refused = isinstance(error, ValueError) and not isinstance(error, OSError)
        return 2 if absent or refused else 1
    first = text.partition("\n")[0].rstrip(" .") or "no message"
    try:
        log = write_log("".join(traceback.format_exception(error)))
    except OSError as full:
        log = f"no file ({full.strerror})"
    say(f"Error: {type(error).__name__}: {first[:_LONGEST]}. The traceback is in {log}.")
    return 1


def is_ours(error: BaseException) -> bool:
    """Return whether a `raise` of this repository raised the error.

    The innermost frame of an error from C is the line that called it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    line = frames[-1].line if frames and is_own_file(frames[-1].filename) else None
    return (line or "").startswith("raise")


def is_own_file(path: str) -> bool:
    """Return whether a source file is one of this repository."""
    file = Path(path).resolve()
    return file.is_relative_to(ROOT) and "site-packages" not in file.parts


def _to_temporary_file(text: str) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="t5x-error-", suffix=".log", delete=False, errors="backslashreplace"
    ) as file:
        file.write(text)
    return file.name


# Writes a traceback and returns the path; `log` replaces it by its log.
write_log: Callable[[str], str] = _to_temporary_file
