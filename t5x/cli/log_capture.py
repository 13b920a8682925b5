"""Send the output of libraries to a log file; keep the terminal for what a user can act on.

if __name__ == "__main__":  # in an entry point, before any library is imported
    from t5x.cli import log_capture

    log_capture.start()
...
log_capture.write_to("runs/tiny", host=0)     # all output, earlier and later: runs/tiny/log_0.txt
"""

import atexit
import collections
import contextlib
import faulthandler
import logging
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from types import TracebackType

from command_line import guard
from command_line.quiet import TerminalHandler

# How it works. TensorFlow, XLA and libtpu write to file descriptor 2 from C++, which replacing
# sys.stderr does not catch.
# 1. `start` keeps a duplicate of the descriptor as sys.stderr, the terminal, and points
#    descriptor 2 to a temporary file. The kernel writes there, so a kill loses nothing.
# 2. `write_to` points it to MODEL_DIR/log_<host>.txt and appends the temporary file. For a bucket
#    the temporary file stays the log, and a thread uploads its new part every minute.
# 3. Python's loggers write to descriptor 2, and through a filter to the terminal.
# 4. A failed C++ check aborts the process, its reason only in the log. So a forked child waits on
#    a pipe for the end of this process; without an orderly end it prints the log's fatal lines.

_FATAL = re.compile(
    rb"^F\d{4} |Check failed|Fatal Python error|terminate called|RESOURCE_EXHAUSTED"
)
INTERRUPTED = guard.INTERRUPTED
_UPLOAD_SECONDS = 60.0
_LAST_UPLOAD_SECONDS = 10.0


class _State:
    """Of this process, which has one descriptor 2."""

    process: int | None = None  # the one that called `start`, not a fork of it
    is_kept = False  # at the end, although no folder has been named
    pipe = -1
    temporary = log = ""
    upload: "_Upload | None" = None


def start() -> None:
    """Point descriptor 2 to a temporary log, and Python's warnings and loggers after it."""
    handle, _State.temporary = tempfile.mkstemp(prefix="t5x-", suffix=".log")
    _State.log, _State.process = _State.temporary, os.getpid()
    reading, _State.pipe = os.pipe()
    if not os.fork():
        os.close(_State.pipe)
        try:
            _report_crash(reading)
        finally:
            os._exit(0)
    os.close(reading)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    os.dup2(handle, 2)
    os.close(handle)
    sys.excepthook = _show_exception
    atexit.register(_end)
    logging.setLoggerClass(_PropagatingLogger)
    logging.captureWarnings(True)
    redirect_loggers()
    guard.write_log = keep
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop_at_once)


def end_of_imports() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from here on.

    While libraries are imported it ends the process: some lose the exception.
    """
    if signal.getsignal(signal.SIGINT) is _stop_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop_at_once(*_) -> None:
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), b"Stopped before anything began.\n")
    exit_now(INTERRUPTED)


def is_started() -> bool:
    """Return whether this process has called `start`."""
    return _State.process == os.getpid()


def redirect_loggers() -> None:
    """Replace the root logger's handlers, also those that libraries have added."""
    if _State.process is None:
        return
    root = logging.getLogger()
    faulthandler.enable(file=2)  # absl's writes the stacks of a crash to the terminal
    root.handlers[:] = [_LogHandler(), TerminalHandler()]
    root.setLevel(logging.INFO)


def write_to(folder: str, host: int) -> None:
    """Make the folder, and move the log to `log_<host>.txt` in it, after an earlier start's.

    `host` is the index of this process. In a bucket the log is uploaded every minute.
    """
    if "://" not in folder:
        with contextlib.suppress(OSError):  # what writes there next says so
            os.makedirs(folder, exist_ok=True)
    if _State.process is None:
        return
    redirect_loggers()
    path = f"{folder.rstrip('/')}/log_{host}.txt"
    if "://" in path:
        _State.upload = _Upload(_State.log, path)
        atexit.register(_State.upload.now)
        return
    with contextlib.suppress(OSError):  # a full disk stops no run
        with open(path, "ab") as log:
            earlier = log.tell()
            os.dup2(log.fileno(), 2)
            _State.log = os.path.abspath(path)
            os.write(_State.pipe, f"{earlier} {_State.log}\n".encode())
            log.write(pathlib.Path(_State.temporary).read_bytes())
        os.remove(_State.temporary)


