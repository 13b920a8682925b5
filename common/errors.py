"""End every command in one way: one sentence about what went wrong, and a status.

    raise UserError("BATCH_SIZE", 3, "but 2 devices share a batch", "set it to a multiple of 2")
    # Error: BATCH_SIZE is 3, but 2 devices share a batch; set it to a multiple of 2.

    @errors.guarded
    def main(argv: list[str]) -> int: ...

| status | means |
|---|---|
| 0 | done |
| 1 | failed: the network, the disk, the numbers, or a bug; a restart may succeed |
| 2 | refused: a flag or setting is wrong, and the same command would be refused again |
| 75 | preempted, and saved; with --interrupted_status=75 |
| 130 | stopped by Ctrl-C, as a shell reports it; 143 by SIGTERM, 129 by SIGHUP |
"""

import contextlib
import difflib
import functools
import os
import re
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from common.printable import printable
from common.secrets import public

ROOT = Path(__file__).resolve().parent.parent
STOPPED = "Stopped by Ctrl-C."
REFUSED = 2
_LONGEST = 2000  # characters of a sentence
# The extra of pyproject.toml that has a package; it is also a flag of launch/setup.sh.
_EXTRAS = {"apache_beam": "cache", "libtpu": "tpu", "s3fs": "s3"}
P = ParamSpec("P")
R = TypeVar("R")


class CommandError(Exception):
    """An error that ends a command, as one sentence made of fields.

        UserError("TRAIN_STEPS", 0, "but must be positive", "set it to 1 or more")
        UserError("a.jsonl", why="holds no record", to_set="leave it out")
        UserError(why="two devices share a batch of 3", to_set="set BATCH_SIZE to 4").at("task ro")

        str(error)      # task ro: two devices share a batch of 3; set BATCH_SIZE to 4.
        error.fault     # task ro: two devices share a batch of 3
        error.to_set    # set BATCH_SIZE to 4

    Args:
      setting: the setting, flag or file at fault, as the user writes it.
      value: its value; a text is shown in quotes.
      why: what is wrong; it continues the message after setting and value.
      to_set: what to do about it, as an imperative.
    """

    def __init__(self, setting: str = "", value: object = ..., why: str = "", to_set: str = ""):
        super().__init__(setting, value, why, to_set)  # a copy is made with these arguments
        self.setting, self.value, self.why, self.to_set = setting, value, why, to_set
        self.where = ""

    def at(self, where: str) -> Self:
        """Name the task, file or line of the fault before the message, and return the error."""
        self.where = f"{where}: {self.where}"
        return self

    @property
    def fault(self) -> str:
        """The sentence without what to do."""
        subject = self.setting
        if self.value is not ...:
            shown = repr(self.value) if isinstance(self.value, str) else str(self.value)
            subject += f" is {shown}" + (", " if self.why else "")
        elif subject and self.why and self.why[0] not in ",:;'":
            subject += " "
        return f"{self.where}{subject}{self.why}".rstrip(".")

    @property
    def as_fields(self) -> dict[str, str]:
        """The error as text fields, to raise it again in another process."""
        return {"why": self.fault, "to_set": self.to_set}

    def __str__(self):
        return "; ".join(filter(None, (self.fault, self.to_set))).rstrip(".") + "."


class UserError(CommandError, ValueError):
    """The user can fix it: value, limit, reason and what to set."""


class Failure(CommandError, RuntimeError):
    """What the command needs has failed; the same command may succeed later."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return " (the nearest known name is 'x')" for a sentence, or "" if none is similar."""
    matches = difflib.get_close_matches(name, sorted(set(names)), n=1, cutoff=0.5)
    return f" (the nearest known name is {matches[0]!r})" if matches else ""


