"""The parser of every command, types of its flags, and checks of output paths.

    parser = arguments.parser("python -m report", __doc__)  # has --help and --version
    add = parser.add_argument
    add("--epochs", type=arguments.integer(1), default=1)
    add("--character_coverage", type=arguments.number(above=0, most=1))
    arguments.check_output_file("--json", flags.json)

A wrong flag or path is refused before any work begins.
"""

import argparse
import difflib
import inspect
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import NoReturn

from common.errors import ROOT, UserError
from common.secrets import public


def version() -> str:
    """Return the name, the version and, in a clone, the commit: 't5x-recipes 0.3.0 (4485ca1)'."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = f"{project['name']} {project['version']}"
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return text
    return f"{text} ({commit.stdout.strip()})"


class _Version(argparse.Action):
    """Print the version and exit; it is looked up only here."""

    def __call__(self, parser, *_):
        print(version())
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """The parser of every command; see `parser`."""

    is_without_words = False  # then a mistake also shows the description

    def parse_known_args(self, args=None, namespace=None):
        words = sys.argv[1:] if args is None else args
        words = spelled(words, self._option_string_actions)
        self.is_without_words = not words
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        about, _, name = message.partition("unrecognized arguments: ")
        if name and not about:
            flag = name.split()[0].split("=")[0]
            near = difflib.get_close_matches(flag, self._option_string_actions, 1)
            message = f"{flag} is not a flag{f'; did you mean {near[0]}?' if near else ''}"
        about = f"{self.description}\n\n" if self.is_without_words else ""
        message = public(" ".join(message.split()))
        self.exit(2, f"{about}Error: {message} (--help lists all flags)\n")


def spelled(words: Sequence[str], flags: Container[str]) -> list[str]:
    """Return the words of a command line as their parser takes them.

    --a-b and --a-b=c are --a_b if that is a flag, and a path is `local`: the shell leaves the `~`
    of --out=~/x.
    """

    def spell(word: str) -> str:
        name, equals, value = word.partition("=")
        flag = "--" + name[2:].replace("-", "_")
        return flag + equals + local(value) if name[:2] == "--" and flag in flags else local(word)

    return [spell(word) for word in words]


def parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with --help and --version, without abbreviated flags.

    `description` is the command's docstring, which a command without words shows: paragraphs filled
    to the terminal's width, indented examples as they are. --push-to-hub is --push_to_hub. A
    mistake ends the command with status 2 and one sentence.
    """
    width = shutil.get_terminal_size().columns - 2
    about = "\n\n".join(
        part if part.startswith(" ") else textwrap.fill(part, width)
        for part in inspect.cleandoc(description or "").split("\n\n")
    )
    raw = argparse.RawDescriptionHelpFormatter
    command = _Parser(prog, description=about, allow_abbrev=False, formatter_class=raw)
    unset = argparse.SUPPRESS  # keeps --version out of the parsed flags
    about = "print the version and exit"
    command.add_argument(
        "--version", action=_Version, nargs=0, dest=unset, default=unset, help=about
    )
    return command


def integer(least: int) -> Callable[[str], int]:
    """Return the argparse type of integers of at least `least`."""

    def parsed(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}, the least value")
        return value

    parsed.__name__ = "integer"  # argparse names it in its message
    return parsed


def number(above: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    """Return the argparse type of finite numbers above `above`, and of at most `most`."""

    def real(text: str) -> float:
        value = float(text)
        if not (above < value <= most and math.isfinite(value)):
            limits = [f"above {above:g}"] * math.isfinite(above)
            limits += [f"at most {most:g}"] * math.isfinite(most)
            raise argparse.ArgumentTypeError(
                f"{text} must be a number {' and '.join(limits)}".rstrip()
            )
        return value

    return real


def text(value: str) -> str:
    """Return a text, as an argparse type that refuses an empty one."""
    if not value.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return value


def lengths(value: str) -> dict[str, int]:
    """Return the lengths by feature of --lengths, such as inputs=512,targets=114; {} if empty.

    Raises:
      UserError: the value has another form.
    """
    pairs = [pair.partition("=") for pair in value.split(",") if pair]
    if not all(feature and n.isdigit() and int(n) for feature, _, n in pairs):
        raise UserError("--lengths", value, "but must look like inputs=512,targets=114")
    return {feature: int(n) for feature, _, n in pairs}


def check_output_file(flag: str, path: str) -> None:
    """Check that a file can be written at `path`, in an existing folder; leave nothing there.

    Raises:
      UserError: it cannot be written.
    """
    check_address(flag, path)
    file = Path(path)
    try:
        if file.is_dir():
            raise UserError(flag, path, "which is a folder", "name a file in it")
        if not file.parent.is_dir():
            raise UserError(flag, path, f"but there is no folder {file.parent}", "create it")
        if file.exists():
            with open(path, "ab"):
                pass
        _try_to_write(file.parent)
    except OSError as error:
        raise _unwritable(flag, path, error) from error


def result_path(name: str) -> str:
    """Return `runs/<name>`, where a result without --out goes, and make the folder."""
    folder = Path("runs")
    folder.mkdir(exist_ok=True)
    return str(folder / name)


def check_output_folder(flag: str, path: str, buckets_too: bool = False) -> None:
    """Check that the folder `path` can be created and written; leave nothing there.

    With `buckets_too` the address of a bucket passes, since only a write would show more.

    Raises:
      UserError: it cannot be written.
    """
    check_address(flag, path)
    if "://" in path:
        if buckets_too:
            return
        why = "but this command writes to disks only"
        raise UserError(flag, path, why, "name a folder, and copy it from there")
    try:
        folder = Path(path).absolute()
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise UserError(flag, path, f"but {folder} is not a folder", "name another")
        _try_to_write(folder)
    except OSError as error:
        raise _unwritable(flag, path, error) from error


def check_hub_token() -> None:
    """Raise UserError if HF_TOKEN cannot be sent; only the hub knows whether it is valid."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(
            "HF_TOKEN",
            why="is not a token of the Hugging Face hub: it has characters that no token has",
            to_set="copy it again from https://huggingface.co/settings/tokens, or unset it",
        )


def local(path: str) -> str:
    """Return a path that begins with `~/` from the home on, and without file:// if it has that."""
    is_home = path == "~" or path.startswith("~/")
    return os.path.expanduser(path) if is_home else path.removeprefix("file://")


def check_address(setting: str, path: str) -> None:
    """Raise UserError for a path or address that TensorFlow or a line of a log cannot hold.

    Orbax and TensorFlow look for files by patterns that begin with the folder's name, also in
    buckets, so a mark of patterns in it would make them miss files without an error. Corpora are
    read by fsspec instead, from any address.
    """
    if re.search(r"[\x00-\x1f\x7f]", path):
        why = "in which there is a line end or another control character"
        raise UserError(setting, path, why, "name another")
    if mark := re.search(r"[*?[\\]", path):
        why = f"in which {mark[0]} would be read as a pattern"
        raise UserError(setting, path, why, "name one without * ? [ and \\")
    if not path.strip("/"):
        why = "which is the root of the disk" if path else "which names nothing"
        raise UserError(setting, path, why, "name a folder")
    scheme, separator, _ = path.partition("://")
    if separator and scheme not in ("gs", "ram"):
        why = f"but {scheme}:// cannot be used for it, only disks and gs://"
        raise UserError(setting, path, why, "mount the bucket and name its folder")


def _try_to_write(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass


def _unwritable(flag: str, path: str, error: OSError) -> UserError:
    why = f"which cannot be written ({error.strerror})"
    return UserError(flag, path, why, "name another place")