def keep(text: str) -> str:
    """Write a traceback to the log, which is then kept, and return the log's path."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))
    _State.is_kept = True
    return _State.log


def exit_now(status: int) -> None:
    """End the process, its log complete, without waiting for threads or other hosts."""
    try:
        sys.stdout.flush()
        if _State.upload:  # in a thread: a bucket that does not answer must not keep us here
            last = threading.Thread(target=_State.upload.now, daemon=True)
            last.start()
            last.join(_LAST_UPLOAD_SECONDS)
        _end()
    finally:
        os._exit(status)


def _end() -> None:
    if os.getpid() != _State.process:
        return
    os.write(_State.pipe, b"orderly end\n")
    if not _State.is_kept or _State.log != _State.temporary:
        pathlib.Path(_State.temporary).unlink(missing_ok=True)


def _report_crash(pipe: int) -> None:
    """Wait, in the child, for the end of the process; if it crashed, print the fatal lines."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with os.fdopen(pipe) as messages:
        *_, last = [f"0 {_State.temporary}", *messages.read().splitlines()]
    if last == "orderly end":
        return
    earlier, _, path = last.partition(" ")
    with open(path, "rb") as log:
        log.seek(int(earlier))
        fatal = collections.deque(filter(_FATAL.search, log), maxlen=20)
    message = f"The process crashed or was killed; the output of its libraries is in {path}.\n"
    os.write(2, b"".join(fatal) + message.encode())


def _show_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    with contextlib.suppress(OSError):
        os.write(2, "".join(traceback.format_exception(kind, error, trace)).encode())
    sys.__excepthook__(kind, error, trace)
    if not issubclass(kind, KeyboardInterrupt) and _State.log != _State.temporary:
        print(f"The output of the libraries is in {_State.log}.", file=sys.stderr)


class _PropagatingLogger(logging.Logger):
    """A logger whose records always reach the root, whatever its library sets up.

    Some libraries (transformers, wandb) set `propagate = False` and add a handler that writes to
    sys.stderr, which is the terminal.
    """

    propagate = property(lambda self: True, lambda self, value: None)

    def addHandler(self, handler: logging.Handler) -> None:
        """Ignore a handler that would write to the terminal."""
        if getattr(handler, "stream", None) not in (sys.stderr, sys.stdout, sys.__stderr__):
            super().addHandler(handler)


class _LogHandler(logging.Handler):
    """Writes every record, with its time and logger, to the log."""

    def __init__(self):
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write it; a log that cannot be written stops nothing."""
        with contextlib.suppress(OSError):
            os.write(2, self.format(record).encode(errors="backslashreplace") + b"\n")


class _Upload:
    """Appends the new part of a local file to one in a bucket, every minute."""

    def __init__(self, source: str, path: str):
        self._source, self._path, self._position = source, path, 0
        self._lock = threading.Lock()
        threading.Thread(target=self._repeat, daemon=True).start()

    def _repeat(self) -> None:
        while True:
            time.sleep(_UPLOAD_SECONDS)
            self.now()

    def now(self) -> None:
        """Upload the new part; a bucket that refuses stops no run."""
        import tensorflow as tf

        with self._lock, open(self._source, "rb") as file:
            file.seek(self._position)
            new = file.read()
            try:
                if new:
                    with tf.io.gfile.GFile(self._path, "ab") as log:
                        log.write(new)
                    self._position += len(new)
            except (tf.errors.OpError, OSError) as error:
                logging.getLogger(__name__).info("The log was not uploaded: %s", error)