def text_of(error: BaseException) -> str:
    """Return an error's text without the configurables through which gin says that it passed."""
    return str(error).split("\n  In call to configurable")[0].strip()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def class_and_line(error: BaseException) -> str:
    """Return an error's class and the first line of its text."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def hub_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the hub's client; those of its HTTP library are not OSErrors."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    return (*HfHubHTTPError.__bases__, OSError, HFValidationError)


def without_hub(name: str, error: BaseException) -> str:
    """Return what to set in place of a model of a hub that did not respond, else ""."""
    if getattr(error, "response", None) is not None or isinstance(error, ValueError):
        return ""
    fetch = f"hf download {name} --local-dir FOLDER"
    return f"without network name a folder, made where there is one by {fetch}"


def guarded(main: Callable[P, R], stopped: str = STOPPED) -> Callable[P, R]:
    """Return `main` so that its errors are reported and become a SystemExit.

    Ctrl-C becomes one too; the terminal then shows the message `stopped`, in which another signal
    takes the place of Ctrl-C.
    """

    @functools.wraps(main)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            try:
                result = main(*args, **kwargs)
            except SystemExit:  # --help raises it, for one; the reader of its output may be gone
                sys.stdout.flush()
                raise
            sys.stdout.flush()
            return result
        except (Exception, KeyboardInterrupt) as error:
            status = report(error, stopped)
        sys.exit(status)  # outside the handler, so that nothing refers to the error any more

    return call


def say(sentence: str) -> None:
    """Print a line on the terminal, if it is still open; it may quote text of unknown origin."""
    with contextlib.suppress(OSError):
        print(printable(sentence), file=sys.stderr, flush=True)


def report(error: BaseException, stopped: str = STOPPED) -> int:
    """Print one sentence about an error, and return the status.

    An error that neither the user nor the environment caused is a bug. Its traceback goes to a log,
    and the message names the log's path.
    """
    if drop_unread() and isinstance(error, BrokenPipeError):
        return 1
    if isinstance(error, KeyboardInterrupt):
        number = error.args[0] if error.args else signal.SIGINT
        say(stopped if number == signal.SIGINT else stopped.replace("Ctrl-C", number.name))
        return 128 + number
    text = text_of(error)
    status, sentence = _explained(error, text)
    if not sentence:
        first = text.partition("\n")[0].rstrip(" .") or "no message"
        try:
            log = write_log(public("".join(traceback.format_exception(error))))
        except OSError as full:
            log = f"no file ({full.strerror})"
        sentence = f"{type(error).__name__}: {_shortened(first)}. The traceback is in {log}."
    say(f"Error: {_shortened(public(sentence))}")
    return status


def drop_unread() -> bool:
    """Redirect stdout or stderr to nowhere if its reader has gone; return whether one has."""
    dropped = False
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it is no file, or closed
            poll = select.poll()
            poll.register(stream.fileno(), 0)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                dropped = True
    return dropped


def _shortened(sentence: str) -> str:
    """Cut the middle out of a sentence that quotes too much, such as a file of one line."""
    half = _LONGEST // 2
    is_long = len(sentence) > _LONGEST
    return f"{sentence[:half]} … {sentence[-half:]}" if is_long else sentence


def _explained(error: BaseException, text: str) -> tuple[int, str]:
    """Return the status and the message of an error, "" for a bug."""
    package = re.match(r"No module named '(\w+)", text)
    if isinstance(error, ModuleNotFoundError) and package and not (ROOT / package[1]).exists():
        return REFUSED, missing(package[1])
    if isinstance(error, UserError | Failure | FloatingPointError):
        may_pass = not isinstance(error, ValueError) or isinstance(error, OSError)
        return (1 if may_pass else REFUSED), text
    reason = re.match(r"\[Errno \d+\] (.+)", text)  # a full disk, a file that may not be read
    return 1, reason[1] + "." if isinstance(error, OSError) and reason else ""


def missing(package: str) -> str:
    """Return the message for a package that is not installed."""
    if package in _EXTRAS:
        extra = _EXTRAS[package]
        return (
            f"{package} is not installed: bash launch/setup.sh --{extra} installs it in .venv, "
            f"pip install -e '.[{extra}]' in an environment of your own."
        )
    return (
        f"{package} is not installed for {sys.executable}: bash launch/setup.sh installs it in "
        ".venv; run source .venv/bin/activate then."
    )


def require(*packages: str) -> None:
    """Raise UserError for the first of these packages that is not installed."""
    for package in packages:
        if find_spec(package) is None:
            raise UserError(missing(package))


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


# Writes a traceback and returns the path; `log` replaces it by the command's log.
write_log: Callable[[str], str] = _to_temporary_file
