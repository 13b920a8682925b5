"""Check the complete configuration: all that is needed is set, and all that is set is read.

check(["TRAIN_STPES = 500"])
# UserError: --gin.TRAIN_STPES is set but nothing in this configuration uses it (the nearest known
# name is 'TRAIN_STEPS').
"""

import contextlib
import functools
import inspect
import operator
import sys
from collections.abc import Sequence
from typing import Any

from absl import logging

import gin
from common.errors import UserError, nearest
from common.gin_reader import REQUIRED, Reference, leaves
from t5x.settings import explain, limits
from t5x.settings.configuration import MAINS, Binding, Configuration, current, resolve


def check(flags: Sequence[str]) -> None:
    """Check names and values before gin locks them; `flags` are the command line's bindings.

    Raises:
      UserError: a value is missing or beyond its type or limits, or nothing reads a flag.
    """
    given = {flag.partition("=")[0].strip() for flag in flags}
    found = current()
    _check_that_all_is_read(found, given)
    _check_that_nothing_is_missing(found)
    _check_main(found)
    for name, value, binding in found.values():
        limits.check(name, value, binding.function, binding.parameter)


def _check_that_all_is_read(found: Configuration, given: set[str]) -> None:
    """Refuse macros and scopes of the command line that nothing reads; warn of slips in files."""
    unread = [(name, "uses it", name, found.macros_used) for name in _unused(found)]
    for binding in found.bindings:
        scopes = binding.scope.split("/") if binding.parameter and binding.scope else []
        for scope in sorted(set(scopes) - found.scopes):
            unread.append((binding.name, f"enters the scope {scope!r}", scope, found.scopes))
    for name, reads, part, known in unread:
        hint = nearest(part, known)
        if name in given:
            raise UserError(f"--gin.{name} is set but nothing in this configuration {reads}{hint}.")
        if explain.is_near(part, known) and found.macros.get(name) != REQUIRED:
            logging.warning("%s is set but nothing %s%s.", name, reads, hint)


def _unused(found: Configuration) -> list[str]:
    return sorted(found.macros.keys() - found.macros_used)


def _check_that_nothing_is_missing(found: Configuration) -> None:
    names = found.missing()
    if names:
        macros = [name for name in names if "." not in name]
        hints = [f"--gin.{name}=…" for name in names if name != "MODEL"]
        todo = f"pass {' '.join(hints)}, or set it in a gin file" if hints else ""
        if "MODEL" in names:
            model = "include a model file such as t5x/examples/t5/t5_1_1/base.gin"
            todo = f"{model}, and {todo}" if todo else model
        typos = [name for name in _unused(found) if explain.is_near(name, macros)]
        typo = f" ({', '.join(typos)} is set but nothing uses it)" if typos else ""
        verb = "is" if len(names) == 1 else "are"
        raise UserError(f"{', '.join(names)} {verb} not set{typo}: {todo}.")
    for name in _unused(found):
        if found.macros[name] == REQUIRED:  # by another entry point, and gin would miss it
            gin.parse_config(f"{name} = None")


def _check_main(found: Configuration) -> None:
    """Refuse a configuration that lacks parameters of the function about to be run."""
    for name, file in MAINS.items():
        if function := vars(sys.modules["__main__"]).get(name):
            needed = _needed(function)
            bound = [b for b in found.bindings if b.parameter and b.function is function]
            if lacking := sorted(needed - {binding.parameter for binding in bound}):
                lacks = f"{name} gets no {', '.join(lacking)}"
                raise UserError(f"{lacks}: include {file}, or set them.")
            for binding in found.reached(functools.partial(operator.is_, function)):
                _check_calls(found, binding)


def _check_calls(found: Configuration, binding: Binding) -> None:
    """Refuse a value that is the result of a call without an argument that it needs."""
    for each in leaves(binding.value):
        if isinstance(each, Reference) and each.is_called:
            function = resolve(each.rpartition("/")[2], binding.imports)
            bound = {given.parameter for given in found.meant(each)}
            if lacking := sorted(_needed(function) - bound):
                raise UserError(
                    f"{binding.name} is {each!r}, which gets no {', '.join(lacking)}: set them, or "
                    f"set {binding.name} to something else."
                )


def _needed(function: Any) -> set[str]:
    """Return the parameters without a default, none of a function that does not tell."""
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(function).parameters.values()
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {p.name for p in parameters if p.default is p.empty and p.kind not in variadic}
    return set()
