"""Send the output of libraries to a log, and keep the terminal for what a user can act on.

if __name__ == "__main__":  # before any library is imported
    from common import log

    log.start()
...
log.write_to("runs/tiny", host=0)     # all output, earlier and later: runs/tiny/log_0.txt

TensorFlow, XLA and libtpu write to file descriptor 2 from C++, so the descriptor itself becomes the
log; the kernel writes there, and a kill loses nothing. sys.stderr stays the terminal.
"""

import atexit
import contextlib
import faulthandler
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
from types import FrameType

from common import errors
from common.secrets import public

# Warnings of libraries that a user can do something about.
_ACTIONABLE = re.compile(
    r"falling back to cpu|out of memory|resource_?exhausted|no space left|permission denied"
    r"|quota|rate limit|unauthorized|could not connect",
    re.IGNORECASE,
)
# A failed C++ check aborts the process and leaves its reason only in the log. So a shell waits for
# the end of the process and prints the reason, unless `_end` has killed the shell before. The shell
# reads where the log begins, and its path.
_WATCH = r"""
trap '' INT TERM HUP
while read -r start path; do first=$start log=$path; done
fatal='^F[0-9]{4} |Check failed|Fatal Python error|terminate called|RESOURCE_EXHAUSTED'
tail -c "+$first" "$log" | grep -aE "$fatal" | tail -n 20
echo "The process crashed or was killed; the output of its libraries is in $log."
"""
_ENDS = (signal.SIGTERM, signal.SIGHUP)
_UPLOAD_SECONDS, _LAST_UPLOAD_SECONDS = 60.0, 10.0


class _State:
    """The log of this process, which has one descriptor 2."""

    process: int | None = None  # the one that called `start`, not a fork of it
    path = ""
    is_temporary = True
    watcher: subprocess.Popen
    uploader: threading.Thread | None = None
    ended = threading.Event()


def start() -> None:
    """Make descriptor 2 a temporary log, which is deleted at the end of a command.

    The log is kept if `write_to` moves it, or if the command ends with the traceback of a bug.
    """
    handle, _State.path = tempfile.mkstemp(prefix="t5x-", suffix=".log")
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    os.dup2(handle, 2)
    os.close(handle)
    _State.watcher = subprocess.Popen(
        ["sh", "-c", _WATCH], stdin=subprocess.PIPE, stdout=sys.stderr, bufsize=0
    )
    _State.process = os.getpid()
    _tell_watcher(1)
    atexit.register(_end)
    sys.excepthook = lambda _kind, error, _trace: errors.report(error)  # an import raised it
    errors.write_log = _keep
    logging.captureWarnings(True)
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # we report what it retries
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its logger has its own handler
    redirect_loggers()
    for number in (signal.SIGINT, *_ENDS):
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, _interrupt)


def is_started() -> bool:
    """Return whether this process has called `start`."""
    return _State.process == os.getpid()


def redirect_loggers() -> None:
    """Send the root logger and fatal errors to the log, again once absl has added its handler."""
    if is_started():
        faulthandler.enable(file=2)
        logging.root.handlers[:] = [_Handler()]
        logging.root.setLevel(logging.INFO)


def write_to(folder: str, host: int) -> None:
    """Make the folder, and append the log to `log_<host>.txt` in it.

    `host` is the index of this process. A log in a bucket is uploaded every minute.
    """
    path = f"{folder.rstrip('/')}/log_{host}.txt"
    if "://" in folder:
        if is_started():
            _State.uploader = threading.Thread(target=_upload, args=(path,), daemon=True)
            _State.uploader.start()
        return
    with contextlib.suppress(OSError):  # a full disk stops no run; what writes there next says so
        os.makedirs(folder, exist_ok=True)
        if is_started():
            with open(path, "ab") as log:
                first, temporary = log.tell() + 1, pathlib.Path(_State.path)
                os.dup2(log.fileno(), 2)
                _State.path, _State.is_temporary = os.path.abspath(path), False
                _tell_watcher(first)
                log.write(temporary.read_bytes())
            temporary.unlink()


def exit_now(status: int) -> None:
    """End the process, its log complete, without waiting for threads or other hosts."""
    try:
        sys.stdout.flush()
        _end()
    finally:
        os._exit(status)


def _end() -> None:
    if is_started():
        _State.ended.set()
        if _State.uploader:
            _State.uploader.join(_LAST_UPLOAD_SECONDS)  # the bucket may not respond
        _State.watcher.kill()
        _State.watcher.wait()
        if _State.is_temporary:
            pathlib.Path(_State.path).unlink(missing_ok=True)


def _tell_watcher(first: int) -> None:
    assert _State.watcher.stdin is not None
    _State.watcher.stdin.write(f"{first} {_State.path}\n".encode())


def _keep(text: str) -> str:
    """Write a traceback to the log, which is then kept, and return the log's path."""
    _State.is_temporary = False
    os.write(2, text.encode(errors="backslashreplace"))
    return _State.path


def _upload(path: str) -> None:
    """Append the new part of the log to a file in a bucket, every minute and at the end."""
    import tensorflow as tf

    is_last = False
    with open(_State.path, "rb") as log:
        while not is_last:
            is_last = _State.ended.wait(_UPLOAD_SECONDS)
            position, new = log.tell(), log.read()
            try:
                if new:
                    with tf.io.gfile.GFile(path, "ab") as file:
                        file.write(new)
            except (tf.errors.OpError, OSError) as error:  # a bucket that refuses stops no run
                log.seek(position)
                logging.getLogger(__name__).info("The log was not uploaded: %s", error)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or end the process if it is importing a library.

    So what a command has begun is removed. During an import some libraries lose the exception, and
    numpy and TensorFlow crash.
    """
    if number in _ENDS:
        # The shell and the kernel may both send SIGHUP, and the second would stop the clean-up.
        after = signal.SIG_IGN if is_started() else signal.SIG_DFL
        for end in _ENDS:
            signal.signal(end, after)
        if not is_started():  # a fork, which another process ends in this way
            os.kill(os.getpid(), number)
    stopped = KeyboardInterrupt(signal.Signals(number))
    at = frame
    while at is not None and not at.f_code.co_filename.startswith("<frozen importlib"):
        at = at.f_back
    if at is None:
        raise stopped
    exit_now(errors.report(stopped))


class _Handler(logging.Handler):
    """Writes every record to the log, and once to the terminal what a user can act on."""

    def __init__(self):
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; a log that cannot be written stops nothing."""
        with contextlib.suppress(OSError):
            line = public(self.format(record))
            os.write(2, line.encode(errors="backslashreplace") + b"\n")
        text = public(record.getMessage().strip())
        if not errors.is_own_file(record.pathname):
            text = self._library_message(record, text)
        if text and record.levelno >= logging.WARNING:
            errors.say(f"{record.levelname.capitalize()}: {text}")

    def _library_message(self, record: logging.LogRecord, text: str) -> str:
        """Return the first line of an error or of a new, actionable warning, otherwise ""."""
        # asyncio and Orbax report a failed save once a thread; the save itself reports it once.
        is_of_save = record.name == "asyncio" or "/site-packages/orbax/" in record.pathname
        same = re.sub(r"\d+", "", text)
        is_new = same not in self._shown and _ACTIONABLE.search(text)
        if is_of_save or record.levelno < logging.WARNING:
            return ""
        if record.levelno < logging.ERROR and not is_new:
            return ""
        self._shown.add(same)
        first, more, _ = text.partition("\n")
        return f"{first} …" if more else text
