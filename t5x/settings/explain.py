"""Explain what is wrong with a gin file or a flag in one sentence, with the nearest known name.

raise explain.no_parameter("network.T5Config", "emb_dims", parameters).at("a.gin:3")
# a.gin:3: network.T5Config has no parameter 'emb_dims' (the nearest known name is 'emb_dim').
"""

import difflib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gin.config_parser import ImportStatement

from common.errors import ROOT, UserError, first_line, nearest

_PAGE = "docs/t5x_compatibility.md says what of upstream T5X is left out, and what to use instead"


class Mistake(UserError):
    """An unknown name; the parser adds its place."""


def is_near(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is so similar to a known one that it may be a slip."""
    return bool(difflib.get_close_matches(name, sorted(set(names)), n=1, cutoff=0.8))


def syntax(error: SyntaxError) -> UserError:
    """Explain what gin cannot read; an error on the command line has no file."""
    text = (error.text or "").strip()
    name, _, value = (part.strip() for part in text.partition("="))
    if "Failed to parse token" in error.msg or error.msg == "Expected newline.":
        quoted = f"{value.strip(chr(34) + chr(39))!r}"
        # On the command line the shell removes the outer quotes.
        right = f"{name} = {quoted}" if error.filename else f'--gin.{name}="{quoted}"'
        why = f"is not a gin binding: a string needs quotes, as in {right}, and a name needs @ or %"
        return UserError(repr(text), why=why)
    return UserError(repr(text), why=f"cannot be read: {' '.join(error.msg.split())}")


def no_file(name: str, folders: Sequence[str]) -> UserError:
    """Explain a file that is in none of the folders, the last of which is the repository."""
    around = [Path(name).parent, *map(Path, folders)]
    files = [path.as_posix() for folder in around for path in folder.glob("*.gin")]
    for part in ("gin", "t5x"):
        files += [path.relative_to(ROOT).as_posix() for path in (ROOT / part).rglob("*.gin")]
    similar = difflib.get_close_matches(name, files, n=1, cutoff=0.5)
    hint = f"; the nearest one is {similar[0]}" if similar else ""
    why = f"There is no file {name} here, in the search paths or in the repository{hint}"
    return UserError(why=why)


def no_module(statement: ImportStatement, error: ImportError) -> Mistake:
    """Explain an import that fails."""
    module, absent = statement.module, error.name or statement.module
    if not isinstance(error, ModuleNotFoundError):  # a module that it imports lacks a name
        return Mistake(module, ..., f"cannot be imported: {first_line(error)}", _page_for(absent))
    if not f"{module}.".startswith(f"{absent}."):
        why = f"cannot be imported: it needs the module {absent!r}, which is not installed"
        return Mistake(module, why=why)
    parent, _, name = absent.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", []) if parent else None
    hint = nearest(name, [info.name for info in pkgutil.iter_modules(folders)])
    why = f"There is no module {absent!r}{hint}"
    return Mistake(why=why, to_set="" if hint else _page_for(module))


def not_imported(name: str, imports: Iterable[str]) -> Mistake:
    """Explain a name that begins with no import of its file."""
    why = "is not imported by this file"
    if importlib.util.find_spec(f"t5x.{name}"):
        return Mistake(name, why=why, to_set=f"add `from t5x import {name}`")
    return Mistake(name, why=why + nearest(name, imports), to_set="import its module first")


def no_attribute(path: str, owner: Any, name: str) -> Mistake:
    """Explain a module or class, known as `path`, that has no `name`."""
    names = [attribute for attribute in dir(owner) if attribute[0] != "_"]
    # Unless it is a slip, upstream may have the name.
    page = "" if is_near(name, names) else _page_for(getattr(owner, "__name__", ""))
    return Mistake(
        path, why=f"has no {name!r}" + ("" if page else nearest(name, names)), to_set=page
    )


def no_configurable(selector: str, names: Iterable[str]) -> Mistake:
    """Explain a name of the command line that no file imports or configures."""
    return Mistake(
        why=f"Nothing is called {selector!r}{nearest(selector, names)}",
        to_set="check the name, or import its module in a gin file",
    )


def no_parameter(selector: str, name: str, parameters: Iterable[str]) -> Mistake:
    """Explain a parameter that a function or class lacks."""
    return Mistake(selector, why=f"has no parameter {name!r}{nearest(name, parameters)}")


def _page_for(module: str) -> str:
    return _PAGE if f"{module}.".startswith("t5x.") else ""
