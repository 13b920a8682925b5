"""Keep the terminal of a command for what a user can act on.

if __name__ == "__main__":  # before any library is imported
    from command_line import quiet

    quiet.start()

Commands that train or decode have more, `t5x.cli.log_capture`: a log in MODEL_DIR.
"""

import atexit
import contextlib
import faulthandler
import logging
import math
import os
import pathlib
import re
import signal
import sys
import tempfile
from types import FrameType, TracebackType

from command_line import guard

# Warnings of libraries that a user can do something about.
_ACTIONABLE = re.compile(
    r"falling back to cpu|out of memory|resource_?exhausted|no space left|permission denied"
    r"|quota|rate limit|unauthorized|could not connect|thrown while requesting|retrying",
    re.IGNORECASE,
)
_ORBAX = "/site-packages/orbax/"  # it has no logger of its own
_REPEATED_S = 600.0
_kept: list[str] = []  # logs with a traceback


def start() -> None:
    """Send the output of libraries and of child processes to a temporary log.

    It is deleted at the end, unless the command ends with an error that no check foresaw.
    """
    handle, log = tempfile.mkstemp(prefix="t5x-", suffix=".log")
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    os.dup2(handle, 2)  # TensorFlow and XLA write there from C++
    os.close(handle)
    faulthandler.enable(sys.stderr)
    atexit.register(_end, log, os.getpid())
    _end_imports_at_once(log)

    def keep(text: str) -> str:
        with contextlib.suppress(OSError):
            os.write(2, text.encode(errors="backslashreplace"))
        _kept.append(log)
        return log

    guard.write_log = keep
    sys.excepthook = _explain
    logging.captureWarnings(True)
    logging.getLogger().addHandler(TerminalHandler())  # libraries add theirs only where none is
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # we report what it retries


def _end_imports_at_once(log: str) -> None:
    """Let Ctrl-C end the process while a library is imported, instead of raising an exception.

    Some libraries lose a KeyboardInterrupt there, and numpy and TensorFlow crash.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        at = frame
        while at is not None and not at.f_code.co_filename.startswith("<frozen importlib"):
            at = at.f_back
        if at is None:
            signal.default_int_handler(number, frame)
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), f"{guard.STOPPED}\n".encode())
        _end(log, os.getpid())
        os._exit(guard.INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print one sentence for Ctrl-C, and for a package that is not there when it is imported."""
    if issubclass(kind, KeyboardInterrupt):
        print(guard.STOPPED, file=sys.stderr)
        return
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        sys.__excepthook__(kind, error, trace)
        return
    print(
        f"Error: {error.name.partition('.')[0]} is not installed for {sys.executable}: "
        "bash launch/setup.sh installs it in .venv; run source .venv/bin/activate then.",
        file=sys.stderr,
    )


def _end(log: str, process: int) -> None:
    if os.getpid() == process and log not in _kept:
        pathlib.Path(log).unlink(missing_ok=True)


class TerminalHandler(logging.Handler):
    """Prints our own warnings, and those of libraries that a user can act on, one line each.

    A library's warning that differs from an earlier one in numbers alone, such as the next of its
    retries, is not printed again for _REPEATED_S.
    """

    def __init__(self):
        super().__init__()
        self._printed: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Print it, or not."""
        # Both report every error of a failed save, in each thread; the save itself reports it once.
        of_save = record.name == "asyncio" or _ORBAX in record.pathname
        if record.levelno < logging.WARNING or of_save:
            return
        path, text = pathlib.Path(record.pathname), record.getMessage().strip()
        ours = path.is_relative_to(guard.ROOT) and "site-packages" not in path.parts
        if not ours and record.levelno < logging.ERROR:
            same = re.sub(r"\d+", "", text)
            since = record.created - self._printed.get(same, -math.inf)
            if since < _REPEATED_S or not _ACTIONABLE.search(text):
                return
            self._printed[same] = record.created
        first, _, rest = text.partition("\n")
        shown = text if ours or not rest else f"{first} …"
        print(f"{record.levelname.capitalize()}: {shown}", file=sys.stderr)
