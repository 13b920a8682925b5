"""Say in one sentence what is wrong with a gin file or a flag, with the nearest known name.

The functions return the part of the sentence after the place: `a.gin:3: {explained}.`
"""

import difflib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gin.config_parser import ImportStatement

from common.errors import ROOT, first_line, nearest

_PAGE = "docs/t5x_compatibility.md says what of upstream T5X is left out, and what to use instead"


class Mistake(Exception):
    """A name that is unknown, explained; whoever knows its place makes a UserError of it."""


def is_near(name: str, known: Iterable[str]) -> bool:
    """Return whether a name is so similar to a known one that it may be a slip."""
    return bool(difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.8))


def syntax(error: SyntaxError) -> str:
    """Explain what gin cannot read; the error has no file if it is of the command line."""
    text = (error.text or "").strip()
    name, _, value = (part.strip() for part in text.partition("="))
    if "Failed to parse token" in error.msg or error.msg == "Expected newline.":
        quoted = f"{value.strip(chr(34) + chr(39))!r}"
        # On the command line the shell removes the outer quotes.
        right = f"{name} = {quoted}" if error.filename else f'--gin.{name}="{quoted}"'
        return (
            f"{text!r} is not a gin binding: a string needs quotes, as in {right}, and a name "
            "needs @ or %"
        )
    return f"{text!r} cannot be read: {' '.join(error.msg.split()).rstrip('.')}"


def no_file(name: str, folders: Sequence[str]) -> str:
    """Explain a file that is in none of the folders, the last of which is the repository."""
    around = [Path(name).parent, *map(Path, folders)]
    found = [path.as_posix() for folder in around for path in folder.glob("*.gin")]
    for part in ("gin", "t5x"):
        found += [path.relative_to(ROOT).as_posix() for path in (ROOT / part).rglob("*.gin")]
    close = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
    hint = f"; the nearest one is {close[0]}" if close else ""
    return f"There is no file {name} here, in the search paths or in the repository{hint}"


def no_module(statement: ImportStatement, error: ImportError) -> str:
    """Explain an import that fails."""
    wanted, absent = statement.module, error.name or statement.module
    if not isinstance(error, ModuleNotFoundError):  # a module that it imports lacks a name
        return f"{wanted} cannot be imported: {first_line(error)}{_of_upstream(absent)}"
    if not f"{wanted}.".startswith(f"{absent}."):
        return (
            f"{wanted} cannot be imported: it needs the module {absent!r}, which is not installed"
        )
    parent, _, name = absent.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", []) if parent else None
    known = [found.name for found in pkgutil.iter_modules(folders)]
    return f"There is no module {absent!r}{nearest(name, known) or _of_upstream(wanted)}"


def not_imported(name: str, imported: Iterable[str]) -> str:
    """Explain a name that begins with no import of its file."""
    if importlib.util.find_spec(f"t5x.{name}"):
        return f"{name} is not imported by this file: add `from t5x import {name}`"
    hint = nearest(name, imported)
    return f"{name} is not imported by this file{hint}: import its module first"


def no_attribute(path: str, owner: Any, name: str) -> str:
    """Explain a module or class, known as `path`, that has no `name`."""
    known = [each for each in dir(owner) if each[0] != "_"]
    hint = nearest(name, known)
    # What is no slip may be a name of upstream's that is left out here.
    page = "" if is_near(name, known) else _of_upstream(getattr(owner, "__name__", ""))
    return f"{path} has no {name!r}{page or hint}"


def no_configurable(selector: str, known: Iterable[str]) -> str:
    """Explain a name of the command line that no file imports or configures."""
    return (
        f"Nothing is called {selector!r}{nearest(selector, known)}: check the name, or import its "
        "module in a gin file"
    )


def no_parameter(selector: str, name: str, known: Iterable[str]) -> str:
    """Explain a parameter that a function or class lacks."""
    return f"{selector} has no parameter {name!r}{nearest(name, known)}"


def _of_upstream(module: str) -> str:
    return f"; {_PAGE}" if f"{module}.".startswith("t5x.") else ""
