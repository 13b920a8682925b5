"""What the libraries say goes to a log file; the terminal keeps what a user can act on.

A door begins with it, before any library is imported:

  if __name__ == "__main__":
      from t5x import quiet

      quiet.begin()
  ...
  quiet.keep_in("runs/tiny", host=0)     # all that was said and will be is in runs/tiny/log_0.txt

Libraries write to file descriptor 2, many of them not by way of Python. From `begin` on that
descriptor leads to a small process of its own, which writes everything into the log and shows only
what ends a run. It outlives this process, so that the last words of one that was killed are there.
`sys.stderr` stays the terminal: progress, our own messages and tracebacks are seen as ever.
"""

import atexit
import contextlib
import logging
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
_COMMAND = b"\0"  # begins what is said to the log's process, not through it
_FATAL = re.compile(
    rb"^F\d{4} |Check failed|Fatal Python error|terminate called|RESOURCE_EXHAUSTED"
)
# Warnings of libraries that a user can do something about.
_ACTIONABLE = re.compile(
    r"falling back to cpu|out of memory|resource_?exhausted|no space left|permission denied"
    r"|quota|rate limit|unauthorized|could not connect|retrying",
    re.IGNORECASE,
)
# asyncio tells of errors that nobody has asked for: of a save that failed, all but the first.
_SAID_ELSEWHERE = ("asyncio",)
_COPY_SECONDS = 60.0
_LEAVING_SECONDS = 10.0


class _State:
    """Of this process; there is one descriptor 2."""

    child: int | None = None
    owner = 0
    copy: "_Copy | None" = None
    spool = ""
    path = ""


def begin() -> None:
    """Sends descriptor 2 to the log's process, and Python's warnings and logs after it."""
    terminal = os.dup(2)
    handle, _State.spool = tempfile.mkstemp(prefix="t5x-", suffix=".log")
    _State.path, _State.owner = _State.spool, os.getpid()
    reading, writing = os.pipe()
    _State.child = os.fork()
    if not _State.child:
        os.close(writing)
        try:
            _write_log(reading, handle, _State.spool, terminal)
        finally:
            os._exit(0)
    os.close(reading), os.close(handle)
    os.dup2(writing, 2)
    os.close(writing)
    sys.stderr = os.fdopen(terminal, "w", buffering=1, errors="backslashreplace")
    sys.excepthook = _say_exception
    atexit.register(_end)
    logging.setLoggerClass(_Heard)
    logging.captureWarnings(True)
    listen()


def listen() -> None:
    """Hears what Python's loggers say, instead of the handlers that libraries have set up."""
    if _State.child is None:
        return
    root = logging.getLogger()
    root.handlers[:] = [_Log(), _Terminal()]
    root.setLevel(logging.INFO)


def keep_in(folder: str, host: int) -> None:
    """Keeps the log as `<folder>/log_<host>.txt`, what was there before it.

    Args:
      folder: local or gs://, to where the log is copied every minute.
      host: index of this process.
    """
    if _State.child is None:
        return
    listen()
    path = f"{folder.rstrip('/')}/log_{host}.txt"
    if "://" in path:
        _State.copy = _Copy(_State.spool, path)
        atexit.register(_State.copy.now)
    else:
        _State.path = os.path.abspath(path)
        _command("log " + _State.path)


def leave(status: int) -> None:
    """Ends the process now, its log kept: no thread and no other host is waited for."""
    try:
        sys.stdout.flush()
        if _State.copy:  # but a bucket that is away must not keep it here
            last = threading.Thread(target=_State.copy.now, daemon=True)
            last.start()
            last.join(_LEAVING_SECONDS)
        _end()
    finally:
        os._exit(status)


def _command(text: str) -> None:
    os.write(2, _COMMAND + text.encode() + b"\n")


def _end() -> None:
    """The log's process ends well; what libraries say from here on is for the log alone."""
    if os.getpid() != _State.owner:
        return
    # Its process removes the first file once it is told; a later one it may not have made yet.
    made = 0 if _State.path == _State.spool else os.O_CREAT
    late = os.open(_State.path, os.O_WRONLY | os.O_APPEND | made, 0o644)
    _command("done")
    os.dup2(late, 2)
    os.waitpid(_State.child, 0)


def _say_exception(kind, error, trace) -> None:
    os.write(2, "".join(traceback.format_exception(kind, error, trace)).encode())
    sys.__excepthook__(kind, error, trace)
    if not issubclass(kind, KeyboardInterrupt) and _State.path != _State.spool:
        print(f"What the libraries said before is in {_State.path}.", file=sys.stderr)


def _write_log(reading: int, handle: int, spool: str, terminal: int) -> None:
    """The log's process: reads until it is told that all is done, or nobody is left to write."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when what it listens to does
    log, path, done = os.fdopen(handle, "wb", buffering=0), spool, False
    for line in os.fdopen(reading, "rb"):
        text, is_command, command = line.partition(_COMMAND)
        with contextlib.suppress(OSError):  # a full disk must not silence who writes here
            log.write(text)
        if _FATAL.search(text):
            os.write(terminal, text)
        if is_command and command == b"done\n":
            done = True
            break
        if is_command:
            path = command.decode().removeprefix("log ").rstrip("\n")
            log.close()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            log = os.fdopen(os.open(path, flags, 0o644), "ab", buffering=0)
            with contextlib.suppress(OSError):
                log.write(pathlib.Path(spool).read_bytes())
    if path != spool or done:
        os.remove(spool)
    if not done:
        said = f"The process ended at once; the last words of its libraries are in {path}.\n"
        os.write(terminal, said.encode())


class _Heard(logging.Logger):
    """A logger whose records always reach the root, where the log and the terminal listen."""

    propagate = property(lambda self: True, lambda self, value: None)

    def addHandler(self, handler: logging.Handler) -> None:
        """Takes no handler that would write to the terminal."""
        if getattr(handler, "stream", None) not in (sys.stderr, sys.stdout, sys.__stderr__):
            super().addHandler(handler)


class _Log(logging.Handler):
    """Every record, with its time and logger, into the log."""

    def __init__(self):
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Writes it; nothing stops because the log cannot be written."""
        with contextlib.suppress(OSError):
            os.write(2, self.format(record).encode(errors="backslashreplace") + b"\n")


class _Terminal(logging.Handler):
    """Our own warnings, and of the libraries' what a user can act on, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes it, or not."""
        if record.levelno < logging.WARNING or record.name in _SAID_ELSEWHERE:
            return
        path, text = pathlib.Path(record.pathname), record.getMessage()
        ours = path.is_relative_to(ROOT) and "site-packages" not in path.parts
        if ours or record.levelno >= logging.ERROR or _ACTIONABLE.search(text):
            lines = text.strip().splitlines() or [""]
            more = "" if ours or len(lines) == 1 else " …"
            shown = text.strip() if ours else lines[0]
            print(f"{record.levelname.capitalize()}: {shown}{more}", file=sys.stderr)


class _Copy:
    """Appends what is new in a local file to one in a bucket, every minute."""

    def __init__(self, source: str, path: str):
        self._source, self._path, self._place = source, path, 0
        self._lock = threading.Lock()
        self._again()

    def _again(self) -> None:
        self._timer = threading.Timer(_COPY_SECONDS, lambda: (self.now(), self._again()))
        self._timer.daemon = True
        self._timer.start()

    def now(self) -> None:
        """Copies what is new; a bucket that refuses it stops no run."""
        import tensorflow as tf

        with self._lock, open(self._source, "rb") as file:
            file.seek(self._place)
            new = file.read()
            try:
                if new:
                    with tf.io.gfile.GFile(self._path, "ab") as log:
                        log.write(new)
                    self._place += len(new)
            except (tf.errors.OpError, OSError) as error:
                logging.getLogger(__name__).info("The log was not copied: %s", error)
